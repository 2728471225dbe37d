//! Where the daemon listens.
//!
//! A Unix socket in a directory of mode 0700 that belongs to the user. Not in `$TMPDIR`, which differs between launchers,
//! and not in `/tmp`, which is shared: `$FUSION_SOCKET`, else `$XDG_RUNTIME_DIR/fusion/fusiond.sock` where that is set,
//! else `~/.fusion/run/fusiond.sock`.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The environment variable that names the socket.
pub const SOCKET_VARIABLE: &str = "FUSION_SOCKET";

/// Bytes that a socket's path may have: `sun_path` is 104 bytes on macOS and 108 on Linux, with the closing zero. The
/// smaller one holds everywhere, so that a configuration can move.
pub const MAX_SOCKET_PATH_BYTES: usize = 103;

/// Why there is no usable socket path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The path is longer than a socket address holds.
    #[error(
        "the socket path '{path}' has {bytes} bytes, but a socket address holds {MAX_SOCKET_PATH_BYTES}: choose a shorter one with --socket or FUSION_SOCKET"
    )]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// The path isn't absolute: two processes would mean different sockets.
    #[error("the socket path '{path}' is not absolute: give a full path with --socket or FUSION_SOCKET")]
    Relative {
        /// The path.
        path: PathBuf,
    },
    /// Nobody says where the user's home is.
    #[error("neither FUSION_SOCKET nor HOME is set, so there is no place for the socket: set one of them")]
    NoHome,
}

/// A path that a socket address can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketPath(PathBuf);

impl SocketPath {
    /// Checks a path.
    ///
    /// # Errors
    /// [`EndpointError::TooLong`] and [`EndpointError::Relative`].
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, EndpointError> {
        let path = path.into();
        let bytes = path.as_os_str().as_bytes().len();
        if !path.is_absolute() {
            Err(EndpointError::Relative { path })
        } else if bytes > MAX_SOCKET_PATH_BYTES {
            Err(EndpointError::TooLong { path, bytes })
        } else {
            Ok(Self(path))
        }
    }

    /// The path that holds where none is given: from the environment, else the default.
    ///
    /// # Errors
    /// Every [`EndpointError`].
    pub fn from_environment() -> Result<Self, EndpointError> {
        Self::resolve(|name| env::var_os(name))
    }

    fn resolve<S: AsRef<OsStr>>(variable: impl Fn(&str) -> Option<S>) -> Result<Self, EndpointError> {
        let path = |name| {
            variable(name)
                .filter(|value| !value.as_ref().is_empty())
                .map(|value| PathBuf::from(value.as_ref()))
        };
        if let Some(socket) = path(SOCKET_VARIABLE) {
            return Self::new(socket);
        }
        if let Some(runtime) = path("XDG_RUNTIME_DIR").filter(|runtime| runtime.is_absolute()) {
            return Self::new(runtime.join("fusion/fusiond.sock"));
        }
        let home = path("HOME").ok_or(EndpointError::NoHome)?;
        Self::new(home.join(".fusion/run/fusiond.sock"))
    }

    /// The path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// The file that the daemon of this socket holds locked as long as it lives.
    pub fn lock_file(&self) -> PathBuf {
        self.0.with_extension("lock")
    }

    /// The file that says how often the daemon of this socket failed to start, and why: see [`crate::failures`].
    pub fn failures_file(&self) -> PathBuf {
        self.0.with_extension("failures")
    }
}

impl std::fmt::Display for SocketPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(variables: &[(&str, &str)]) -> Result<SocketPath, EndpointError> {
        SocketPath::resolve(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
        })
    }

    #[test]
    fn the_most_specific_place_wins() {
        let all = [("FUSION_SOCKET", "/s/x.sock"), ("XDG_RUNTIME_DIR", "/run/user/7"), ("HOME", "/home/a")];
        assert_eq!(resolve(&all).unwrap().as_path(), Path::new("/s/x.sock"));
        assert_eq!(resolve(&all[1..]).unwrap().as_path(), Path::new("/run/user/7/fusion/fusiond.sock"));
        assert_eq!(resolve(&all[2..]).unwrap().as_path(), Path::new("/home/a/.fusion/run/fusiond.sock"));
        assert_eq!(resolve(&[]).unwrap_err(), EndpointError::NoHome);
        assert_eq!(
            resolve(&[("FUSION_SOCKET", ""), ("HOME", "/h")]).unwrap().as_path().parent().unwrap(),
            Path::new("/h/.fusion/run")
        );
    }

    #[test]
    fn a_path_that_no_address_holds_is_refused_with_its_length() {
        let longest = format!("/{}", "a".repeat(MAX_SOCKET_PATH_BYTES - 1));
        assert!(SocketPath::new(&longest).is_ok());
        let error = SocketPath::new(format!("{longest}b")).unwrap_err();
        assert!(error.to_string().contains("104 bytes"), "{error}");
        assert!(matches!(SocketPath::new("run/x.sock").unwrap_err(), EndpointError::Relative { .. }));
    }
}
