//! Files that are there whole or not at all, also after a crash.

use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::checkpoint::Checkpoints;

/// What is added to the name of a file that isn't whole yet; fixed, so that the next run replaces it.
const UNFINISHED: &str = "new";

/// The file beside `path` that becomes it.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(UNFINISHED);
    path.with_file_name(name)
}

/// Puts `text` at `path`, with read and write for the owner alone.
pub(crate) fn write(path: &Path, text: &str, checkpoints: &Checkpoints) -> io::Result<()> {
    replace(path, 0o600, checkpoints, |file| file.write_all(text.as_bytes()))
}

/// Puts a copy of the program `from` at `to`: always a new inode, since macOS kills whatever starts from a signed program that was overwritten in place.
pub(crate) fn place_program(from: &Path, to: &Path, checkpoints: &Checkpoints) -> io::Result<()> {
    let mode = fs::metadata(from)?.permissions().mode() & 0o777;
    replace(to, mode, checkpoints, |file| io::copy(&mut fs::File::open(from)?, file).map(drop))
}

/// Writes beside `path`, to the disk, then renames.
fn replace(
    path: &Path,
    mode: u32,
    checkpoints: &Checkpoints,
    fill: impl FnOnce(&mut fs::File) -> io::Result<()>,
) -> io::Result<()> {
    let fresh = unfinished(path);
    // Another's leftover might have another mode, or be a link.
    remove(&fresh)?;
    let mut file = fs::File::create(&fresh)?;
    fill(&mut file)?;
    fs::set_permissions(&fresh, std::fs::Permissions::from_mode(mode))?;
    file.sync_all()?;
    checkpoints.pass();
    fs::rename(&fresh, path)?;
    checkpoints.pass();
    sync_directory(path)
}

/// Makes the names in the directory of `path` last.
fn sync_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| fs::File::open(directory)?.sync_all())
}

/// The path without ".." and links on the way. The file's own name stays, even if it is a link.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let directory = path.parent().and_then(|directory| directory.canonicalize().ok());
    directory.zip(path.file_name()).map_or_else(|| path.to_owned(), |(directory, name)| directory.join(name))
}

/// Whether both name one directory, be it through links.
pub(crate) fn same_directory(one: &Path, other: &Path) -> bool {
    one == other || one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Removes a file; one that isn't there is fine.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Whether both files hold the same bytes, and may be run by the same people.
pub(crate) fn same(a: &Path, b: &Path) -> io::Result<bool> {
    let (Ok(left), Ok(right)) = (fs::metadata(a), fs::metadata(b)) else { return Ok(false) };
    if left.len() != right.len() || left.permissions().mode() != right.permissions().mode() {
        return Ok(false);
    }
    let (mut left, mut right) = (fs::File::open(a)?, fs::File::open(b)?);
    let (mut here, mut there) = (Vec::new(), Vec::new());
    loop {
        const PIECE: u64 = 1 << 20;
        here.clear();
        there.clear();
        (&mut left).take(PIECE).read_to_end(&mut here)?;
        (&mut right).take(PIECE).read_to_end(&mut there)?;
        if here != there || here.is_empty() {
            return Ok(here == there);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_go_and_names_stay() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().canonicalize().unwrap();
        fs::create_dir(folder.join("lib")).unwrap();
        fs::write(folder.join("libx.so.1.2"), "").unwrap();
        std::os::unix::fs::symlink("libx.so.1.2", folder.join("libx.so.1")).unwrap();
        assert_eq!(plain(&folder.join("lib/../libx.so.1")), folder.join("libx.so.1"));
    }

    #[test]
    fn a_program_is_replaced_by_a_new_inode_that_can_be_run() {
        use std::os::unix::fs::MetadataExt as _;

        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::write(&from, "new").unwrap();
        fs::set_permissions(&from, std::fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&to, "old").unwrap();
        fs::write(unfinished(&to), "half").unwrap();
        let before = fs::metadata(&to).unwrap().ino();
        let running = fs::File::open(&to).unwrap();
        assert!(!same(&from, &to).unwrap());
        place_program(&from, &to, &Checkpoints::default()).unwrap();
        assert!(same(&from, &to).unwrap());
        assert_ne!(fs::metadata(&to).unwrap().ino(), before);
        assert_eq!(io::read_to_string(running).unwrap(), "old", "who runs it keeps it");
        assert!(!unfinished(&to).exists());
    }
}
