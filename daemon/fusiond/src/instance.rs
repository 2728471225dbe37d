//! One daemon a user: the lock is the ownership, the socket only its address.
//!
//! A socket file left behind is no sign of life, and a slow answer no sign of death. So the lock file is locked first; only its holder
//! may remove a socket, and only one that refuses connections. An address that accepts but never answers belongs to a living process and
//! stays.

use std::fs::{File, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt;
use fusion_proto::endpoint::SocketPath;

/// How often the lock is tried for.
const LOCK_TRIES: u32 = 5;
/// Between two tries: a look takes some 10 us.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Why this process can't be the daemon.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// Another daemon has the lock.
    #[error("fusiond is already running{}: look at it with 'fusionctl status', end it with 'fusionctl stop'", .pid.map(|pid| format!(" as process {pid}")).unwrap_or_default())]
    Running {
        /// Its process, if it wrote its number.
        pid: Option<u32>,
    },
    /// The socket is answered by a process that doesn't hold the lock.
    #[error("something else listens on '{socket}': choose another socket with --socket, or end that process")]
    SocketTaken {
        /// The socket.
        socket: PathBuf,
    },
    /// What lies at the socket's path is no socket.
    #[error("'{path}' exists and is no socket: move it away, or choose another path with --socket")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The socket's directory belongs to another user.
    #[error(
        "the directory '{path}' belongs to user {owner}, not to you: choose another socket with --socket"
    )]
    ForeignDirectory {
        /// The directory.
        path: PathBuf,
        /// Its owner's number.
        owner: u32,
    },
    /// A file or directory can't be made.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The lock and the listening socket; both end with this value.
#[derive(Debug)]
pub struct Instance {
    lock: File,
    /// Our own socket; `None` where the manager's is used, which stays when we go.
    bound: Option<Bound>,
}

/// A socket file of ours.
#[derive(Debug)]
struct Bound {
    path: PathBuf,
    /// Device and inode, so that nobody else's is removed.
    identity: (u64, u64),
}

impl Instance {
    /// Becomes the daemon of this socket: on the `inherited` one that its manager holds, else on one of its own.
    ///
    /// The socket's directory is made if need be, and readable by its owner alone: its mode is the first line of defence, the check of each
    /// peer's user the second.
    ///
    /// # Errors
    /// Every [`InstanceError`].
    pub fn acquire(
        socket: &SocketPath,
        inherited: Option<UnixListener>,
    ) -> Result<(Self, UnixListener), InstanceError> {
        let path = socket.as_path();
        let directory = path.parent().unwrap_or(Path::new("/"));
        prepare_directory(directory)?;
        let lock = lock(&socket.lock_file())?;
        let (bound, listener) = match inherited {
            Some(listener) => (None, listener),
            None => Bound::bind(path).map(|(bound, listener)| (Some(bound), listener))?,
        };
        Ok((Self { lock, bound }, listener))
    }
}

impl Bound {
    fn bind(path: &Path) -> Result<(Self, UnixListener), InstanceError> {
        remove_stale_socket(path)?;
        let listener = UnixListener::bind(path).map_err(|error| {
            io::Error::new(error.kind(), format!("can't listen on '{}': {error}", path.display()))
        })?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let metadata = fs::symlink_metadata(path)?;
        Ok((Self { path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) }, listener))
    }

    fn remove(&self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("the socket could not be removed: {error}");
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(bound) = &self.bound {
            bound.remove();
        }
        // The number is taken back before the lock goes, so that no message ever names a dead process.
        if let Err(error) = self.lock.set_len(0) {
            tracing::warn!("the lock file could not be emptied: {error}");
        }
    }
}

fn prepare_directory(directory: &Path) -> Result<(), InstanceError> {
    let existed = directory.exists();
    fs::create_dir_all(directory)?;
    if !existed {
        fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    }
    let metadata = fs::metadata(directory)?;
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own {
        return Err(InstanceError::ForeignDirectory { path: directory.to_owned(), owner: metadata.uid() });
    }
    if metadata.mode() & 0o077 != 0 {
        tracing::warn!(
            "the socket's directory '{}' is open to other users (mode {:o}); make it private with 'chmod 700'",
            directory.display(),
            metadata.mode() & 0o777
        );
    }
    Ok(())
}

fn lock(path: &Path) -> Result<File, InstanceError> {
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?
        .into_file();
    match try_lock(&file) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            return Err(InstanceError::Running { pid: text.trim().parse().ok() });
        }
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())?;
    Ok(file)
}

