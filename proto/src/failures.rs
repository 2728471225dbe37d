//! How often the daemon failed to start, and why: a small file beside its socket, for whoever asks while there is no daemon.
//!
//! A manager that starts the daemon again whenever it fails would do so for ever: launchd knows no limit. So the daemon counts, and gives up after
//! [`MOST_FAILED_STARTS`]. It tries again once the file is gone (`fusionctl start`), old, or of another version.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::endpoint::SocketPath;

/// Failed starts in a row after which the daemon gives up.
pub const MOST_FAILED_STARTS: u32 = 5;
/// After this long it tries again by itself: what was wrong may be mended.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(10 * 60);

/// Failed starts in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedStarts {
    /// How many.
    pub count: u32,
    /// Why the last one failed.
    pub reason: String,
    /// When, in ms since 1970 (UTC).
    pub at_unix_ms: u64,
    /// The daemon's version.
    pub version: String,
}

impl FailedStarts {
    /// What the file of `socket` says; `None` if there is none, or nothing that can be read.
    pub fn read(socket: &SocketPath) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(socket.failures_file()).ok()?).ok()
    }

    /// Replaces the file of `socket`.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self, socket: &SocketPath) -> io::Result<()> {
        let (path, fresh) = (socket.failures_file(), fresh(socket));
        let mut file = std::fs::File::create(&fresh)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        std::fs::rename(fresh, path)
    }

    /// Forgets them: the daemon tries again.
    ///
    /// # Errors
    /// The file can't be removed.
    pub fn clear(socket: &SocketPath) -> io::Result<()> {
        match std::fs::remove_file(socket.failures_file()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Whether a daemon of `version` gives up at once at `now_unix_ms`, instead of trying.
    pub fn is_final(&self, version: &str, now_unix_ms: u64) -> bool {
        let age = Duration::from_millis(now_unix_ms.abs_diff(self.at_unix_ms));
        self.count >= MOST_FAILED_STARTS && self.version == version && age < FORGOTTEN_AFTER
    }
}

fn fresh(socket: &SocketPath) -> PathBuf {
    let mut name = socket.failures_file().into_os_string();
    name.push(".new");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(count: u32) -> FailedStarts {
        FailedStarts {
            count,
            reason: "no disk".to_owned(),
            at_unix_ms: 1_000_000,
            version: "1.0.0".to_owned(),
        }
    }

    #[test]
    fn it_gives_up_after_so_many_and_not_for_ever() {
        assert!(!failed(MOST_FAILED_STARTS - 1).is_final("1.0.0", 1_000_000));
        assert!(failed(MOST_FAILED_STARTS).is_final("1.0.0", 1_000_000));
        assert!(!failed(MOST_FAILED_STARTS).is_final("1.0.1", 1_000_000), "an upgrade may mend it");
        let later = 1_000_000 + u64::try_from(FORGOTTEN_AFTER.as_millis()).unwrap();
        assert!(!failed(MOST_FAILED_STARTS).is_final("1.0.0", later));
    }

    #[test]
    fn what_is_written_is_read_until_it_is_cleared() {
        let place = tempfile::tempdir().unwrap();
        let socket = SocketPath::new(place.path().join("x.sock")).unwrap();
        assert_eq!(FailedStarts::read(&socket), None);
        failed(3).write(&socket).unwrap();
        assert_eq!(FailedStarts::read(&socket), Some(failed(3)));
        std::fs::write(socket.failures_file(), "{").unwrap();
        assert_eq!(FailedStarts::read(&socket), None);
        FailedStarts::clear(&socket).unwrap();
        FailedStarts::clear(&socket).unwrap();
    }
}
