//! What is there before a run.

use super::Installation;
use crate::error::ServiceError;
use crate::files;
use crate::manager::{Manager, ManagerState};
use crate::places::Places;
use crate::{Record, running};

/// What is there before a run.
#[derive(Debug, Clone)]
pub struct Observed {
    /// What an earlier run wrote down.
    pub record: Option<Record>,
    /// What the manager does.
    pub manager: ManagerState,
    /// The process of the daemon that holds the lock of the socket.
    pub daemon: Option<u32>,
}

impl Observed {
    /// Looks; changes nothing and starts nothing.
    ///
    /// # Errors
    /// [`ServiceError::Record`] and those of the manager's program.
    pub fn look(places: &Places, manager: &Manager) -> Result<Self, ServiceError> {
        let record = Record::read(&places.record())?;
        Ok(Self { record, manager: manager.state()?, daemon: running::holder(&places.socket) })
    }

    /// Whether a daemon runs that the manager didn't start.
    pub(super) fn daemon_of_a_terminal(&self) -> bool {
        match (self.daemon, self.manager) {
            (Some(lock), ManagerState::Running { pid: Some(pid) }) => lock != pid,
            (None, _) | (Some(_), ManagerState::Running { pid: None }) => false,
            (Some(_), _) => true,
        }
    }
}

impl Installation {
    /// The sources that aren't in place as they are; none where the programs are run from where they lie.
    pub(super) fn outdated(&self) -> Result<Vec<(std::path::PathBuf, std::path::PathBuf)>, ServiceError> {
        let mut outdated = Vec::new();
        for from in &self.sources {
            let to = self.places.programs.join(from.file_name().unwrap_or_default());
            if !self.in_place(from) && !files::same(from, &to)? {
                outdated.push((from.clone(), to));
            }
        }
        Ok(outdated)
    }

    /// Whether a source is run from where it lies, be it through a link: Homebrew's directory of programs has links to them.
    pub(super) fn in_place(&self, from: &std::path::Path) -> bool {
        let to = self.places.programs.join(from.file_name().unwrap_or_default());
        to.canonicalize().is_ok_and(|to| from.canonicalize().is_ok_and(|from| from == to))
    }
}
