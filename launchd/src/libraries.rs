//! MLX's libraries, where they aren't part of the worker (Linux). Which ones they are is the loader's word.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::ServiceError;
use crate::files::plain;

/// The folder beside the programs that an installation keeps the libraries in. The worker's build script names it, too.
pub const FOLDER: &str = "fusion-mlx";
/// What the worker is linked with. It lies in `lib` of a folder that holds all of MLX, and finds the others relative to itself.
const ENTRY: &str = "libmlxc.so";
/// The folder that [`ENTRY`] lies in.
const LIB: &str = "lib";
/// Makes the loader list what it would load, instead of running the program: ld.so(8).
const LIST_VARIABLE: &str = "LD_TRACE_LOADED_OBJECTS";

/// A library that a worker loads from a folder that holds MLX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Library {
    /// Where it lies.
    pub(crate) file: PathBuf,
    /// Where it lies below the folder.
    pub(crate) name: PathBuf,
}

/// What `worker` loads of MLX; empty where MLX is part of the program.
///
/// # Errors
/// [`ServiceError::CannotRun`], and [`ServiceError::NoLibrary`] if it would not start.
pub(crate) fn of(worker: &Path) -> Result<Vec<Library>, ServiceError> {
    if !cfg!(target_os = "linux") {
        return Ok(Vec::new());
    }
    let cannot = |source| ServiceError::CannotRun { command: worker.display().to_string(), source };
    let listed =
        Command::new(worker).env(LIST_VARIABLE, "1").stdin(Stdio::null()).output().map_err(cannot)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let refused = (!listed.status.success()).then(|| text(&listed.stderr));
    in_list(worker, &text(&listed.stdout), refused.as_deref())
}

/// What the loader's words mean: its list, and what it says if it refuses the program (a version that a library lacks, say).
fn in_list(worker: &Path, list: &str, refused: Option<&str>) -> Result<Vec<Library>, ServiceError> {
    let missing = |name| ServiceError::NoLibrary { name, worker: worker.to_owned() };
    let loaded = loaded(list).map_err(missing)?;
    if let Some(words) = refused {
        let source = io::Error::other(words.trim().to_owned());
        return Err(ServiceError::CannotRun { command: worker.display().to_string(), source });
    }
    below_mlx(&loaded.iter().map(|path| plain(path)).collect::<Vec<_>>())
        .map_err(|entry| missing(format!("{ENTRY} in a folder called '{LIB}' (it is {})", entry.display())))
}

/// The files in a loader's list; the name of the first one that it doesn't find. Its lines are "name => /path (0x7f00)", "/path (0x7f00)", "name => not
/// found", and "name (0x7f00)" for the kernel's.
fn loaded(list: &str) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for line in list.lines().map(str::trim) {
        let (name, place) = line.split_once(" => ").unwrap_or((line, line));
        if place == "not found" {
            return Err(name.to_owned());
        }
        let path = place.rsplit_once(" (0x").map_or(place, |(path, _)| path);
        if path.starts_with('/') {
            files.push(PathBuf::from(path));
        }
    }
    Ok(files)
}

/// Those of `files` in the folder that holds MLX. The path of MLX's entry, if it doesn't lie where the installed worker would look for it.
fn below_mlx(files: &[PathBuf]) -> Result<Vec<Library>, PathBuf> {
    let Some(entry) = files.iter().find(|file| file.file_name().is_some_and(|name| name == ENTRY)) else {
        return Ok(Vec::new());
    };
    let lib = entry.parent().filter(|lib| lib.file_name().is_some_and(|name| name == LIB));
    // A system's own `lib` holds much else.
    let folder =
        lib.and_then(Path::parent).filter(|folder| ![Path::new("/"), Path::new("/usr")].contains(folder));
    let Some(folder) = folder else { return Err(entry.clone()) };
    let below = |file: &PathBuf| {
        Some(Library { file: file.clone(), name: file.strip_prefix(folder).ok()?.to_owned() })
    };
    Ok(files.iter().filter_map(below).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\tlinux-vdso.so.1 (0x00007ffb)
\tlibmlxc.so => /my code/.mlx-linux/lib/libmlxc.so (0x00007ffb)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007ffb)
\t/lib64/ld-linux-x86-64.so.2 (0x00007ffb)
\tlibmlx.so => /my code/.mlx-linux/site/mlx/lib/libmlx.so (0x00007ffb)
";

    #[test]
    fn what_lies_in_mlxs_folder_keeps_its_place_in_it() {
        let found = below_mlx(&loaded(LIST).unwrap()).unwrap();
        let names: Vec<_> = found.iter().map(|library| library.name.to_str().unwrap()).collect();
        assert_eq!(names, ["lib/libmlxc.so", "site/mlx/lib/libmlx.so"]);
        assert_eq!(found[1].file, Path::new("/my code/.mlx-linux/site/mlx/lib/libmlx.so"));
    }

    #[test]
    fn a_library_named_by_its_full_path_counts() {
        let list = "\t/opt/mlx/lib/libmlxc.so (0x1)\n\tlibmlx.so => /opt/mlx/site/libmlx.so (0x2)\n";
        assert_eq!(below_mlx(&loaded(list).unwrap()).unwrap().len(), 2);
    }

    #[test]
    fn a_missing_library_is_named() {
        let list = format!("{LIST}\tlibscipy_openblas.so => not found\n");
        assert_eq!(loaded(&list).unwrap_err(), "libscipy_openblas.so");
    }

    #[test]
    fn a_layout_that_an_installed_worker_would_not_find_is_refused() {
        for place in ["/usr/lib/x86_64-linux-gnu", "/opt/mlx", "/usr/lib"] {
            let list = format!(
                "\tlibmlxc.so => {place}/libmlxc.so (0x1)\n\tlibc.so.6 => /usr/lib/libc.so.6 (0x2)\n"
            );
            let refused = below_mlx(&loaded(&list).unwrap()).unwrap_err();
            assert_eq!(refused, Path::new(place).join("libmlxc.so"));
        }
    }

    #[test]
    fn a_program_that_the_loader_refuses_is_no_worker_without_libraries() {
        let words = "/x/fusion-worker: /lib/libc.so.6: version `GLIBC_9.99' not found\n";
        let refused = in_list(Path::new("/x/fusion-worker"), "", Some(words)).unwrap_err();
        assert!(refused.to_string().contains("GLIBC_9.99"), "{refused}");
    }

    #[test]
    fn a_program_without_mlx_has_none() {
        assert_eq!(of(Path::new("/bin/sh")).unwrap(), []);
    }
}
