//! Our other programs.

use std::env;
use std::path::{Path, PathBuf};

/// The one that was installed together with us, else the one that a person would start.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let beside = env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned));
    let path = env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        .chain(env::split_paths(&path))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}
