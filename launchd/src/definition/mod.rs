//! What the manager is told about the daemon.

mod agent;
mod units;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::error::ServiceError;
use crate::manager::ManagerKind;
use crate::places::Places;
use crate::{LABEL, Start};

pub use agent::Agent;

/// The exit code by which the daemon asks to be started again: its own program was replaced. Beyond sysexits' last number, 78.
pub const REPLACED: u8 = 79;

/// A file for the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Where it goes.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
}

/// What `kind` is told.
///
/// # Errors
/// [`ServiceError::UnusablePath`] and [`ServiceError::PropertyList`].
pub fn definitions(
    kind: ManagerKind,
    start: Start,
    places: &Places,
) -> Result<Vec<Definition>, ServiceError> {
    let file = |name: &str, text: String| Definition { path: places.definitions.join(name), text };
    Ok(match kind {
        ManagerKind::Launchd => {
            vec![file(&format!("{LABEL}.plist"), Agent::new(start, places)?.to_xml()?)]
        }
        ManagerKind::Systemd => {
            let arguments = arguments(kind, places)?;
            vec![
                file("fusiond.socket", units::socket(&text(places.socket.as_path())?)),
                file("fusiond.service", units::service(&arguments)),
            ]
        }
    })
}

/// The daemon's command line. Every place is named: the manager's environment isn't the terminal's.
fn arguments(kind: ManagerKind, places: &Places) -> Result<Vec<String>, ServiceError> {
    let option = match kind {
        ManagerKind::Launchd => "--launchd",
        ManagerKind::Systemd => "--systemd",
    };
    Ok(vec![
        text(&places.daemon())?,
        option.to_owned(),
        "--socket".to_owned(),
        text(places.socket.as_path())?,
        "--state-dir".to_owned(),
        text(&places.state)?,
        "--config-dir".to_owned(),
        text(&places.configuration)?,
    ])
}

/// A path as text: UTF-8, and without control characters, which neither format holds.
fn text(path: &Path) -> Result<String, ServiceError> {
    Some(path.as_os_str())
        .and_then(OsStr::to_str)
        .filter(|text| !text.chars().any(char::is_control))
        .map(str::to_owned)
        .ok_or_else(|| ServiceError::UnusablePath(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_no_definition_holds_are_refused() {
        assert!(matches!(text(Path::new("/a\nExecStart=/b")), Err(ServiceError::UnusablePath(_))));
        assert_eq!(text(Path::new("/größe/my code")).unwrap(), "/größe/my code");
    }
}
