//! The gate's constants, each with its reason.

use crate::chip::Cooling;

use super::arm::ArmSet;

/// How a gate decides. Times in ms.
#[derive(Debug, Clone, PartialEq)]
pub struct GateOptions {
    /// What can be run, and what runs without us.
    pub arms: ArmSet,
    /// Share of the time that exploration may cost.
    pub epsilon: f64,
    /// Calls of an arm that may be made before anything is known of it: `n0`. A `generate` call makes 1-3 decisions.
    pub first_calls: u32,
    /// Speed-up at which the split replaces stock, with its 99 % interval: the paper's 3 %.
    pub margin: f64,
    /// Speed-up at which one stock arm replaces another. They differ by 1-3 % on the recorded chips, and neither heats the other unit.
    pub stock_margin: f64,
    /// Time after which the heat of a split no longer decides what stock takes. See [`heat_memory_ms`].
    pub heat_memory_ms: f64,
    /// Wait before a refuted arm is tried again, doubled with each failure in a row. The ledger bounds what retrying costs; this makes it vanish.
    pub retry_ms: f64,
    /// A standing split is checked against stock at least this often, since only running stock shows that stock got faster.
    pub verify_every_ms: f64,
    /// Up to this many rows a call bypasses the gate: decode.
    pub bypass_rows: u32,
}

/// Time after which the heat of one arm no longer decides what the other takes. FusionML's convergence runs show two parts: the first calls
/// after the other arm are off by 10 % for 2-8 s; a slow part follows the case for minutes. The block covers the first several times
/// over; against the second, a reference moves up only once it is settled.
pub fn heat_memory_ms(cooling: Cooling) -> f64 {
    match cooling {
        Cooling::Active => 20_000.0,
        // A table that doesn't know the machine may have missed a fanless one.
        Cooling::Passive | Cooling::Unknown => 40_000.0,
    }
}

impl GateOptions {
    /// For a client that runs `arms` on a machine cooled like this.
    pub fn new(arms: ArmSet, cooling: Cooling) -> Self {
        Self {
            arms,
            epsilon: 0.01,
            first_calls: 3,
            margin: 0.03,
            stock_margin: 0.01,
            heat_memory_ms: heat_memory_ms(cooling),
            retry_ms: 300_000.0,
            verify_every_ms: 1_800_000.0,
            bypass_rows: crate::lookup::DECODE_ROWS,
        }
    }

    /// The logarithm of the speed-up that an arm must show to replace the standing stock arm.
    pub(crate) fn log_margin(&self, arm: super::Arm) -> f64 {
        if arm.is_stock() { self.stock_margin.ln_1p() } else { self.margin.ln_1p() }
    }
}
