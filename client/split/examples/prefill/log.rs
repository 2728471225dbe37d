//! The policy that lets arms take turns, and keeps a log.

use fusion_calibrations::{
    sample::{Unit, is_disturbed},
    shape::Shape,
};
use fusion_split::{Arm, Call, Policy, Sampled};
use serde::Serialize;

use crate::{
    gate::{Gated, Sampler},
    rows::Rows,
    schedule::{Step, Turn},
};

/// One timed call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Entry {
    pub(crate) round: usize,
    /// Who decided: an arm's name, or "gate".
    pub(crate) turn: String,
    /// What ran.
    pub(crate) arm: String,
    /// The first of its arm's visit: it counts for nothing.
    pub(crate) settles: bool,
    /// Made by the gate to learn.
    explored: bool,
    rows: u32,
    /// Wall time between materialised boundaries.
    pub(crate) ms: f64,
    /// How long the units' threads were ready to run but had no core.
    pub(crate) waited_ms: Option<f64>,
    pub(crate) disturbed: bool,
}

/// Runs the arm it is told to, or asks the gate.
#[derive(Debug)]
pub(crate) struct Turns<'a> {
    rows: &'a Rows<'a>,
    whole_ffn: bool,
    sampler: Sampler,
    gated: Option<Gated<'a>>,
    round: usize,
    step: Step,
    pub(crate) log: Vec<Entry>,
    pub(crate) sampled: Vec<Sampled>,
}

impl<'a> Turns<'a> {
    /// Fixed arms get their rows from `rows`; their splits are sampled by `sampler`, the gate's by its own.
    pub(crate) fn new(
        rows: &'a Rows<'a>,
        whole_ffn: bool,
        sampler: Sampler,
        gated: Option<Gated<'a>>,
    ) -> Self {
        let step = Step { turn: Turn::Fixed(Arm::Eager), settles: true };
        Self { rows, whole_ffn, sampler, gated, round: 0, step, log: vec![], sampled: vec![] }
    }

    /// What the next call is.
    pub(crate) fn next_is(&mut self, round: usize, step: Step) {
        (self.round, self.step) = (round, step);
    }

    /// What the gate would run now.
    pub(crate) fn gate_would_run(&self, rows: u32) -> Option<Arm> {
        self.gated.as_ref().map(|gated| gated.would_run(rows))
    }

    /// The gate, if it is its turn.
    fn gate(&mut self) -> Option<&mut Gated<'a>> {
        self.gated.as_mut().filter(|_| self.step.turn == Turn::Gate)
    }
}

impl Policy for Turns<'_> {
    fn arm(&mut self, region: &str, rows: u32) -> Arm {
        match (self.step.turn, self.gate()) {
            (Turn::Fixed(arm), _) => arm,
            (Turn::Gate, Some(gate)) => gate.arm(region, rows),
            (Turn::Gate, None) => Arm::Eager,
        }
    }

    fn secondary_rows(&mut self, shape: Shape) -> u32 {
        self.rows.secondary_rows(shape)
    }

    fn ffn_rows(&mut self, layers: [Shape; 3]) -> u32 {
        if self.whole_ffn { self.rows.ffn_rows(layers) } else { 0 }
    }

    fn sample(&mut self, shape: Shape) -> Option<Unit> {
        match self.gate() {
            Some(gate) => gate.sample(shape),
            None => self.sampler.next(shape.layer()),
        }
    }

    fn finished(&mut self, call: &Call<'_>) {
        let mut explored = false;
        if let Some(gate) = self.gate() {
            gate.finished(call);
            explored = gate.explored();
        }
        self.log.push(Entry {
            round: self.round,
            turn: self.step.turn.to_string(),
            arm: call.arm.to_string(),
            settles: self.step.settles,
            explored,
            rows: call.rows,
            ms: call.total_ms,
            waited_ms: call.run_queue_delay_ms,
            disturbed: is_disturbed(call.run_queue_delay_ms, call.total_ms),
        });
        self.sampled.extend_from_slice(call.sampled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_calibrations::ratio::Ratio;

    #[test]
    fn every_call_is_logged_as_what_it_was() {
        let rows = Rows::Ratio(Ratio::new(0.5).unwrap());
        let mut turns = Turns::new(&rows, false, Sampler::new(0), None);
        turns.next_is(3, Step { turn: Turn::Fixed(Arm::Split), settles: false });
        assert_eq!(turns.arm("region", 512), Arm::Split);
        let call = Call {
            region: "region",
            rows: 512,
            arm: Arm::Split,
            total_ms: 50.0,
            run_queue_delay_ms: Some(3.0),
            sampled: &[],
        };
        turns.finished(&call);
        let entry = &turns.log[0];
        assert_eq!((entry.round, entry.turn.as_str(), entry.arm.as_str()), (3, "split", "split"));
        assert!(entry.disturbed && !entry.settles && entry.ms == 50.0);
    }
}
