//! Where the daemon keeps what outlives it: clients read one file of it.

use std::env;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;

/// The environment variable that names the state directory.
pub const STATE_VARIABLE: &str = "FUSION_STATE_DIR";
/// The environment variable that names the configuration directory.
pub const CONFIGURATION_VARIABLE: &str = "FUSION_CONFIG_DIR";

/// Why there is no state directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Nobody says where the user's home is.
    #[error("HOME is not set, so there is no place for the state: set it, or give --state-dir")]
    NoHome,
    /// A directory isn't absolute.
    #[error("the directory '{path}' is not absolute: give full paths with --state-dir and --config-dir")]
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

/// The configuration directory that is given, else that of the environment; else, where the state directory is named, `config` in it, so that a
/// daemon that is tried out doesn't touch the user's; else `$XDG_CONFIG_HOME/fusion` or `~/.config/fusion`, on every system.
///
/// # Errors
/// Every [`StateError`].
pub fn configuration_directory(
    given: Option<PathBuf>,
    state_given: Option<&Path>,
) -> Result<PathBuf, StateError> {
    let variable = |name| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let beside_state = || {
        state_given.map(Path::to_owned).or_else(|| variable(STATE_VARIABLE)).map(|state| state.join("config"))
    };
    let path = match given.or_else(|| variable(CONFIGURATION_VARIABLE)).or_else(beside_state) {
        Some(path) => path,
        None => {
            etcetera::base_strategy::Xdg::new().map_err(|_| StateError::NoHome)?.config_dir().join("fusion")
        }
    };
    if path.is_absolute() { Ok(path) } else { Err(StateError::Relative { path }) }
}

/// What the daemon makes in its state directory, files that aren't whole yet included.
const OURS: [&str; 12] = [
    "calibrations",
    "canary.json",
    "canary.json.new",
    "planner.json",
    "planner.json.later",
    "planner.json.new",
    "snapshot.fsnp",
    "snapshot.tmp",
    "store",
    "store-manifest.json",
    ".store-manifest.json.tmp",
    "store.lock",
];

/// Whether an entry of the state directory is the daemon's, its logs aside: one of a few names, or a store that was set aside, as
/// `store.corrupt-20260822T120000Z`. Whoever names a directory may keep other things in it.
pub fn is_ours(name: &str) -> bool {
    OURS.contains(&name) || name.strip_prefix("store.").is_some_and(is_reason_and_moment)
}

/// "corrupt-20260822T120000Z", and what may follow.
fn is_reason_and_moment(text: &str) -> bool {
    let Some((reason, moment)) = text.split_once('-') else { return false };
    let pattern = b"00000000T000000Z";
    let is_like =
        |(found, wanted): (u8, &u8)| if *wanted == b'0' { found.is_ascii_digit() } else { found == *wanted };
    !reason.is_empty()
        && reason.bytes().all(|byte| byte.is_ascii_lowercase())
        && moment.len() >= pattern.len()
        && moment.bytes().zip(pattern).all(is_like)
}

/// The snapshot file: what the daemon last told its clients, for those that start while it isn't there.
pub fn snapshot_file(state_directory: &Path) -> PathBuf {
    state_directory.join("snapshot.fsnp")
}

/// Where the daemon writes its logs: `fusiond.log`, older ones as `fusiond.log.1` and so on.
pub fn log_directory(state_directory: &Path) -> PathBuf {
    state_directory.join("logs")
}

/// The file that the daemon logs to now.
pub fn log_file(state_directory: &Path) -> PathBuf {
    log_directory(state_directory).join("fusiond.log")
}

/// Older parts of a log that are kept.
pub const KEPT_PARTS: usize = 7;

/// The older parts of `log` that may be there, the newest first: `fusiond.log.1`, `fusiond.log.2`.
pub fn rolled(log: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let log = log.as_os_str().to_owned();
    (1..=KEPT_PARTS).map(move |number| {
        let mut name = log.clone();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    })
}

/// What the daemon couldn't log: panics, and the last words of what ended it.
pub fn crash_log(state_directory: &Path) -> PathBuf {
    log_directory(state_directory).join("fusiond.crash.log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_daemon_makes_is_its_own() {
        for ours in [
            "calibrations",
            "store",
            "store.lock",
            "store.corrupt-20260822T120000Z",
            "store.unclean-20260822T120000Z-2",
        ] {
            assert!(is_ours(ours), "{ours}");
        }
        for ours in
            ["planner.json", "planner.json.new", "snapshot.fsnp", "snapshot.tmp", ".store-manifest.json.tmp"]
        {
            assert!(is_ours(ours), "{ours}");
        }
        for other in [
            "config",
            "stored",
            "store.bak",
            "store-2024",
            "store.corrupt-1",
            "snapshot-2024",
            "planner",
            "",
            ".",
            ".ssh",
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }
}
