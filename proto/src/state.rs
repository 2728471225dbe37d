//! Where the daemon keeps what outlives it: clients read one file of it.

use std::env;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;

/// The environment variable that names the state directory.
pub const STATE_VARIABLE: &str = "FUSION_STATE_DIR";

/// Why there is no state directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Nobody says where the user's home is.
    #[error("HOME is not set, so there is no place for the state: set it, or give --state-dir")]
    NoHome,
    /// The directory isn't absolute.
    #[error(
        "the state directory '{path}' is not absolute: give a full path with --state-dir or {STATE_VARIABLE}"
    )]
    Relative {
        /// The path.
        path: PathBuf,
    },
}

/// The state directory that is given, else that of the environment, else the system's place for it: `$XDG_STATE_HOME/fusion` or
/// `~/.local/state/fusion` on Linux, `~/Library/Application Support/fusion` on macOS.
///
/// # Errors
/// Every [`StateError`].
pub fn state_directory(given: Option<PathBuf>) -> Result<PathBuf, StateError> {
    let named =
        given.or_else(|| env::var_os(STATE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from));
    let path = match named {
        Some(path) => path,
        None => {
            let base = etcetera::base_strategy::choose_native_strategy().map_err(|_| StateError::NoHome)?;
            base.state_dir().unwrap_or_else(|| base.data_dir()).join("fusion")
        }
    };
    if path.is_absolute() { Ok(path) } else { Err(StateError::Relative { path }) }
}

/// The snapshot file: what the daemon last told its clients, for those that start while it isn't there.
pub fn snapshot_file(state_directory: &Path) -> PathBuf {
    state_directory.join("snapshot.fsnp")
}
