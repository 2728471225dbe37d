//! What a product yields: its result, and how long it took.

use std::time::{Duration, Instant};

use fusion_calibrations::sample::FinishTimes;
use mlx_rs::Array;

/// The materialised result of a product, `[M, N]`.
#[derive(Debug)]
pub struct Product(pub(crate) Array);

impl Product {
    /// Rows and outputs.
    pub fn shape(&self) -> (i32, i32) {
        (self.0.dim(0), self.0.dim(1))
    }
}

/// How long one product took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Rows of the secondary unit; 0 for stock.
    pub secondary_rows: u32,
    /// From before the graph was built until the whole result was there, in ms; of a split, the joining included.
    pub total_ms: f64,
    /// When each part was seen to finish; `None` unless both units had rows.
    pub finish_times: Option<FinishTimes>,
    /// How long the units' threads were ready to run but had no core, both together, in ms. `None` where the system does not
    /// tell, or the units are not threads of ours.
    pub run_queue_delay_ms: Option<f64>,
}

/// Milliseconds since `start`.
pub(crate) fn ms_since(start: Instant) -> f64 {
    to_ms(start.elapsed())
}

pub(crate) fn to_ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
