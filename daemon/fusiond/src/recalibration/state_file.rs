//! What of the planner outlives the process: a small file, replaced by rename.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::planner::PlannerState;

const NAME: &str = "planner.json";

fn path(state_directory: &Path) -> PathBuf {
    state_directory.join(NAME)
}

/// What was kept; `None` if nothing was, or if it can't be read: then the budget starts as on a new machine that has nothing saved up but what the planner
/// gives it.
pub(crate) fn read(state_directory: &Path) -> Option<PlannerState> {
    let path = path(state_directory);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!("the planner's budget can't be read and starts anew: {error}");
            return None;
        }
    };
    match serde_json::from_str(&text) {
        Ok(state) => Some(state),
        Err(error) => {
            tracing::warn!("the planner's budget in {} starts anew: {error}", path.display());
            None
        }
    }
}

/// Keeps `state`.
///
/// # Errors
/// The file can't be written.
pub(crate) fn write(state_directory: &Path, state: &PlannerState) -> io::Result<()> {
    let (path, fresh) = (path(state_directory), state_directory.join("planner.json.new"));
    let mut file = fs::File::create(&fresh)?;
    file.write_all(serde_json::to_string(state)?.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, &path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_calibrations::conditions::Conditions;
    use tempfile::TempDir;

    use crate::planner::{Moment, Planner, Policy};

    #[test]
    fn what_is_written_is_read_and_nonsense_is_nothing() {
        let place = TempDir::new().unwrap();
        assert_eq!(read(place.path()), None);
        let planner = Planner::new(Policy::default(), None, Moment::from_unix_ms(5), Conditions::default());
        let state = planner.state(Moment::from_unix_ms(9));
        write(place.path(), &state).unwrap();
        assert_eq!(read(place.path()), Some(state));
        fs::write(place.path().join(NAME), "{\"budget\": 3}").unwrap();
        assert_eq!(read(place.path()), None);
    }
}