/// Whoever only looks whether a daemon lives holds the lock for a moment, too.
fn try_lock(file: &File) -> Result<(), TryLockError> {
    for _ in 1..LOCK_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_INTERVAL),
            other => return other,
        }
    }
    file.try_lock()
}

/// Removes a socket that nobody listens on. The lock must be held.
fn remove_stale_socket(path: &Path) -> Result<(), InstanceError> {
    use std::os::unix::fs::FileTypeExt;

    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if !metadata.file_type().is_socket() {
        return Err(InstanceError::NotASocket { path: path.to_owned() });
    }
    match connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(fs::remove_file(path)?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        // Accepted, or its queue is full: somebody lives there.
        _ => Err(InstanceError::SocketTaken { socket: path.to_owned() }),
    }
}

/// Connects without waiting: where many wait already, a plain connect would wait with them.
fn connect(path: &Path) -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};

    let probe = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::ioctl_fionbio(&probe, true)?;
    Ok(connect(&probe, &SocketAddrUnix::new(path)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(directory: &tempfile::TempDir) -> SocketPath {
        SocketPath::new(directory.path().join("run/x.sock")).unwrap()
    }

    #[test]
    fn the_directory_is_private_and_the_second_daemon_is_told_who_runs() {
        let directory = tempfile::tempdir().unwrap();
        let socket = socket(&directory);
        let (instance, _listener) = Instance::acquire(&socket, None).unwrap();
        let mode = std::fs::metadata(socket.as_path().parent().unwrap()).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o700);
        let error = Instance::acquire(&socket, None).unwrap_err();
        assert!(matches!(error, InstanceError::Running { pid: Some(pid) } if pid == std::process::id()));
        drop(instance);
        assert!(!socket.as_path().exists());
        Instance::acquire(&socket, None).unwrap();
    }

    #[test]
    fn a_socket_left_behind_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let socket = socket(&directory);
        std::fs::create_dir_all(socket.as_path().parent().unwrap()).unwrap();
        drop(UnixListener::bind(socket.as_path()).unwrap());
        assert!(socket.as_path().exists());
        Instance::acquire(&socket, None).unwrap();
    }

    #[test]
    fn a_living_socket_and_a_plain_file_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let socket = socket(&directory);
        std::fs::create_dir_all(socket.as_path().parent().unwrap()).unwrap();
        let other = UnixListener::bind(socket.as_path()).unwrap();
        assert!(matches!(Instance::acquire(&socket, None).unwrap_err(), InstanceError::SocketTaken { .. }));
        drop(other);
        std::fs::remove_file(socket.as_path()).unwrap();
        std::fs::write(socket.as_path(), "precious").unwrap();
        assert!(matches!(Instance::acquire(&socket, None).unwrap_err(), InstanceError::NotASocket { .. }));
        assert_eq!(std::fs::read_to_string(socket.as_path()).unwrap(), "precious");
    }

    #[test]
    fn a_living_socket_where_too_many_wait_is_left_alone_at_once() {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket as make};

        let directory = tempfile::tempdir().unwrap();
        let socket = socket(&directory);
        std::fs::create_dir_all(socket.as_path().parent().unwrap()).unwrap();
        let hung = make(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&hung, &SocketAddrUnix::new(socket.as_path()).unwrap()).unwrap();
        listen(&hung, 0).unwrap();
        let waiting: Vec<_> = std::iter::from_fn(|| {
            let waiting = make(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
            rustix::io::ioctl_fionbio(&waiting, true).unwrap();
            let address = SocketAddrUnix::new(socket.as_path()).unwrap();
            rustix::net::connect(&waiting, &address).is_ok().then_some(waiting)
        })
        .collect();
        assert!(!waiting.is_empty());
        assert!(matches!(Instance::acquire(&socket, None).unwrap_err(), InstanceError::SocketTaken { .. }));
        assert!(socket.as_path().exists());
    }

    #[test]
    fn a_managers_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        let socket = socket(&directory);
        std::fs::create_dir_all(socket.as_path().parent().unwrap()).unwrap();
        let managers = UnixListener::bind(socket.as_path()).unwrap();
        let (instance, _listener) = Instance::acquire(&socket, Some(managers.try_clone().unwrap())).unwrap();
        assert!(matches!(Instance::acquire(&socket, None).unwrap_err(), InstanceError::Running { .. }));
        drop(instance);
        assert!(socket.as_path().exists());
    }
}
