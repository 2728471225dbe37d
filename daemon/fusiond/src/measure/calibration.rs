//! The calibration of one shape without its machine: what to time next, what disturbed a call, and what is stored in the end.
//!
//! Pure: the times, the clocks and the conditions around each call are told, so that the simulation drives the very code that the daemon runs.

use std::time::Duration;

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::estimate::{Estimate, Provenance};
use fusion_calibrations::lookup::Query;
use fusion_calibrations::record::Record;
use fusion_calibrations::rows::RowRule;
use fusion_calibrations::sample::{DropReason, Sample};
use fusion_calibrations::search::{
    Budget, Known, Options, Outcome, Search, SearchError, Start, Step, points,
};
use fusion_calibrations::shape::Shape;

use super::{MeasureError, Measured};
use crate::machine::{Terms, Timing};
use crate::table::{self, Identity, Table};

/// Share of a call during which a unit's thread may wait for a core before the call counts as disturbed. Two calls of a quiet machine
/// differ by about 1.5 %, so a smaller wait can't be seen in the times.
const TOLERATED_RUN_DELAY: f64 = 0.02;
/// A wait that is none: a call wakes its threads a few times, and each has its core some 10 us later on a quiet machine too. In ms.
const WAKING_MS: f64 = 0.06;
/// How often a disturbed call is made again before the search is told of it. Each time is charged to the search's machine time.
const REPETITIONS: usize = 3;
/// A difference between wall clock and monotonic clock over one call that means the machine slept or the clock was set.
const CLOCK_GAP: Duration = Duration::from_millis(500);

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

impl Plan {
    /// The search starts from this very shape by another engine or under other conditions, else from what the nearest knowledge predicts.
    pub fn new(
        table: &Table,
        identity: &Identity,
        shape: Shape,
        conditions: Conditions,
        machine_ms: f64,
    ) -> Self {
        let records = table.of_chip(&identity.chip);
        let rule = table.row_rule(&identity.chip);
        let query = Query { shape, chip: &identity.chip, engine: &identity.engine, conditions };
        let answer = table::answer(&records, &query, &rule);
        let start = match (answer.estimate, answer.lines) {
            (Some(estimate), _) if estimate.shape == shape => Start::Warm(Known::from(estimate)),
            (_, Some(lines)) => Start::Prior(lines),
            _ => Start::Cold,
        };
        let before = table.exact(identity, shape, conditions);
        let cliff_evidence =
            before.map(|record| points::cliff_evidence(&record.samples, shape)).unwrap_or_default();
        Self { shape, start, rule, cliff_evidence, machine_ms }
    }
}

/// What was seen around a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Around {
    /// The conditions before it.
    pub before: Conditions,
    /// Those after it.
    pub after: Conditions,
    /// What passed by the monotonic clock.
    pub monotonic: Duration,
    /// What passed by the wall clock; `None` if it ran backwards.
    pub wall: Option<Duration>,
}

/// A calibration on its way.
#[derive(Debug)]
pub struct Calibration {
    shape: Shape,
    conditions: Conditions,
    search: Search,
    cliff_evidence: Vec<Sample>,
    repeated: Vec<Sample>,
    repeated_in_a_row: usize,
}

impl Calibration {
    /// Of `plan.shape` for `conditions`, on a machine with these terms.
    pub fn new(plan: Plan, terms: Terms, conditions: Conditions) -> Self {
        let Plan { shape, start, rule, cliff_evidence, machine_ms } = plan;
        let Terms { evidence, candidates, budget } = terms;
        let budget = Budget { machine_ms: budget.machine_ms.min(machine_ms), ..budget };
        let options = Options { start, rule, evidence, candidates, budget, ..Options::default() };
        Self {
            shape,
            conditions,
            search: Search::new(shape, options),
            cliff_evidence,
            repeated: Vec::new(),
            repeated_in_a_row: 0,
        }
    }

