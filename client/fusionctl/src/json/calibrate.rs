//! `fusionctl.calibrate/1`.

use serde::Serialize;

use super::shared::{Chip, Estimate, Shape};
use crate::commands::calibrate::Outcome;

#[derive(Debug, Serialize)]
pub(crate) struct Calibration {
    job: u64,
    chip: Option<Chip>,
    units: Option<String>,
    complete: bool,
    shapes: Vec<Done>,
    failed: Vec<Failed>,
    summary: Summary,
}

#[derive(Debug, Serialize)]
struct Done {
    names: Vec<String>,
    from_store: bool,
    machine_ms: f64,
    #[serde(flatten)]
    estimate: Estimate,
}

#[derive(Debug, Serialize)]
struct Failed {
    names: Vec<String>,
    shape: Shape,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Summary {
    measured: usize,
    from_store: usize,
    failed: usize,
    not_reached: usize,
    machine_ms: f64,
}

impl From<&Outcome> for Calibration {
    fn from(outcome: &Outcome) -> Self {
        Self {
            job: outcome.job,
            chip: outcome.chip.as_ref().map(Into::into),
            units: super::shared::filled(&outcome.units),
            complete: outcome.complete,
            shapes: outcome
                .done
                .iter()
                .map(|done| Done {
                    names: done.names.clone(),
                    from_store: done.from_store,
                    machine_ms: done.machine_ms,
                    estimate: (&done.estimate).into(),
                })
                .collect(),
            failed: outcome
                .failed
                .iter()
                .map(|failed| Failed {
                    names: failed.names.clone(),
                    shape: (&failed.shape).into(),
                    reason: failed.reason.clone(),
                })
                .collect(),
            summary: Summary {
                measured: outcome.measured(),
                from_store: outcome.known_before(),
                failed: outcome.failed.len(),
                not_reached: outcome.not_reached(),
                machine_ms: outcome.machine_ms(),
            },
        }
    }
}
