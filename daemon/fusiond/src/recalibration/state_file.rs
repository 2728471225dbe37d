//! What outlives the process: the planner's budget and the layers that clients ran lately, in a small file, replaced by rename.
//!
//! ```json
//! {"version": 2, "budget": {...}, "recent": [{"rows": 2048, "inputs": 4096, ...}]}
//! ```
//!
//! Version 1 had no number and nothing but the budget. A file that can't be read is as none.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::recent::Recent;
use crate::planner::PlannerState;

const NAME: &str = "planner.json";
/// Where a file of a later version waits for that.
const LATER: &str = "planner.json.later";
const VERSION: u32 = 2;

/// What was kept, or is to be.
#[derive(Debug, Default, PartialEq)]
pub struct Kept {
    /// The budget; `None` on a machine that never had one: it has nothing saved up but what the planner gives it.
    pub planner: Option<PlannerState>,
    /// Layers that clients ran lately.
    pub recent: Recent,
}

/// Why a file says nothing.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// It is damaged.
    #[error("it is damaged ({0})")]
    Damaged(#[from] serde_json::Error),
    /// A later fusiond wrote it.
    #[error("it has version {0}, and this fusiond reads up to {VERSION}")]
    Version(u32),
}

#[derive(Serialize, Deserialize)]
struct File {
    #[serde(default = "first_version")]
    version: u32,
    #[serde(flatten)]
    planner: PlannerState,
    #[serde(default)]
    recent: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Version {
    #[serde(default = "first_version")]
    version: u32,
}

fn first_version() -> u32 {
    1
}

impl Kept {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Every [`KeptError`].
    pub fn from_text(text: &str) -> Result<Self, KeptError> {
        let Version { version } = serde_json::from_str(text)?;
        if version > VERSION {
            return Err(KeptError::Version(version));
        }
        let File { planner, recent, .. } = serde_json::from_str(text)?;
        let recent = recent.into_iter().filter_map(|seen| serde_json::from_value(seen).ok());
        Ok(Self { planner: Some(planner), recent: Recent::restore(recent) })
    }

    /// Reads what was kept in `state_directory`; nothing, if there is nothing that can be read. What a later fusiond wrote is set aside for it.
    pub(crate) fn read(state_directory: &Path) -> Self {
        let path = path(state_directory);
        let error = match fs::read_to_string(&path) {
            Ok(text) => match Self::from_text(&text) {
                Ok(kept) => return kept,
                Err(error) => {
                    if matches!(error, KeptError::Version(_)) {
                        let _ = fs::rename(&path, state_directory.join(LATER));
                    }
                    error.to_string()
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::default(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(
            "{} can't be read: the budget starts anew, and what clients ran lately is forgotten: {error}",
            path.display()
        );
        Self::default()
    }
}

/// The text of a file that keeps these.
///
/// # Errors
/// A number that JSON has no text for.
pub fn to_text(planner: &PlannerState, recent: &Recent) -> serde_json::Result<String> {
    let recent = recent.to_keep().iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    serde_json::to_string(&File { version: VERSION, planner: *planner, recent })
}

/// Keeps both. Durable when it returns.
///
/// # Errors
/// The file can't be written.
pub(crate) fn write(state_directory: &Path, planner: &PlannerState, recent: &Recent) -> io::Result<()> {
    let (path, fresh) = (path(state_directory), state_directory.join("planner.json.new"));
    let mut file = fs::File::create(&fresh)?;
    file.write_all(to_text(planner, recent)?.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, &path)
}

fn path(state_directory: &Path) -> PathBuf {
    state_directory.join(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_calibrations::conditions::Conditions;
    use fusion_calibrations::shape::{Layer, Layout, WeightFormat};
    use tempfile::TempDir;

    use crate::clients::Introduction;
    use crate::planner::{Moment, Planner, Policy};

    fn state() -> PlannerState {
        let planner = Planner::new(Policy::default(), None, Moment::from_unix_ms(5), Conditions::default());
        planner.state(Moment::from_unix_ms(9))
    }

    fn recent() -> Recent {
        let mut recent = Recent::default();
        let client = Introduction {
            pid: 1,
            name: String::new(),
            version: String::new(),
            engine: None,
            worker: None,
            layers: vec![Layer::new(64, 128, WeightFormat::F16, Layout::default()).unwrap()],
            typical_rows: 512,
        };
        recent.see(&client, Moment::from_unix_ms(7));
        recent
    }

    #[test]
    fn what_is_written_is_read() {
        let place = TempDir::new().unwrap();
        assert_eq!(Kept::read(place.path()), Kept::default());
        write(place.path(), &state(), &recent()).unwrap();
        assert_eq!(Kept::read(place.path()), Kept { planner: Some(state()), recent: recent() });
    }

    #[test]
    fn a_damaged_file_and_one_of_a_later_version_are_as_none() {
        let place = TempDir::new().unwrap();
        write(place.path(), &state(), &recent()).unwrap();
        let text = fs::read_to_string(path(place.path())).unwrap();
        let later = text.replace("\"version\":2", "\"version\":3");
        assert_ne!(later, text);
        for damaged in ["", "{\"budget\": 3}", &text[..text.len() - 2], &later] {
            fs::write(path(place.path()), damaged).unwrap();
            assert_eq!(Kept::read(place.path()), Kept::default(), "{damaged}");
        }
        // The later version comes back to what it wrote.
        assert_eq!(fs::read_to_string(place.path().join(LATER)).unwrap(), later);
        assert!(matches!(Kept::from_text("{\"version\": 9, \"other\": true}"), Err(KeptError::Version(9))));
    }

    #[test]
    fn a_layer_that_can_not_be_read_costs_nothing_else() {
        let text = to_text(&state(), &recent()).unwrap();
        let with = text.replace("\"recent\":[", "\"recent\":[{\"rows\":-1},7,");
        assert_ne!(with, text);
        assert_eq!(Kept::from_text(&with).unwrap(), Kept { planner: Some(state()), recent: recent() });
    }

    #[test]
    fn the_first_version_kept_the_budget_alone() {
        let text = serde_json::to_string(&state()).unwrap();
        let kept = Kept::from_text(&text).unwrap();
        assert_eq!(kept, Kept { planner: Some(state()), recent: Recent::default() });
    }
}
