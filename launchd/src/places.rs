//! Where everything of an installation lies.

use std::path::{Path, PathBuf};

use fusion_proto::endpoint::SocketPath;

use crate::LABEL;
use crate::files::unfinished;
use crate::manager::ManagerKind;

/// The programs, in the order in which they are put in place: the daemon comes last, since a running one looks at its own file only, and starts again once
/// that was replaced.
pub const PROGRAMS: [&str; 3] = [WORKER, "fusionctl", DAEMON];
/// The worker's program.
pub(crate) const WORKER: &str = "fusion-worker";
/// The daemon's program.
pub const DAEMON: &str = "fusiond";
/// MLX's Metal kernels, which MLX looks for beside the program that loads it. Not everywhere: Linux has none.
pub const KERNELS: &str = "mlx.metallib";

/// Where everything of an installation lies. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// What is ours alone in the user's home: `~/.fusion`.
    pub own: PathBuf,
    /// Where the programs are run from.
    pub programs: PathBuf,
    /// Where the manager looks for definitions.
    pub definitions: PathBuf,
    /// Where the daemon is asked.
    pub socket: SocketPath,
    /// Calibrations, budget, logs.
    pub state: PathBuf,
    /// The user's own files.
    pub configuration: PathBuf,
}

impl Places {
    /// The file that says what was installed, and what of it is ours to remove.
    pub fn record(&self) -> PathBuf {
        self.own.join("installation.json")
    }

    /// Manual and completions, laid out as below `/usr/share`: `man` finds them for whoever has `~/.fusion/bin` in PATH.
    pub fn shared(&self) -> PathBuf {
        self.own.join("share")
    }

    /// The daemon's program.
    pub fn daemon(&self) -> PathBuf {
        self.programs.join(DAEMON)
    }

    /// The daemon's logs.
    pub fn logs(&self) -> PathBuf {
        fusion_proto::state::log_directory(&self.state)
    }

    /// The socket's directory.
    pub fn socket_directory(&self) -> &Path {
        self.socket.as_path().parent().unwrap_or(Path::new("/"))
    }

    /// Every directory that must be there before the daemon starts, whatever is installed.
    pub(crate) fn directories(&self) -> [PathBuf; 5] {
        let socket_directory = self.socket_directory().to_owned();
        [self.own.clone(), self.programs.clone(), self.definitions.clone(), socket_directory, self.logs()]
    }
}

/// Where `kind` looks for the definitions of a user: below `home`, and below `configuration_home` (`$XDG_CONFIG_HOME`, `~/.config`) for systemd.
pub fn definitions_directory(kind: ManagerKind, home: &Path, configuration_home: &Path) -> PathBuf {
    match kind {
        ManagerKind::Launchd => home.join("Library/LaunchAgents"),
        ManagerKind::Systemd => configuration_home.join("systemd/user"),
    }
}

/// What a daemon leaves where it is asked: the socket, the lock, and how often it failed to start.
pub(crate) fn socket_files(socket: &SocketPath) -> [PathBuf; 4] {
    let failures = socket.failures_file();
    [socket.as_path().to_owned(), socket.lock_file(), unfinished(&failures), failures]
}

/// The names of the definitions that `kind` is given.
pub(crate) fn definition_names(kind: ManagerKind) -> Vec<String> {
    match kind {
        ManagerKind::Launchd => vec![format!("{LABEL}.plist")],
        ManagerKind::Systemd => vec!["fusiond.socket".to_owned(), "fusiond.service".to_owned()],
    }
}
