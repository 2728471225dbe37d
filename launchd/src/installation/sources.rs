//! What an installation consists of: where each file is taken from, and where it goes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::Installation;
use crate::error::ServiceError;
use crate::files;
use crate::libraries;
use crate::places::{KERNELS, PROGRAMS, Places, WORKER};

/// A file of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Where it is taken from.
    pub from: PathBuf,
    /// Where it goes.
    pub to: PathBuf,
}

impl Source {
    /// Whether it is used where it lies, be it through a link: Homebrew's directory of programs has links to them.
    pub(super) fn in_place(&self) -> bool {
        self.to.canonicalize().is_ok_and(|to| self.from.canonicalize().is_ok_and(|from| from == to))
    }
}

/// The programs in `directory` and all that belongs to them, as far as it is there: MLX's kernels and libraries, manual and completions. The programs
/// come last, the daemon's as the last of them.
///
/// # Errors
/// [`ServiceError::NoProgram`], [`ServiceError::NoLibrary`], [`ServiceError::CannotRun`] and [`ServiceError::Io`].
pub fn sources(directory: &Path, places: &Places) -> Result<Vec<Source>, ServiceError> {
    let missing = PROGRAMS.into_iter().find(|name| !directory.join(name).is_file());
    if let Some(name) = missing {
        return Err(ServiceError::NoProgram { name, directory: directory.to_owned() });
    }
    let beside = |name: &str| Source { from: directory.join(name), to: places.programs.join(name) };
    let mut sources = libraries_of(&beside(WORKER), places)?;
    sources.extend(Some(KERNELS).filter(|name| directory.join(name).is_file()).map(beside));
    sources.extend(documents(directory, places)?);
    sources.extend(PROGRAMS.map(beside));
    Ok(sources)
}

/// MLX's libraries, for a worker that is copied; one that stays where it is has them.
fn libraries_of(worker: &Source, places: &Places) -> Result<Vec<Source>, ServiceError> {
    if worker.in_place() {
        return Ok(Vec::new());
    }
    let folder = places.programs.join(libraries::FOLDER);
    let found = libraries::of(&worker.from)?.into_iter();
    Ok(found.map(|library| Source { to: folder.join(library.name), from: library.file }).collect())
}

/// Manual and completions, which a release's package has beside the programs.
fn documents(directory: &Path, places: &Places) -> Result<Vec<Source>, ServiceError> {
    let mut sources = Vec::new();
    for from in files_in(&directory.join("man"))? {
        sources.extend(document(from, &places.shared().join("man/man1")));
    }
    for from in files_in(&directory.join("completions"))? {
        let folder = places.shared().join(completions_folder(&from));
        sources.extend(document(from, &folder));
    }
    Ok(sources)
}

fn document(from: PathBuf, folder: &Path) -> Option<Source> {
    let to = folder.join(from.file_name()?);
    Some(Source { from, to })
}

/// Where a shell looks for completions, below a directory of shared files; the name tells the shell.
fn completions_folder(file: &Path) -> &'static str {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with('_') {
        "zsh/site-functions"
    } else if name.ends_with(".fish") {
        "fish/vendor_completions.d"
    } else {
        "bash-completion/completions"
    }
}

/// The files in `directory`, sorted; none if it isn't there.
fn files_in(directory: &Path) -> Result<Vec<PathBuf>, ServiceError> {
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let entries =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, ServiceError>>()?;
    let mut files: Vec<_> = entries.into_iter().filter(|path| path.is_file()).collect();
    files.sort();
    Ok(files)
}

impl Installation {
    /// The sources that aren't in place as they are; none where the programs are run from where they lie.
    pub(super) fn outdated(&self) -> Result<Vec<&Source>, ServiceError> {
        let mut outdated = Vec::new();
        for source in self.placed() {
            if !files::same(&source.from, &source.to)? {
                outdated.push(source);
            }
        }
        Ok(outdated)
    }

    /// The sources that are copied.
    pub(super) fn placed(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| !source.in_place())
    }

    /// Every directory that must be there before the daemon starts, our own first.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        let holders: BTreeSet<_> = self.placed().filter_map(|source| source.to.parent()).collect();
        let mut directories = self.places.directories().to_vec();
        directories.extend(holders.into_iter().map(Path::to_owned));
        directories
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_go_where_their_shell_looks() {
        let folder = |name: &str| completions_folder(Path::new(name));
        assert_eq!(folder("/x/_fusionctl"), "zsh/site-functions");
        assert_eq!(folder("/x/fusionctl.fish"), "fish/vendor_completions.d");
        assert_eq!(folder("/x/fusionctl"), "bash-completion/completions");
    }
}
