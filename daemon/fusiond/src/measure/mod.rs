//! Measures one shape: the search asks, the machine times, and what disturbed a call is noticed.

mod calibration;

use std::time::{Instant, SystemTime};

use fusion_calibrations::record::Record;
use fusion_calibrations::search::{Outcome, SearchError, Step};
use fusion_calibrations::shape::Shape;

use crate::machine::{Machine, MachineError};
use crate::sensors::Sensors;
use crate::table::Identity;

pub use calibration::{Around, Calibration, Plan};

/// Why a shape has no estimate.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The machine failed, or doesn't know the shape.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The machine was too busy for a usable sample.
    #[error(
        "no usable sample of {shape}: {dropped} of {calls} calls were disturbed; measure again on a quieter machine"
    )]
    Disturbed {
        /// What was measured.
        shape: Shape,
        /// Calls thrown away.
        dropped: usize,
        /// Calls made.
        calls: usize,
    },
    /// The split's result is wrong.
    #[error(
        "the split product of {shape} differs from the unsplit one by {found:.1e} of its largest value, more than the {bound:.1e} that rounding explains: nothing is stored; please report this with 'fusionctl ratios explain'"
    )]
    WrongResult {
        /// What was measured.
        shape: Shape,
        /// max|split - stock| / max|stock|.
        found: f64,
        /// What rounding explains.
        bound: f64,
    },
    /// The search refused an answer: a bug.
    #[error("the search refused a sample: {0}")]
    Search(#[from] SearchError),
}

/// A measured shape.
#[derive(Debug)]
pub struct Measured {
    /// What to store.
    pub record: Record,
    /// Machine time of all calls, in ms.
    pub machine_ms: f64,
}

/// Measures a shape with `machine`, starting from what is known. `progress` is told (calls made, calls at most).
///
/// # Errors
/// Every [`MeasureError`]; nothing was stored.
pub async fn measure(
    machine: &mut Machine,
    identity: &Identity,
    plan: Plan,
    sensors: &dyn Sensors,
    mut progress: impl FnMut(u32, u32),
) -> Result<Measured, MeasureError> {
    let shape = plan.shape;
    let terms = machine.prepare(shape).await?;
    let mut calibration = Calibration::new(plan, terms);
    let outcome = loop {
        let ask = match calibration.next() {
            Step::Done(outcome) => break outcome,
            Step::Measure(ask) => ask,
        };
        let (before, monotonic, wall) = (sensors.conditions(), Instant::now(), SystemTime::now());
        let timing = machine.time(ask).await?;
        let around = Around {
            before,
            monotonic: monotonic.elapsed(),
            wall: wall.elapsed().ok(),
            after: sensors.conditions(),
        };
        if let Some((calls, most)) = calibration.tell(&timing, &around)? {
            progress(calls, most);
        }
    };
    let relative_error = check(machine, shape, &outcome).await?;
    calibration.conclude(&outcome, identity, relative_error, unix_ms(SystemTime::now()))
}

/// Compares the best split's result with the unsplit one, whether or not it was chosen.
async fn check(machine: &mut Machine, shape: Shape, outcome: &Outcome) -> Result<Option<f64>, MeasureError> {
    let Some(rows) = outcome.best_split_rows else { return Ok(None) };
    let Some(found) = machine.check(rows).await? else { return Ok(None) };
    let bound = shape.layer().format().relative_error_bound(shape.layer().inputs());
    // Not-a-number fails too.
    if found <= bound { Ok(Some(found)) } else { Err(MeasureError::WrongResult { shape, found, bound }) }
}

/// Milliseconds since 1970 (UTC); 0 before.
pub fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
