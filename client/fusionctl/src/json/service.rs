//! `fusionctl.install/1`, `fusionctl.uninstall/1`, and the manager's part of `fusionctl.status/1`.

use fusion_service::Start;
use fusion_service::installation::{Installation, Kept as KeptPlace, Step};
use fusion_service::manager::{ManagerKind, ManagerState};
use serde::Serialize;

use crate::json::status::Started;

/// Who looks after the daemon.
#[derive(Debug, Serialize)]
pub(crate) struct Managed {
    pub(crate) manager: ManagerKind,
    pub(crate) start: Option<Start>,
    /// Whether the manager started the daemon that runs.
    pub(crate) started_by_it: bool,
}

impl Managed {
    pub(crate) fn new(manager: ManagerKind, start: Option<Start>, state: ManagerState) -> Self {
        Self { manager, start, started_by_it: matches!(state, ManagerState::Running { .. }) }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Installed {
    dry_run: bool,
    manager: ManagerKind,
    start: Start,
    programs: String,
    definitions: String,
    socket: String,
    state_directory: String,
    configuration_directory: String,
    steps: Vec<String>,
    kept: Vec<Kept>,
    /// What answered, if that was waited for.
    daemon: Option<Started>,
}

impl Installed {
    pub(crate) fn new(
        wanted: &Installation,
        manager: ManagerKind,
        steps: &[Step],
        kept: &[KeptPlace],
        daemon: Option<&Started>,
        dry_run: bool,
    ) -> Self {
        let places = &wanted.places;
        Self {
            dry_run,
            manager,
            start: wanted.start,
            programs: places.programs.display().to_string(),
            definitions: places.definitions.display().to_string(),
            socket: places.socket.to_string(),
            state_directory: places.state.display().to_string(),
            configuration_directory: places.configuration.display().to_string(),
            steps: steps.iter().map(ToString::to_string).collect(),
            kept: kept.iter().map(Kept::from).collect(),
            daemon: daemon.cloned(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Uninstalled {
    dry_run: bool,
    purge: bool,
    steps: Vec<String>,
    kept: Vec<Kept>,
}

/// What starting or stopping would take.
#[derive(Debug, Serialize)]
pub(crate) struct Rehearsed {
    pub(crate) steps: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Kept {
    path: String,
    why: &'static str,
}

impl From<&KeptPlace> for Kept {
    fn from(kept: &KeptPlace) -> Self {
        Self { path: kept.path.display().to_string(), why: kept.why }
    }
}

impl Uninstalled {
    pub(crate) fn new(steps: &[Step], kept: &[KeptPlace], purge: bool, dry_run: bool) -> Self {
        Self {
            dry_run,
            purge,
            steps: steps.iter().map(ToString::to_string).collect(),
            kept: kept.iter().map(Kept::from).collect(),
        }
    }
}
