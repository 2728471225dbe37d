//! Where the store's files are.

use std::io;
use std::path::{Path, PathBuf};

use super::error::{At, StoreError};
use super::report::SetAside;

/// The names below the state directory.
#[derive(Debug, Clone)]
pub(super) struct Paths {
    pub(super) state: PathBuf,
}

impl Paths {
    /// sled's own directory.
    pub(super) fn index(&self) -> PathBuf {
        self.state.join("store")
    }

    /// The record files.
    pub(super) fn calibrations(&self) -> PathBuf {
        self.state.join("calibrations")
    }

    pub(super) fn manifest(&self) -> PathBuf {
        self.state.join("store-manifest.json")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.state.join("store.lock")
    }

    /// A name that isn't taken, as `store.corrupt-20260822T120000Z`.
    pub(super) fn aside(&self, why: &str) -> PathBuf {
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let mut path = self.state.join(format!("store.{why}-{now}"));
        let mut attempt = 2;
        while path.exists() {
            path = self.state.join(format!("store.{why}-{now}-{attempt}"));
            attempt += 1;
        }
        path
    }

    /// Every directory that was set aside, oldest first.
    pub(super) fn set_aside(&self) -> Result<Vec<SetAside>, StoreError> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.state).at("reading", &self.state)? {
            let path = entry.at("reading", &self.state)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("store.") && path.is_dir() {
                let bytes = directory_bytes(&path).at("measuring", &path)?;
                found.push(SetAside { path, bytes });
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }
}

/// Creates a directory that only this user can enter.
pub(super) fn create_private(directory: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).at("creating", directory)
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    std::fs::File::open(directory)?.sync_all()
}

/// Bytes of all files below a directory; 0 if there is none.
pub(super) fn directory_bytes(directory: &Path) -> io::Result<u64> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut bytes = 0;
    for entry in entries {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { directory_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

/// Copies a directory with everything below it.
pub(super) fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
