//! Measures one shape: the search asks, the machine times, and what disturbed a call is noticed here.

use std::time::{Duration, Instant, SystemTime};

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::estimate::{Estimate, Provenance};
use fusion_calibrations::record::Record;
use fusion_calibrations::rows::RowRule;
use fusion_calibrations::sample::{DropReason, Sample};
use fusion_calibrations::search::{Ask, Budget, Options, Outcome, Search, SearchError, Start, Step};
use fusion_calibrations::shape::Shape;

use crate::machine::{Machine, MachineError, Terms, Timing};
use crate::sensors::Sensors;
use crate::table::Identity;

/// Share of a call during which a unit's thread may wait for a core before the call counts as disturbed. Two calls of a quiet machine
/// differ by about 1.5 %, so a smaller wait can't be seen in the times.
const TOLERATED_RUN_DELAY: f64 = 0.02;
/// A wait that is none: a call wakes its threads a few times, and each has its core some 10 us later on a quiet machine too. In ms.
const WAKING_MS: f64 = 0.06;
/// How often a disturbed call is made again before the search is told of it. Each time is charged to the search's machine time.
const REPETITIONS: usize = 3;
/// A difference between wall clock and monotonic clock over one call that means the machine slept or the clock was set.
const CLOCK_GAP: Duration = Duration::from_millis(500);

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

/// What is known before a shape is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The shape.
    pub shape: Shape,
    /// What the search starts from.
    pub start: Start,
    /// The chip's row rule, with what earlier calibrations learnt.
    pub rule: RowRule,
    /// Calls of the record before that show a cliff: the new record keeps them, since the search won't look there again.
    pub cliff_evidence: Vec<Sample>,
    /// Machine time that it may take, in ms; the machine's own terms may allow less.
    pub machine_ms: f64,
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
    let conditions = sensors.conditions();
    let Plan { shape, start, rule, cliff_evidence, machine_ms } = plan;
    let Terms { evidence, candidates, budget } = machine.prepare(shape).await?;
    let budget = Budget { machine_ms: budget.machine_ms.min(machine_ms), ..budget };
    let options = Options { start, rule, evidence, candidates, budget, ..Options::default() };
    let mut search = Search::new(shape, options);
    let mut repeated = Vec::new();
    let mut in_a_row = 0;
    let outcome = loop {
        let ask = match search.next() {
            Step::Done(outcome) => break outcome,
            Step::Measure(ask) => ask,
        };
        let sample = time(machine, ask, sensors, conditions).await?;
        if !sample.is_kept() && in_a_row < REPETITIONS {
            in_a_row += 1;
            search.charge(&sample);
            repeated.push(sample);
            continue;
        }
        in_a_row = 0;
        search.tell(sample)?;
        progress(search.calls(), search.calls_at_most());
    };
    let relative_error = check(machine, shape, &outcome).await?;
    let mut samples: Vec<Sample> = search.samples().iter().chain(&repeated).copied().collect();
    let machine_ms = samples.iter().map(|sample| sample.total_ms).sum();
    let (Some(stock_ms), Some(speed_up)) = (outcome.stock_ms, outcome.speed_up) else {
        let dropped = samples.iter().filter(|sample| !sample.is_kept()).count();
        return Err(MeasureError::Disturbed { shape, dropped, calls: samples.len() });
    };
    let estimate = Estimate {
        shape,
        conditions,
        lines: outcome.lines,
        ratio: outcome.ratio,
        secondary_rows: outcome.secondary_rows,
        stock_ms,
        split_ms: if outcome.ratio.splits() { outcome.split_ms.unwrap_or(stock_ms) } else { stock_ms },
        speed_up,
        kept_samples: count(&samples, true),
        dropped_samples: count(&samples, false),
        relative_error,
        measured_at_unix_ms: unix_ms(SystemTime::now()),
        provenance: Provenance::Measured,
    };
    // After counting: these are no calls of this calibration.
    samples.extend(cliff_evidence);
    let record = Record {
        chip: identity.chip.clone(),
        engine: identity.engine.clone(),
        estimate,
        samples,
        written_by: env!("CARGO_PKG_VERSION").to_owned(),
    };
    Ok(Measured { record, machine_ms })
}

fn count(samples: &[Sample], kept: bool) -> u32 {
    u32::try_from(samples.iter().filter(|sample| sample.is_kept() == kept).count()).unwrap_or(u32::MAX)
}

/// Compares the best split's result with the unsplit one, whether or not it was chosen.
async fn check(machine: &mut Machine, shape: Shape, outcome: &Outcome) -> Result<Option<f64>, MeasureError> {
    let Some(rows) = outcome.best_split_rows else { return Ok(None) };
    let Some(found) = machine.check(rows).await? else { return Ok(None) };
    let bound = shape.layer().format().relative_error_bound(shape.layer().inputs());
    // Not-a-number fails too.
    if found <= bound { Ok(Some(found)) } else { Err(MeasureError::WrongResult { shape, found, bound }) }
}

/// One call. It belongs to `conditions`, those of the whole calibration, or is dropped.
async fn time(
    machine: &mut Machine,
    ask: Ask,
    sensors: &dyn Sensors,
    conditions: Conditions,
) -> Result<Sample, MachineError> {
    let before = (sensors.conditions(), Instant::now(), SystemTime::now());
    let Timing { sample, run_delay_ms } = machine.time(ask).await?;
    let reason = if clock_gap(before.1.elapsed(), before.2.elapsed().ok()) {
        Some(DropReason::ClockGap)
    } else if before.0 != conditions || sensors.conditions() != conditions {
        Some(DropReason::ConditionsChanged)
    } else if is_disturbed(run_delay_ms, sample.total_ms) {
        Some(DropReason::Disturbed)
    } else {
        None
    };
    Ok(Sample { dropped: reason, ..sample })
}

/// Whether the two clocks disagree about how long a call took; `None` is a wall clock that ran backwards.
fn clock_gap(monotonic: Duration, wall: Option<Duration>) -> bool {
    wall.is_none_or(|wall| wall.abs_diff(monotonic) > CLOCK_GAP)
}

fn is_disturbed(run_delay_ms: Option<f64>, total_ms: f64) -> bool {
    run_delay_ms.is_some_and(|delay| delay > (TOLERATED_RUN_DELAY * total_ms).max(WAKING_MS))
}

/// Milliseconds since 1970 (UTC); 0 before.
pub fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_disagree_void_a_sample() {
        let call = Duration::from_millis(20);
        assert!(!clock_gap(call, Some(call)));
        assert!(clock_gap(call, Some(Duration::from_secs(3600))));
        assert!(clock_gap(Duration::from_secs(3600), Some(call)));
        assert!(clock_gap(call, None));
    }

    #[test]
    fn a_long_wait_for_a_core_is_a_disturbance() {
        assert!(!is_disturbed(None, 1.0));
        assert!(!is_disturbed(Some(0.19), 10.0));
        assert!(is_disturbed(Some(0.21), 10.0));
        // Waking is no disturbance, however short the call.
        assert!(!is_disturbed(Some(0.05), 1.0));
        assert!(is_disturbed(Some(0.07), 1.0));
    }
}
