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

use super::recent::{Recent, Seen};
use crate::planner::PlannerState;

const NAME: &str = "planner.json";
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
    recent: Vec<Seen>,
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
        let File { version, planner, recent } = serde_json::from_str(text)?;
        if version > VERSION {
            return Err(KeptError::Version(version));
        }
        Ok(Self { planner: Some(planner), recent: Recent::restore(&recent) })
    }

    /// Reads what was kept in `state_directory`; nothing, if there is nothing that can be read.
    pub(crate) fn read(state_directory: &Path) -> Self {
        let path = path(state_directory);
        let read = fs::read_to_string(&path).map_err(|error| (error.kind(), error.to_string()));
        let kept = read.and_then(|text| {
            Self::from_text(&text).map_err(|error| (io::ErrorKind::InvalidData, error.to_string()))
        });
        kept.unwrap_or_else(|(kind, error)| {
            if kind != io::ErrorKind::NotFound {
                tracing::warn!("{} can't be read, and the budget starts anew: {error}", path.display());
            }
            Self::default()
        })
    }
}

/// The text of a file that keeps these.
///
/// # Errors
/// A number that JSON has no text for.
pub fn to_text(planner: &PlannerState, recent: &Recent) -> serde_json::Result<String> {
    serde_json::to_string(&File { version: VERSION, planner: *planner, recent: recent.to_keep() })
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
    }

    #[test]
    fn the_first_version_kept_the_budget_alone() {
        let text = serde_json::to_string(&state()).unwrap();
        let kept = Kept::from_text(&text).unwrap();
        assert_eq!(kept, Kept { planner: Some(state()), recent: Recent::default() });
    }
}
