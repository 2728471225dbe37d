//! One measuring daemon per machine, whichever user's it is: two that measure at once spoil each other's numbers.
//!
//! A file that every user can lock. The system lets go of it when its holder ends, however it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Where every user's daemon looks: the one directory that all can write to. Not `$TMPDIR`, which is each user's own on macOS.
pub fn default_path() -> PathBuf {
    PathBuf::from("/tmp/fusiond-measuring.lock")
}

/// The lock, held as long as this lives.
#[derive(Debug)]
pub(super) struct MeasuringLock {
    _file: File,
}

impl MeasuringLock {
    /// Takes the lock; `None` if another daemon holds it.
    ///
    /// # Errors
    /// The file can neither be opened nor made.
    pub(super) fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Opens it to read, which is enough for a lock: in a sticky directory Linux refuses to create what another user's file is already
/// (`fs.protected_regular`), and its owner alone could write it.
fn open(path: &Path) -> io::Result<File> {
    match OpenOptions::new().read(true).custom_flags(no_follow()).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let made =
        OpenOptions::new().write(true).create_new(true).mode(0o644).custom_flags(no_follow()).open(path);
    match made {
        // Another daemon was a moment faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().read(true).custom_flags(no_follow()).open(path)
        }
        made => made,
    }
}

/// A link that somebody put there leads nowhere good.
fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn one_holds_it_and_the_next_gets_it() {
        let place = TempDir::new().unwrap();
        let path = place.path().join("lock");
        let held = MeasuringLock::try_acquire(&path).unwrap();
        assert!(held.is_some());
        assert!(MeasuringLock::try_acquire(&path).unwrap().is_none());
        drop(held);
        assert!(MeasuringLock::try_acquire(&path).unwrap().is_some());
    }

    #[test]
    fn a_link_is_not_followed_and_a_missing_directory_is_an_error() {
        let place = TempDir::new().unwrap();
        let (target, link) = (place.path().join("target"), place.path().join("link"));
        std::fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(MeasuringLock::try_acquire(&link).is_err());
        assert!(MeasuringLock::try_acquire(&place.path().join("absent/lock")).is_err());
    }
}
