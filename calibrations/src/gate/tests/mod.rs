//! The gate on recorded and adversarial machines.

mod discrete;
mod heat;
mod invariant;
mod merging;
mod predicted;
mod recorded;
mod rules;

use super::{Arm, ArmSet, Call, Decision, Gate, GateOptions, Lease, Prediction, WorkloadId};
use crate::chip::Cooling;
use crate::stats::Interval;

/// A gate with one region and a clock.
struct Bench {
    gate: Gate,
    workload: WorkloadId,
    rows: u32,
    now_ms: f64,
}

fn options(arms: ArmSet) -> GateOptions {
    GateOptions::new(arms, Cooling::Active)
}

fn gain(low: f64, value: f64, high: f64) -> Option<Prediction> {
    Some(Prediction { gain: Interval { low, value, high }, fresh: true })
}

impl Bench {
    fn new(arms: ArmSet, lease_ms: f64) -> Self {
        let mut gate = Gate::new(options(arms), "engine");
        gate.grant(Lease { ms: lease_ms });
        let workload = gate.workload("prefill");
        Self { gate, workload, rows: 2048, now_ms: 1_000.0 }
    }

    fn decide(&self) -> Decision {
        self.gate.decide(self.workload, self.rows)
    }

    fn record(&mut self, decision: Decision, ms: f64, contended: bool) {
        self.now_ms += ms;
        let call = Call { decision, rows: self.rows, ms, ended_at_ms: self.now_ms, contended };
        self.gate.record(self.workload, &call);
    }

    /// `calls` calls that take what `ms` says of the arm; how often each arm ran.
    fn run(&mut self, calls: usize, mut ms: impl FnMut(Arm) -> f64) -> [usize; 3] {
        let mut by_arm = [0; 3];
        for _ in 0..calls {
            let decision = self.decide();
            by_arm[decision.arm.index()] += 1;
            self.record(decision, ms(decision.arm), false);
        }
        by_arm
    }

    fn standing(&self) -> Arm {
        self.gate.explain(self.workload, self.rows).map_or(Arm::Eager, |why| why.standing)
    }
}
