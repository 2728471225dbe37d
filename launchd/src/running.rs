//! The daemon that runs, as its lock tells. Looking starts nothing: a connection would, where the manager holds the socket.

use std::path::Path;
use std::time::{Duration, Instant};

use fs_err as fs;
use fusion_proto::endpoint::SocketPath;
use rustix::process::{Pid, Signal, kill_process};

use crate::error::ServiceError;

/// Beyond the 3 s that the daemon gives its callers, and 2 s for closing its store.
const END_LIMIT: Duration = Duration::from_secs(15);
/// Between two looks at the lock.
const INTERVAL: Duration = Duration::from_millis(20);

/// The process of the daemon of `socket`; `None` if none runs. 0 where one runs and hasn't written its number yet.
pub fn holder(socket: &SocketPath) -> Option<u32> {
    let file = fs::File::open(socket.lock_file()).ok()?;
    // Shared, so that two that look don't take each other for the daemon.
    match file.file().try_lock_shared() {
        Err(std::fs::TryLockError::WouldBlock) => {
            let text = fs::read_to_string(socket.lock_file()).unwrap_or_default();
            Some(text.trim().parse().unwrap_or(0))
        }
        _ => None,
    }
}

/// Whether a daemon runs that `file` belongs to: its socket, or what lies beside that under its name.
pub(crate) fn uses(file: &Path) -> bool {
    SocketPath::new(file).is_ok_and(|socket| holder(&socket).is_some())
}

/// Asks the daemon of `socket` to end, as its manager would, and waits until it has. The process that ended; `None` if none ran.
///
/// # Errors
/// [`ServiceError::DaemonStays`], and [`ServiceError::Io`] if it can't be asked.
pub fn end(socket: &SocketPath) -> Result<Option<u32>, ServiceError> {
    let start = Instant::now();
    let mut asked = None;
    while let Some(pid) = holder(socket) {
        if asked.is_none()
            && let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw)
        {
            // The lock is held, so the number is that of its living holder.
            kill_process(process, Signal::TERM).map_err(std::io::Error::from)?;
            asked = Some(pid);
        }
        if start.elapsed() > END_LIMIT {
            return Err(ServiceError::DaemonStays { pid, seconds: END_LIMIT.as_secs() });
        }
        std::thread::sleep(INTERVAL);
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_daemons_files_are_in_use() {
        let place = tempfile::tempdir().unwrap();
        let lock = fs::File::create(place.path().join("x.lock")).unwrap();
        let used = || ["x.sock", "x.lock", "x.failures"].map(|name| uses(&place.path().join(name)));
        assert_eq!(used(), [false; 3]);
        lock.file().lock().unwrap();
        assert_eq!(used(), [true; 3]);
        assert!(!uses(&place.path().join("y.sock")));
    }

    #[test]
    fn only_a_held_lock_is_a_daemon() {
        let place = tempfile::tempdir().unwrap();
        let socket = SocketPath::new(place.path().join("x.sock")).unwrap();
        assert_eq!(holder(&socket), None);
        fs::write(socket.lock_file(), "4242\n").unwrap();
        assert_eq!(holder(&socket), None, "left behind by a killed daemon");
        let file = fs::File::open(socket.lock_file()).unwrap();
        file.file().lock().unwrap();
        assert_eq!(holder(&socket), Some(4242));
    }
}
