//! What the daemon is told: where its socket, state and worker are, and its limits.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fusion_proto::endpoint::{EndpointError, SocketPath};
use fusion_proto::state::{StateError, configuration_directory, log_directory, state_directory};

use crate::machine::{MachineChoice, MachineChoiceError};
use crate::sensors::ScriptError;
use crate::sensors::choice::{SensorChoice, SensorChoiceError};

/// The environment variable that names the worker program.
pub const WORKER_VARIABLE: &str = "FUSION_WORKER";
/// The file name of the worker program, next to the daemon's own.
const WORKER_NAME: &str = "fusion-worker";

/// Why the daemon doesn't know where it lives.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The socket path can't be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// No machine has that name.
    #[error(transparent)]
    Machine(#[from] MachineChoiceError),
    /// There are no such sensors.
    #[error(transparent)]
    Sensors(#[from] SensorChoiceError),
    /// The sensors' script can't be used.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// There is no state directory.
    #[error(transparent)]
    State(#[from] StateError),
}

/// How to start a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSettings {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, opaque to the daemon.
    pub arguments: Vec<OsString>,
    /// Variables beside the daemon's own.
    pub environment: BTreeMap<String, String>,
    /// How long a worker may take to say hello: it loads MLX.
    pub start_limit: Duration,
    /// How long one answer may take before the worker is ended.
    pub answer_limit: Duration,
}

/// Everything the daemon is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it listens.
    pub socket: SocketPath,
    /// Where it keeps its state.
    pub state_directory: PathBuf,
    /// Where the user's configuration is.
    pub configuration_directory: PathBuf,
    /// Whose calls it times.
    pub machine: MachineChoice,
    /// What tells the state of the machine; `None` for what fits it.
    pub sensors: Option<SensorChoice>,
    /// The file that the one measuring daemon of this machine locks; `None` where nothing is measured for real.
    pub measuring_lock: Option<PathBuf>,
    /// How it starts a worker.
    pub worker: WorkerSettings,
    /// Whether a manager starts it again: then nobody sees its standard error.
    pub supervised: bool,
    /// How long open calls may take to end once the daemon drains.
    pub drain_limit: Duration,
}

impl Settings {
    /// Default of [`WorkerSettings::start_limit`]: MLX loads in about 0.1 s; Metal may compile kernels on first use.
    pub const START_LIMIT: Duration = Duration::from_secs(30);
    /// Default of [`WorkerSettings::answer_limit`]: the longest recorded call, 8192 rows on an M1, took 2.7 s.
    pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);
    /// Default of [`Settings::drain_limit`]: launchd and systemd kill after 5 s and more.
    pub const DRAIN_LIMIT: Duration = Duration::from_secs(3);

    /// Fills in what isn't given.
    ///
    /// # Errors
    /// Every [`SettingsError`].
    pub fn new(
        socket: Option<PathBuf>,
        state_dir: Option<PathBuf>,
        config_dir: Option<PathBuf>,
        worker: Option<PathBuf>,
        worker_arguments: Vec<OsString>,
    ) -> Result<Self, SettingsError> {
        Ok(Self {
            socket: socket.map_or_else(SocketPath::from_environment, SocketPath::new)?,
            configuration_directory: configuration_directory(config_dir, state_dir.as_deref())?,
            state_directory: state_directory(state_dir)?,
            machine: MachineChoice::default(),
            measuring_lock: Some(crate::recalibration::default_measuring_lock()),
            sensors: None,
            worker: WorkerSettings {
                program: worker.unwrap_or_else(default_worker),
                arguments: worker_arguments,
                environment: BTreeMap::new(),
                start_limit: Self::START_LIMIT,
                answer_limit: Self::ANSWER_LIMIT,
            },
            supervised: false,
            drain_limit: Self::DRAIN_LIMIT,
        })
    }

    /// Where the logs are written.
    pub fn log_directory(&self) -> PathBuf {
        log_directory(&self.state_directory)
    }
}

/// The worker beside this program, where an installation puts it.
fn default_worker() -> PathBuf {
    std::env::current_exe()
        .ok()
        .as_deref()
        .and_then(Path::parent)
        .map_or_else(|| PathBuf::from(WORKER_NAME), |directory| directory.join(WORKER_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_taken_and_must_be_absolute() {
        let settings = Settings::new(
            Some("/tmp/x.sock".into()),
            Some("/tmp/state".into()),
            None,
            Some("/opt/w".into()),
            vec!["--pair".into()],
        )
        .unwrap();
        assert_eq!(settings.log_directory(), Path::new("/tmp/state/logs"));
        assert_eq!(settings.configuration_directory, Path::new("/tmp/state/config"));
        assert_eq!(settings.worker.program, Path::new("/opt/w"));
        let relative =
            Settings::new(Some("/tmp/x.sock".into()), Some("state".into()), None, None, Vec::new());
        assert!(matches!(relative, Err(SettingsError::State(StateError::Relative { .. }))));
    }
}
