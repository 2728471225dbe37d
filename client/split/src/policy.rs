//! Who decides how a region is executed, and what it is told afterwards.

use fusion_calibrations::{ratio::Ratio, rows::RowRule, sample::Unit, shape::Shape};

use crate::{Arm, Sampled};

/// Decides arms and rows. The gate is one; [`Fixed`] is another.
///
/// Everything is called on the thread that runs the model, so nothing here may wait.
pub trait Policy {
    /// The arm for the next call of `region`, a workload's name, with `rows` rows.
    fn arm(&mut self, region: &str, rows: u32) -> Arm;

    /// The secondary unit's rows of `shape`, by the row rule; 0 leaves the layer alone. Asked only in [`Arm::Split`].
    fn secondary_rows(&mut self, shape: Shape) -> u32;

    /// The secondary unit's rows of a whole feed-forward part, given its gate, up and down: it is then split once instead of three
    /// times, and not sampled. They must suit each of the layers. By default 0: each layer for itself. Asked only in
    /// [`Arm::Split`].
    fn ffn_rows(&mut self, layers: [Shape; 3]) -> u32 {
        let _ = layers;
        0
    }

    /// Whether to look at both units' finish times of this split, and which unit to wait for first: let it alternate. A sampled
    /// split waits for its units where another would not, so few should be. By default none is.
    fn sample(&mut self, shape: Shape) -> Option<Unit> {
        let _ = shape;
        None
    }

    /// What became of a call. By default nobody cares.
    fn finished(&mut self, call: &Call<'_>) {
        let _ = call;
    }
}

/// One executed region, timed between materialised boundaries: its inputs were there before, its outputs afterwards.
#[derive(Debug, Clone, PartialEq)]
pub struct Call<'a> {
    /// The region's name.
    pub region: &'a str,
    /// Rows that went through.
    pub rows: u32,
    /// The arm that ran.
    pub arm: Arm,
    /// Wall time in ms.
    pub total_ms: f64,
    /// How long the units' threads were ready to run but had no core, both together, in ms; `None` if the system does
    /// not tell.
    pub run_queue_delay_ms: Option<f64>,
    /// Splits that were sampled in this call, in order.
    pub sampled: &'a [Sampled],
}

/// Always the same arm, and one ratio for every layer: for experiments.
#[derive(Debug, Clone, PartialEq)]
pub struct Fixed {
    /// The arm.
    pub arm: Arm,
    /// The secondary unit's share where the arm is [`Arm::Split`].
    pub ratio: Ratio,
    /// What turns it into rows.
    pub rule: RowRule,
    /// Whether feed-forward parts are split once instead of layer by layer.
    pub whole_ffn: bool,
}

impl Policy for Fixed {
    fn arm(&mut self, _: &str, _: u32) -> Arm {
        self.arm
    }

    fn secondary_rows(&mut self, shape: Shape) -> u32 {
        self.rule.secondary_rows(shape, self.ratio)
    }

    fn ffn_rows(&mut self, layers: [Shape; 3]) -> u32 {
        if !self.whole_ffn {
            return 0;
        }
        let wanted = layers.map(|shape| (shape, self.secondary_rows(shape)));
        self.rule.fewest_rows_through(&wanted)
    }
}
