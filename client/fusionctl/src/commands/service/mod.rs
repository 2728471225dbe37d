//! The daemon as part of the machine: what its manager knows of it, and the commands that go through the manager.
//!
//! Where the manager holds the socket, a connection starts the daemon. So whoever only looks asks the manager first.

mod install;
mod lifecycle;
mod rehearsal;
mod uninstall;

use std::env;
use std::path::PathBuf;

use fusion_client::SocketPath;
use fusion_service::installation::{self, Step, is_installed};
use fusion_service::manager::{Manager, ManagerKind, ManagerState};
use fusion_service::places::{Places, definitions_directory};
use fusion_service::{Record, ServiceError, Start, running};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::service::Managed;
use crate::output::Output;

pub(super) use install::run as install;
pub(super) use lifecycle::{restart, start, stop};
pub(super) use uninstall::run as uninstall;

/// The installed daemon.
#[derive(Debug)]
pub(super) struct Service {
    places: Places,
    manager: Manager,
    record: Option<Record>,
}

/// Where a new installation goes, and whom it is given to.
fn usual(socket: SocketPath) -> Result<(Places, Manager), Failure> {
    let home = home().ok_or_else(|| {
        Failure::ended(Exit::Config, "HOME is not set, so there is no place for an installation: set it")
    })?;
    let manager = Manager::from_environment().map_err(|error| Failure::Usage(error.to_string()))?;
    let configuration_home =
        env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let configuration_home = configuration_home.unwrap_or_else(|| home.join(".config"));
    let own = home.join(".fusion");
    let places = Places {
        programs: own.join("bin"),
        own,
        definitions: definitions_directory(manager.kind(), &home, &configuration_home),
        socket,
        state: fusion_client::state::state_directory(None)?,
        configuration: fusion_client::state::configuration_directory(None, None)?,
    };
    Ok((places, manager))
}

fn home() -> Option<PathBuf> {
    env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
}

/// The socket of the installed daemon, for whoever names none: over ssh, say, the environment names another one than on the screen.
pub(super) fn recorded_socket() -> Option<SocketPath> {
    let record = Record::read(&home()?.join(".fusion/installation.json")).ok()??;
    SocketPath::new(record.socket).ok()
}

impl Service {
    /// The installed daemon, if it is the one that listens on `socket`.
    pub(super) fn of(socket: &SocketPath) -> Result<Option<Self>, Failure> {
        if home().is_none() {
            return Ok(None);
        }
        let (places, manager) = usual(socket.clone())?;
        let (places, record) = installation::recorded(places)?;
        let service = Self { places, manager, record };
        let ours = service.places.socket == *socket && is_installed(&service.places, &service.manager);
        Ok(ours.then_some(service))
    }

    /// Whether a daemon lives that answers without being started by the question; else why not.
    ///
    /// # Errors
    /// "Not running", and how it starts.
    pub(super) fn awake(&self) -> Result<Managed, Failure> {
        let holder = running::holder(&self.places.socket);
        let state = match self.manager.state() {
            Ok(state) => state,
            // Nobody tells, but the lock does.
            Err(_) if holder.is_some() => ManagerState::Running { pid: holder },
            Err(error) => return Err(self.asleep(&format!("its manager can't be asked: {error}"))),
        };
        match state {
            ManagerState::Running { .. } => Ok(self.managed(state)),
            // The manager let go of the socket: whoever listens now was started by hand.
            ManagerState::NotLoaded if holder.is_some() => Ok(self.managed(state)),
            ManagerState::NotLoaded => Err(self.asleep("it was stopped: 'fusionctl start' starts it")),
            ManagerState::Failed { code } => {
                let how = code.map_or_else(String::new, |code| format!(", with {code}"));
                Err(self.asleep(&format!("its last run failed{how}; 'fusionctl logs' says more")))
            }
            ManagerState::Waiting => Err(self.asleep(&format!(
                "{} starts it with the first client; 'fusionctl start' starts it now",
                self.kind()
            ))),
        }
    }

    fn asleep(&self, why: &str) -> Failure {
        let failed = match fusion_client::failures::FailedStarts::read(&self.places.socket) {
            Some(failed) => format!("; it failed to start ({} in a row): {}", failed.count, failed.reason),
            None => String::new(),
        };
        Failure::ended(Exit::NotRunning, format!("fusiond is not running: {why}{failed}"))
    }

    fn managed(&self, state: ManagerState) -> Managed {
        Managed::new(self.kind(), self.record.as_ref().map(|record| record.start), state)
    }

    fn kind(&self) -> ManagerKind {
        self.manager.kind()
    }

    fn start_when(&self) -> Start {
        self.record.as_ref().map_or(Start::OnDemand, |record| record.start)
    }
}

/// Looks at the manager before anybody connects to `socket`: `None` where none has to do with it.
pub(super) fn awake(socket: &SocketPath) -> Result<Option<Managed>, Failure> {
    Service::of(socket)?.map(|service| service.awake()).transpose()
}

/// What is done now, for a person who waits. Directories that go with their content are no news.
fn tell(step: &Step, output: Output) {
    if !matches!(step, Step::RemoveEmptyDirectory(_) | Step::KeepRecord { .. }) {
        output.tell(&step.to_string());
    }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        Self::Service(error)
    }
}

/// Where the daemon of `socket` keeps its state, if it is installed.
pub(super) fn state_directory_of(socket: &SocketPath) -> Result<Option<PathBuf>, Failure> {
    Ok(Service::of(socket)?.map(|service| service.places.state))
}
