//! The paper's gate, to be compared with. Not for use.
//!
//! As in FusionML's `DynamicGate`: three warm calls and seven samples of each arm in contiguous blocks, the smallest median becomes active.
//! Then every 10th call runs another arm, in turn; exponential means (alpha 0.5) of the active arm and of the probes; on a probe, another
//! arm becomes active if its mean is below 0.97 times the active one's.

use crate::stats::median;

use super::arm::{Arm, ArmSet};

const WARM_CALLS: usize = 3;
const PROBATION_CALLS: usize = 7;
const PROBE_EVERY: u64 = 10;
const ALPHA: f64 = 0.5;
const HYSTERESIS: f64 = 0.97;

/// The paper's gate for one region.
#[derive(Debug, Clone)]
pub struct PaperGate {
    arms: Vec<Arm>,
    probation: Vec<Vec<f64>>,
    means: Vec<f64>,
    active: usize,
    calls: u64,
    switches: u32,
}

impl PaperGate {
    /// Over these arms, in the paper's order: split, compiled, eager.
    pub fn new(arms: ArmSet) -> Self {
        let arms: Vec<Arm> = Arm::ALL.into_iter().filter(|arm| arms.has(*arm)).collect();
        Self {
            probation: vec![Vec::new(); arms.len()],
            means: Vec::new(),
            arms,
            active: 0,
            calls: 0,
            switches: 0,
        }
    }

    fn on_probation(&self) -> Option<usize> {
        self.probation.iter().position(|calls| calls.len() < WARM_CALLS + PROBATION_CALLS)
    }

    fn next(&self) -> usize {
        if let Some(arm) = self.on_probation() {
            return arm;
        }
        let call = self.calls + 1;
        if !call.is_multiple_of(PROBE_EVERY) || self.arms.len() < 2 {
            return self.active;
        }
        let turn = (call / PROBE_EVERY) as usize % (self.arms.len() - 1);
        (0..self.arms.len()).filter(|arm| *arm != self.active).nth(turn).unwrap_or(self.active)
    }

    /// How to execute the next call.
    pub fn decide(&self) -> Arm {
        self.arms[self.next()]
    }

    /// Takes the time of the call that was decided on, in ms.
    pub fn record(&mut self, ms: f64) {
        let arm = self.next();
        if self.on_probation().is_some() {
            self.probation[arm].push(ms);
            if self.on_probation().is_none() {
                let medians =
                    self.probation.iter().map(|calls| median(&calls[WARM_CALLS..]).unwrap_or(f64::INFINITY));
                self.means = medians.collect();
                self.active = self.fastest(|_| true).unwrap_or(0);
            }
            return;
        }
        self.calls += 1;
        self.means[arm] = ALPHA * ms + (1.0 - ALPHA) * self.means[arm];
        if arm != self.active
            && let Some(other) = self.fastest(|arm| arm != self.active)
            && self.means[other] < HYSTERESIS * self.means[self.active]
        {
            self.active = other;
            self.switches += 1;
        }
    }

    fn fastest(&self, of: impl Fn(usize) -> bool) -> Option<usize> {
        (0..self.arms.len()).filter(|arm| of(*arm)).min_by(|a, b| self.means[*a].total_cmp(&self.means[*b]))
    }

    /// The active arm.
    pub fn active(&self) -> Arm {
        self.arms[self.active]
    }

    /// How often another arm became active.
    pub fn switches(&self) -> u32 {
        self.switches
    }
}
