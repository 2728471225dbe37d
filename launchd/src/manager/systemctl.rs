//! systemd's manager of the user, through `systemctl --user`.

use std::path::PathBuf;

use super::ManagerState;
use crate::Start;
use crate::checkpoint::Checkpoints;
use crate::error::ServiceError;
use crate::tool::{Ended, Tool};

const SOCKET: &str = "fusiond.socket";
const SERVICE: &str = "fusiond.service";

/// What an exit code of `systemctl` means: systemctl(1), "Exit status".
fn meaning(code: i32) -> &'static str {
    match code {
        1 => {
            "a failure; without a bus, there is no manager of this user here: log in as this user instead of with su or sudo, or let it run without a login by 'loginctl enable-linger'"
        }
        3 => "the unit isn't active",
        4 | 5 => "systemd doesn't know the unit: 'fusionctl install' writes it",
        _ => "which systemctl(1) doesn't explain",
    }
}

/// systemd of this user.
#[derive(Debug, Clone)]
pub struct Systemctl {
    tool: Tool,
}

impl Systemctl {
    /// Speaks through `program`.
    pub fn new(program: PathBuf) -> Self {
        Self { tool: Tool::new(program, meaning) }
    }

    fn user(&self, arguments: &[&str]) -> Result<Ended, ServiceError> {
        self.tool.expect(&[&["--user"], arguments].concat(), &[0])
    }

    pub(super) fn state(&self) -> Result<ManagerState, ServiceError> {
        let properties = "--property=Id,ActiveState,MainPID,ExecMainStatus";
        let ended = self.user(&["show", properties, SERVICE, SOCKET])?;
        Ok(state(&ended.stdout))
    }

    /// Reads the units, and enables them; what runs of an older definition goes on until it ends by itself, except where its socket changes.
    pub(super) fn register(&self, start: Start, checkpoints: &Checkpoints) -> Result<(), ServiceError> {
        self.stop()?;
        checkpoints.pass();
        self.user(&["daemon-reload"])?;
        match start {
            Start::AtLogin => self.user(&["enable", "--now", SOCKET, SERVICE])?,
            Start::OnDemand => {
                self.user(&["disable", SERVICE])?;
                checkpoints.pass();
                self.user(&["enable", "--now", SOCKET])?
            }
        };
        checkpoints.pass();
        Ok(())
    }

    pub(super) fn unregister(&self, checkpoints: &Checkpoints) -> Result<(), ServiceError> {
        self.stop()?;
        checkpoints.pass();
        self.user(&["daemon-reload"])?;
        for unit in [SERVICE, SOCKET] {
            // A unit whose file is gone can't be disabled, and was before the file went.
            if !self.user(&["show", "--property=LoadState", unit])?.stdout.contains("not-found") {
                self.user(&["disable", unit])?;
            }
            checkpoints.pass();
        }
        Ok(())
    }

    pub(super) fn forget(&self) -> Result<(), ServiceError> {
        self.user(&["daemon-reload"])?;
        // A unit that isn't loaded can't be reset, and needn't.
        self.tool.run(&["--user", "reset-failed", SERVICE, SOCKET]).map(drop)
    }

    pub(super) fn start(&self) -> Result<(), ServiceError> {
        self.user(&["daemon-reload"])?;
        self.user(&["start", SOCKET, SERVICE]).map(drop)
    }

    /// The socket goes first, so that nobody starts the daemon again.
    pub(super) fn stop(&self) -> Result<(), ServiceError> {
        const NOT_LOADED: i32 = 5;
        self.tool.expect(&["--user", "stop", SOCKET, SERVICE], &[0, NOT_LOADED]).map(drop)
    }
}

/// What `show` says of the two units: blocks of lines with a blank one between.
fn state(text: &str) -> ManagerState {
    let block = |unit: &str| {
        let id = format!("Id={unit}");
        text.split("\n\n").find(|block| block.lines().any(|line| line == id)).unwrap_or_default()
    };
    let value =
        |unit, name: &str| block(unit).lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let pid = value(SERVICE, "MainPID").and_then(|pid| pid.parse().ok()).filter(|pid| *pid != 0);
    match (value(SERVICE, "ActiveState"), value(SOCKET, "ActiveState")) {
        (Some("active" | "reloading" | "deactivating"), _) => ManagerState::Running { pid },
        (Some("activating"), _) if pid.is_some() => ManagerState::Running { pid },
        (Some("failed"), Some("active" | "activating")) => {
            ManagerState::Failed { code: value(SERVICE, "ExecMainStatus").and_then(|code| code.parse().ok()) }
        }
        (_, Some("active" | "activating")) => ManagerState::Waiting,
        _ => ManagerState::NotLoaded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_units_tell_the_state() {
        let shown = |service: &str, pid: u32, socket: &str| {
            state(&format!(
                "MainPID={pid}\nExecMainStatus=203\nId=fusiond.service\nActiveState={service}\n\nId=fusiond.socket\nActiveState={socket}\n"
            ))
        };
        assert_eq!(shown("active", 42, "active"), ManagerState::Running { pid: Some(42) });
        assert_eq!(shown("inactive", 0, "active"), ManagerState::Waiting);
        assert_eq!(shown("activating", 0, "active"), ManagerState::Waiting, "it waits to be started again");
        assert_eq!(shown("inactive", 0, "inactive"), ManagerState::NotLoaded);
        assert_eq!(shown("failed", 0, "active"), ManagerState::Failed { code: Some(203) });
        assert_eq!(shown("failed", 0, "failed"), ManagerState::NotLoaded);
        assert_eq!(state(""), ManagerState::NotLoaded);
    }
}
