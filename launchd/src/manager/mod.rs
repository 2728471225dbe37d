//! launchd and systemd: what starts the daemon, keeps its socket, and starts it again when it fails.

mod launchctl;
mod systemctl;

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::checkpoint::Checkpoints;
use crate::definition::Definition;
use crate::error::ServiceError;
use crate::{LABEL, Start};

pub use launchctl::{Launchctl, Patience};
pub use systemctl::Systemctl;

/// The environment variable that names another manager than this system's, for tests: `launchd` or `systemd`, and the program to speak with it, as in
/// `launchd:/path/to/launchctl`.
pub const MANAGER_VARIABLE: &str = "FUSION_SERVICE_MANAGER";

/// Which manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManagerKind {
    /// macOS.
    Launchd,
    /// Linux: systemd's manager of the user.
    Systemd,
}

impl ManagerKind {
    /// This system's.
    pub const NATIVE: Self = if cfg!(target_os = "macos") { Self::Launchd } else { Self::Systemd };

    /// The name of what it keeps.
    pub fn service(self) -> &'static str {
        match self {
            Self::Launchd => LABEL,
            Self::Systemd => "fusiond.service",
        }
    }
}

impl std::fmt::Display for ManagerKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Launchd => "launchd",
            Self::Systemd => "systemd",
        })
    }
}

/// What the manager does with the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManagerState {
    /// It doesn't know it: never installed, or stopped until the next login.
    NotLoaded,
    /// It holds the socket; the daemon starts with the next connection.
    Waiting,
    /// The same, but its last run failed.
    Failed {
        /// How that ended, where the manager tells: the exit code, or the signal under systemd.
        code: Option<i32>,
    },
    /// The daemon runs.
    Running {
        /// Its process.
        pid: Option<u32>,
    },
}

/// A manager.
#[derive(Debug, Clone)]
pub enum Manager {
    /// Through `launchctl`.
    Launchd(Launchctl),
    /// Through `systemctl --user`.
    Systemd(Systemctl),
}

/// What [`MANAGER_VARIABLE`] says is no manager.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' in {MANAGER_VARIABLE} is no manager: write launchd or systemd, and maybe its program after a colon"
)]
pub struct UnknownManager(String);

impl FromStr for Manager {
    type Err = UnknownManager;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, program) =
            text.split_once(':').map_or((text, None), |(kind, program)| (kind, Some(program)));
        let program = |usual: &str| program.map_or_else(|| PathBuf::from(usual), PathBuf::from);
        match kind {
            "launchd" => Ok(Self::Launchd(Launchctl::new(program("launchctl"), Patience::default()))),
            "systemd" => Ok(Self::Systemd(Systemctl::new(program("systemctl")))),
            _ => Err(UnknownManager(text.to_owned())),
        }
    }
}

impl Manager {
    /// The one that [`MANAGER_VARIABLE`] names, else this system's.
    ///
    /// # Errors
    /// [`UnknownManager`].
    pub fn from_environment() -> Result<Self, UnknownManager> {
        match std::env::var(MANAGER_VARIABLE) {
            Ok(text) if !text.is_empty() => text.parse(),
            _ => ManagerKind::NATIVE.to_string().parse(),
        }
    }

    /// Which one it is.
    pub fn kind(&self) -> ManagerKind {
        match self {
            Self::Launchd(_) => ManagerKind::Launchd,
            Self::Systemd(_) => ManagerKind::Systemd,
        }
    }

    /// What it does with the daemon. Asking changes nothing.
    ///
    /// # Errors
    /// [`ServiceError::CannotRun`] and [`ServiceError::Failed`].
    pub fn state(&self) -> Result<ManagerState, ServiceError> {
        match self {
            Self::Launchd(launchctl) => launchctl.state(),
            Self::Systemd(systemctl) => systemctl.state(),
        }
    }

    /// Makes it hold these definitions and no older ones: for now, and at each login.
    ///
    /// # Errors
    /// Those of its program.
    pub fn register(
        &self,
        definitions: &[Definition],
        start: Start,
        checkpoints: &Checkpoints,
    ) -> Result<(), ServiceError> {
        match self {
            Self::Launchd(launchctl) => {
                definitions.iter().try_for_each(|file| launchctl.register(&file.path, checkpoints))
            }
            Self::Systemd(systemctl) => systemctl.register(start, checkpoints),
        }
    }

    /// Makes it forget the daemon and end it: for now, and at each login. Fine if it doesn't know it.
    ///
    /// # Errors
    /// Those of its program.
    pub fn unregister(&self, checkpoints: &Checkpoints) -> Result<(), ServiceError> {
        match self {
            Self::Launchd(launchctl) => launchctl.unload(checkpoints),
            Self::Systemd(systemctl) => systemctl.unregister(checkpoints),
        }
    }

    /// Lets it see that definitions are gone.
    ///
    /// # Errors
    /// Those of its program.
    pub fn forget(&self) -> Result<(), ServiceError> {
        match self {
            // It went by its own copy, which it dropped.
            Self::Launchd(_) => Ok(()),
            Self::Systemd(systemctl) => systemctl.forget(),
        }
    }

    /// Runs the installed daemon now, and loads its definitions before if need be. Fine if it runs.
    ///
    /// # Errors
    /// Those of its program.
    pub fn start(&self, definitions: &[Definition], checkpoints: &Checkpoints) -> Result<(), ServiceError> {
        match self {
            Self::Launchd(launchctl) => {
                if launchctl.state()? == ManagerState::NotLoaded {
                    definitions.iter().try_for_each(|file| launchctl.register(&file.path, checkpoints))?;
                }
                launchctl.kickstart()
            }
            Self::Systemd(systemctl) => systemctl.start(),
        }
    }

    /// Ends the daemon, and lets go of its socket, so that no client starts it again: until [`Self::start`], or the next login. Fine if it
    /// doesn't run.
    ///
    /// # Errors
    /// Those of its program.
    pub fn stop(&self, checkpoints: &Checkpoints) -> Result<(), ServiceError> {
        match self {
            Self::Launchd(launchctl) => launchctl.unload(checkpoints),
            Self::Systemd(systemctl) => systemctl.stop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_named_with_or_without_its_program() {
        assert_eq!("launchd".parse::<Manager>().unwrap().kind(), ManagerKind::Launchd);
        assert_eq!("systemd:/opt/x/systemctl".parse::<Manager>().unwrap().kind(), ManagerKind::Systemd);
        assert!("openrc".parse::<Manager>().unwrap_err().to_string().contains("openrc"));
    }
}
