//! The socket that a manager holds for the daemon, so that no client finds nobody while the daemon starts, is replaced, or rests.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;

use rustix::io::FdFlags;
use rustix::net::SocketType;

/// The socket's name in the agent's property list.
#[cfg(target_os = "macos")]
const LAUNCHD_NAME: &std::ffi::CStr = c"rpc";

/// Who starts the daemon, and starts it again when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supervisor {
    /// launchd.
    Launchd,
    /// systemd's manager of the user.
    Systemd,
}

impl Supervisor {
    /// Who handed over a socket for this process without further words: systemd, and whatever else keeps to sd_listen_fds(3).
    pub fn from_environment() -> Option<Self> {
        handed_over().then_some(Self::Systemd)
    }
}

/// Why the manager's socket can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    /// The option is for another system.
    #[error("--launchd is for macOS: leave it out here")]
    NoLaunchd,
    /// The system refuses.
    #[error(
        "the socket that {manager} holds can't be taken over: {reason}; 'fusionctl install' registers the daemon anew"
    )]
    Refused {
        /// The manager's name.
        manager: &'static str,
        /// Why.
        reason: io::Error,
    },
    /// What was handed over is no Unix socket that listens.
    #[error(
        "what {manager} handed over is no Unix socket that listens: 'fusionctl install' registers the daemon anew"
    )]
    NoListener {
        /// The manager's name.
        manager: &'static str,
    },
}

/// The socket that the manager holds; `None` if it holds none, as where Homebrew installed: then the daemon binds its own.
///
/// # Errors
/// Every [`ActivationError`].
pub fn inherited(supervisor: Supervisor) -> Result<Option<UnixListener>, ActivationError> {
    match supervisor {
        Supervisor::Launchd => from_launchd(),
        Supervisor::Systemd => from_systemd(),
    }
}

#[cfg(target_os = "macos")]
fn from_launchd() -> Result<Option<UnixListener>, ActivationError> {
    let refused = |reason| ActivationError::Refused { manager: "launchd", reason };
    // One path, one descriptor; should there be more, they close here.
    let taken = crate::platform::launchd_sockets(LAUNCHD_NAME).map_err(refused)?.into_iter().next();
    taken.map(|descriptor| listener(descriptor, "launchd")).transpose()
}

#[cfg(not(target_os = "macos"))]
fn from_launchd() -> Result<Option<UnixListener>, ActivationError> {
    Err(ActivationError::NoLaunchd)
}

/// sd_listen_fds(3): whether descriptors, from 3 on, are meant for this process.
fn handed_over() -> bool {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    number("LISTEN_PID") == Some(std::process::id()) && number("LISTEN_FDS").is_some_and(|count| count > 0)
}

fn from_systemd() -> Result<Option<UnixListener>, ActivationError> {
    if !handed_over() {
        return Ok(None);
    }
    let refused = |reason| ActivationError::Refused { manager: "systemd", reason };
    let taken = listenfd::ListenFd::from_env().take_unix_listener(0).map_err(refused)?;
    taken.map(|taken| listener(taken.into(), "systemd")).transpose()
}

/// Checks what was handed over, and keeps it from the worker.
fn listener(descriptor: OwnedFd, manager: &'static str) -> Result<UnixListener, ActivationError> {
    let refused = |reason: rustix::io::Errno| ActivationError::Refused { manager, reason: reason.into() };
    let stream = rustix::net::sockopt::socket_type(&descriptor).map_err(refused)? == SocketType::STREAM;
    if !stream || !listens(&descriptor) {
        return Err(ActivationError::NoListener { manager });
    }
    rustix::io::fcntl_setfd(&descriptor, FdFlags::CLOEXEC).map_err(refused)?;
    let listener = UnixListener::from(descriptor);
    listener.set_nonblocking(true).map_err(|reason| ActivationError::Refused { manager, reason })?;
    Ok(listener)
}

#[cfg(not(target_os = "macos"))]
fn listens(descriptor: impl AsFd) -> bool {
    rustix::net::sockopt::socket_acceptconn(descriptor).unwrap_or(true)
}

/// macOS declares the question and doesn't answer it; a socket of launchd's listens.
#[cfg(target_os = "macos")]
fn listens(_: impl AsFd) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_that_listens_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let bound = UnixListener::bind(place.path().join("s")).unwrap();
        assert!(listener(bound.into(), "systemd").is_ok());
        if cfg!(not(target_os = "macos")) {
            let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
            assert!(matches!(listener(one.into(), "systemd"), Err(ActivationError::NoListener { .. })));
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(listener(file.into(), "systemd"), Err(ActivationError::Refused { .. })));
    }
}
