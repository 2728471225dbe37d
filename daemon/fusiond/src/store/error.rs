//! What can go wrong with the store, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use fusion_calibrations::record::RecordError;

/// Why the store didn't do what it was asked. The messages say what, where and what next.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the store open.
    #[error(
        "{} is in use by {}: stop that process, or ask the running daemon with fusionctl instead",
        path.display(), holder(*pid)
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that holds it, where it wrote its number down.
        pid: Option<u32>,
    },
    /// The files may not be written.
    #[error(
        "{action} {} is not permitted ({source}): make it writable for this user, or choose another directory with --state-dir",
        path.display()
    )]
    ReadOnly {
        /// What was tried, as in "writing".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The disk or the user's quota is full. What was acknowledged before is kept.
    #[error(
        "no space left while {action} {} ({source}): free some space and repeat; nothing that was stored before is lost",
        path.display()
    )]
    Full {
        /// What was tried, as in "writing".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Any other failure of the file system.
    #[error("{action} {} failed: {source}", path.display())]
    Io {
        /// What was tried, as in "writing".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// sled found its own files damaged, or failed in itself, while running.
    #[error(
        "the index {} is damaged ({reason}): writing has stopped; restart fusiond, which sets the index aside and rebuilds it from the record files",
        path.display()
    )]
    Corrupt {
        /// The directory of the index.
        path: PathBuf,
        /// What sled said.
        reason: String,
    },
    /// An earlier failure stopped all writing.
    #[error("nothing is written any more since an earlier failure ({reason}): restart fusiond")]
    Stopped {
        /// The earlier failure.
        reason: String,
    },
    /// A record that can't be written down.
    #[error("the calibration can't be stored: {0}")]
    Unstorable(#[source] RecordError),
    /// A stored record that can't be read. The bytes are left as they are.
    #[error("{place} can't be read: {source}; run 'fusionctl store rebuild'")]
    Damaged {
        /// Which record.
        place: String,
        /// Why.
        source: RecordError,
    },
    /// The target of an export exists already.
    #[error("{} exists already: export into a directory that doesn't exist yet", path.display())]
    ExportExists {
        /// The target.
        path: PathBuf,
    },
    /// The writer thread is gone: the daemon is shutting down.
    #[error("the store is closed: the daemon is shutting down")]
    Closed,
    /// A fault that a test asked for.
    #[error("injected fault at operation {operation}")]
    Injected {
        /// The number of the operation, from 1.
        operation: u64,
    },
}

impl StoreError {
    /// Sorts a failure of the file system by what a person can do about it.
    pub(super) fn from_io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::Full { action, path, source }
            }
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Self::ReadOnly { action, path, source }
            }
            _ => Self::Io { action, path, source },
        }
    }

    /// Whether a later attempt may succeed in this process, once somebody made room or changed permissions.
    pub fn is_environment(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::ReadOnly { .. } | Self::Io { .. })
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// Adds the action and the path to a result of the file system.
pub(super) trait At<T> {
    /// The result with a [`StoreError`] that says what was tried where.
    fn at(self, action: &'static str, path: &Path) -> Result<T, StoreError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::from_io(action, path, source))
    }
}
