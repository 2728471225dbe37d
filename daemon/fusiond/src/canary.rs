//! The canary in this machine: takes the tiny product's time at the start of a job, and remembers the fastest of each engine.
//!
//! What its time means is [`planner::canary`](crate::planner::canary)'s business.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use fs_err as fs;
use fusion_calibrations::search::Ask;
use fusion_calibrations::shape::{Layer, Layout, Shape, ShapeError, WeightFormat};

use crate::machine::{Machine, MachineError};
use crate::planner::canary::{CALLS, Pace, References};

const NAME: &str = "canary.json";

/// What is timed: half a billion multiplications, some ms on a core and less on a GPU. In single precision, which MLX runs fast everywhere.
pub fn product() -> Result<Shape, ShapeError> {
    Layer::new(1024, 1024, WeightFormat::F32, Layout::OutputsByInputs)?.with_rows(256)
}

/// The references of this machine, kept in a file.
#[derive(Debug)]
pub struct Canary {
    path: PathBuf,
    references: Mutex<References>,
}

/// What a canary told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sung {
    /// How fast the machine is; `None` if the calls disagree.
    pub pace: Option<Pace>,
    /// What it cost, in ms.
    pub machine_ms: f64,
}

impl Canary {
    /// With what was kept in `state_directory`. A file that can't be read is as none: the next canary is the first.
    pub fn open(state_directory: &Path) -> Self {
        let path = state_directory.join(NAME);
        let kept = fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str(&text).ok());
        Self { path, references: Mutex::new(kept.unwrap_or_default()) }
    }

    /// Times the product on `machine`, whose code is `engine`.
    ///
    /// # Errors
    /// Every [`MachineError`].
    pub async fn sing(&self, machine: &mut Machine, engine: &str) -> Result<Sung, MachineError> {
        let Ok(shape) = product() else { return Ok(Sung { pace: None, machine_ms: 0.0 }) };
        machine.prepare(shape).await?;
        let mut calls_ms = Vec::with_capacity(CALLS + 1);
        for _ in 0..=CALLS {
            calls_ms.push(machine.time(Ask::Stock).await?.sample.total_ms);
        }
        let machine_ms = calls_ms.iter().sum();
        // The first warms up.
        Ok(Sung { pace: self.judge(engine, &calls_ms[1..]), machine_ms })
    }

    fn judge(&self, engine: &str, calls_ms: &[f64]) -> Option<Pace> {
        // A panic elsewhere leaves the references as good as they were.
        let mut references = self.references.lock().unwrap_or_else(PoisonError::into_inner);
        let pace = references.judge(engine, calls_ms)?;
        self.keep(&references);
        Some(pace)
    }

    fn keep(&self, references: &References) {
        let kept = serde_json::to_string(references).map_err(std::io::Error::from).and_then(|text| {
            let fresh = self.path.with_extension("json.new");
            fs::write(&fresh, text)?;
            fs::rename(&fresh, &self.path)
        });
        if let Err(error) = kept {
            tracing::warn!("the canary's references can't be kept: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn slowness_is_judged_by_the_fastest_that_was_kept() {
        let place = TempDir::new().unwrap();
        let canary = Canary::open(place.path());
        assert_eq!(canary.judge("engine", &[5.0, 5.1, 5.05]), Some(Pace::Full));
        let reopened = Canary::open(place.path());
        assert_eq!(reopened.judge("engine", &[7.0, 7.1, 7.05]), Some(Pace::VerySlow));
        assert_eq!(reopened.judge("another engine", &[7.0, 7.1, 7.05]), Some(Pace::Full));
    }

    #[test]
    fn calls_that_disagree_and_nonsense_say_nothing() {
        let place = TempDir::new().unwrap();
        let canary = Canary::open(place.path());
        for calls in [[5.0, 9.0, 5.0], [f64::NAN; 3], [0.0, -1.0, 5.0], [f64::INFINITY; 3]] {
            assert_eq!(canary.judge("engine", &calls), None, "{calls:?}");
        }
        fs::write(place.path().join(NAME), "nonsense").unwrap();
        assert_eq!(Canary::open(place.path()).judge("engine", &[5.0, 5.0, 5.0]), Some(Pace::Full));
    }
}