    /// What to time now, or what came of it.
    pub fn next(&self) -> Step {
        self.search.next()
    }

    /// Takes the call in that was asked for. A disturbed one is made again a few times; progress is (calls made, calls at most), if it was a step.
    ///
    /// # Errors
    /// The search refused the sample: a bug.
    pub fn tell(&mut self, timing: &Timing, around: &Around) -> Result<Option<(u32, u32)>, SearchError> {
        let sample = Sample { dropped: self.disturbance(timing, around), ..timing.sample };
        if !sample.is_kept() && self.repeated_in_a_row < REPETITIONS {
            self.repeated_in_a_row += 1;
            self.search.charge(&sample);
            self.repeated.push(sample);
            return Ok(None);
        }
        self.repeated_in_a_row = 0;
        self.search.tell(sample)?;
        Ok(Some((self.search.calls(), self.search.calls_at_most())))
    }

    /// Why a call doesn't count: it belongs to the conditions of the whole calibration, or to none.
    fn disturbance(&self, timing: &Timing, around: &Around) -> Option<DropReason> {
        if clock_gap(around.monotonic, around.wall) {
            Some(DropReason::ClockGap)
        } else if around.before != self.conditions || around.after != self.conditions {
            Some(DropReason::ConditionsChanged)
        } else if is_disturbed(timing.run_delay_ms, timing.sample.total_ms) {
            Some(DropReason::Disturbed)
        } else {
            None
        }
    }

    /// What to store: of `outcome`, measured by `identity` until `at_unix_ms`; `relative_error` is that of the best split's result.
    ///
    /// # Errors
    /// [`MeasureError::Disturbed`].
    pub fn conclude(
        self,
        outcome: &Outcome,
        identity: &Identity,
        relative_error: Option<f64>,
        at_unix_ms: u64,
    ) -> Result<Measured, MeasureError> {
        let shape = self.shape;
        let mut samples: Vec<Sample> = self.search.samples().iter().chain(&self.repeated).copied().collect();
        let machine_ms = samples.iter().map(|sample| sample.total_ms).sum();
        let (Some(stock_ms), Some(speed_up)) = (outcome.stock_ms, outcome.speed_up) else {
            let dropped = samples.iter().filter(|sample| !sample.is_kept()).count();
            return Err(MeasureError::Disturbed { shape, dropped, calls: samples.len() });
        };
        let estimate = Estimate {
            shape,
            conditions: self.conditions,
            lines: outcome.lines,
            ratio: outcome.ratio,
            secondary_rows: outcome.secondary_rows,
            stock_ms,
            split_ms: if outcome.ratio.splits() { outcome.split_ms.unwrap_or(stock_ms) } else { stock_ms },
            speed_up,
            kept_samples: count(&samples, true),
            dropped_samples: count(&samples, false),
            relative_error,
            measured_at_unix_ms: at_unix_ms,
            provenance: Provenance::Measured,
        };
        // After counting: these are no calls of this calibration.
        samples.extend(self.cliff_evidence);
        let record = Record {
            chip: identity.chip.clone(),
            engine: identity.engine.clone(),
            estimate,
            samples,
            written_by: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Ok(Measured { record, machine_ms })
    }
}

fn count(samples: &[Sample], kept: bool) -> u32 {
    u32::try_from(samples.iter().filter(|sample| sample.is_kept() == kept).count()).unwrap_or(u32::MAX)
}

/// Whether the two clocks disagree about how long a call took; `None` is a wall clock that ran backwards.
fn clock_gap(monotonic: Duration, wall: Option<Duration>) -> bool {
    wall.is_none_or(|wall| wall.abs_diff(monotonic) > CLOCK_GAP)
}

fn is_disturbed(run_delay_ms: Option<f64>, total_ms: f64) -> bool {
    run_delay_ms.is_some_and(|delay| delay > (TOLERATED_RUN_DELAY * total_ms).max(WAKING_MS))
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
