//! The calibration of one shape without its machine: what to time next, what disturbed a call, and what is stored in the end.
//!
//! Pure: the times, the clocks and the conditions around each call are told, so that the simulation drives the very code that the daemon runs.

use std::time::Duration;

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::estimate::{Estimate, Provenance};
use fusion_calibrations::lookup::Query;
use fusion_calibrations::record::Record;
use fusion_calibrations::rows::RowRule;
use fusion_calibrations::sample::{DropReason, Sample, is_disturbed};
use fusion_calibrations::search::{
    Budget, Known, Options, Outcome, Search, SearchError, Start, Step, points,
};
use fusion_calibrations::shape::Shape;

use super::{MeasureError, Measured};
use crate::clocks;
use crate::machine::{Terms, Timing};
use crate::table::{self, Identity, Table};

/// How often a disturbed call is made again before the search is told of it. Each time is charged to the search's machine time.
const REPETITIONS: usize = 3;

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
    /// The conditions that it is measured for.
    pub conditions: Conditions,
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
        Self { shape, start, rule, cliff_evidence, conditions, machine_ms }
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
    /// By a plan, on a machine with these terms.
    pub fn new(plan: Plan, terms: Terms) -> Self {
        let Plan { shape, start, rule, cliff_evidence, conditions, machine_ms } = plan;
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
        if clocks::part(around.monotonic, around.wall) {
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
