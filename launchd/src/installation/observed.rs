//! What is there before a run.

use crate::error::ServiceError;
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
    /// The same of the socket of an earlier installation, where that was another one.
    pub earlier_daemon: Option<u32>,
}

impl Observed {
    /// Looks; changes nothing and starts nothing.
    ///
    /// # Errors
    /// [`ServiceError::Record`] and those of the manager's program.
    pub fn look(places: &Places, manager: &Manager) -> Result<Self, ServiceError> {
        let record = Record::read(&places.record())?;
        let earlier = record.as_ref().and_then(|record| record.other_socket(places));
        Ok(Self {
            manager: manager.state()?,
            daemon: running::holder(&places.socket),
            earlier_daemon: earlier.and_then(|socket| running::holder(&socket)),
            record,
        })
    }

    /// Whether a daemon runs that the manager didn't start.
    pub fn daemon_of_a_terminal(&self) -> bool {
        self.of_a_terminal(self.daemon)
    }

    /// Whether such a one runs on the socket of an earlier installation.
    pub(super) fn earlier_daemon_of_a_terminal(&self) -> bool {
        self.of_a_terminal(self.earlier_daemon)
    }

    fn of_a_terminal(&self, daemon: Option<u32>) -> bool {
        match (daemon, self.manager) {
            (Some(lock), ManagerState::Running { pid: Some(pid) }) => lock != pid,
            (None, _) | (Some(_), ManagerState::Running { pid: None }) => false,
            (Some(_), _) => true,
        }
    }
}
