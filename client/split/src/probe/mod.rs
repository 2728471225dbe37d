//! The mechanism probe: do two units run at once, and what does it take?
//!
//! MLX is lazy. FusionML found that a split only runs on both units at once if its input is already there: in one graph with the
//! operation that makes the input, the same split is slower than no split (1.38 times stock's speed with a ready input, 0.66 in
//! a lazy graph, 1.34 with the input materialised first, on an M1). This repeats that experiment on the two units of this machine, with a
//! whole feed-forward part besides, and says in words what it found. It assumes nothing: two CPU streams, for one, do
//! not serialise.

mod measure;
mod verdict;

use fusion_calibrations::{ratio::Ratio, sample::is_disturbed, shape::Shape};

use crate::{SplitError, Units};

pub use verdict::{Finding, Verdict};

/// One way to run a product, or a feed-forward part, between two materialised boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Input ready, primary unit alone.
    ReadyWhole,
    /// Input ready, split.
    ReadySplit,
    /// Input made in the same graph, primary unit alone.
    LazyWhole,
    /// Input made in the same graph, split.
    LazySplit,
    /// Input made and materialised, then primary unit alone.
    BoundaryWhole,
    /// Input made and materialised, then split.
    BoundarySplit,
    /// As the first way: how quiet the machine is.
    ReadyWholeAgain,
    /// Whole feed-forward part, input ready, primary unit alone.
    FfnReadyWhole,
    /// Whole feed-forward part, input ready, each unit all of it for its rows.
    FfnReadySplit,
    /// Whole feed-forward part, input made in the same graph, primary unit alone.
    FfnLazyWhole,
    /// Whole feed-forward part, input made in the same graph, each unit all of it for its rows.
    FfnLazySplit,
}

impl Way {
    /// Every way, in the order of declaration.
    pub const ALL: [Self; 11] = [
        Self::ReadyWhole,
        Self::ReadySplit,
        Self::LazyWhole,
        Self::LazySplit,
        Self::BoundaryWhole,
        Self::BoundarySplit,
        Self::ReadyWholeAgain,
        Self::FfnReadyWhole,
        Self::FfnReadySplit,
        Self::FfnLazyWhole,
        Self::FfnLazySplit,
    ];

    /// Its name in outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadyWhole => "ready_whole",
            Self::ReadyWholeAgain => "ready_whole_again",
            Self::ReadySplit => "ready_split",
            Self::LazyWhole => "lazy_whole",
            Self::LazySplit => "lazy_split",
            Self::BoundaryWhole => "boundary_whole",
            Self::BoundarySplit => "boundary_split",
            Self::FfnReadyWhole => "ffn_ready_whole",
            Self::FfnReadySplit => "ffn_ready_split",
            Self::FfnLazyWhole => "ffn_lazy_whole",
            Self::FfnLazySplit => "ffn_lazy_split",
        }
    }
}

/// One call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timed {
    /// Wall time in ms.
    pub ms: f64,
    /// How long the units' threads were ready to run but had no core, in ms; 0 where the system does not tell.
    pub delay_ms: f64,
}

impl Timed {
    /// Whether another process held a unit's core for too long.
    pub fn is_disturbed(self) -> bool {
        is_disturbed(Some(self.delay_ms), self.ms)
    }
}

/// Calls: the same number of rounds for every way, in the order of [`Way::ALL`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timings([Vec<Timed>; Way::ALL.len()]);

impl Timings {
    /// Nothing timed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next round's call of `way`.
    pub fn push(&mut self, way: Way, call: Timed) {
        self.0[way as usize].push(call);
    }

    /// The wall times of `way` in ms, by round.
    pub fn of(&self, way: Way) -> Vec<f64> {
        self.0[way as usize].iter().map(|call| call.ms).collect()
    }

    /// The share of calls that another process disturbed.
    pub fn disturbed_share(&self) -> f64 {
        let calls = || self.0.iter().flatten();
        calls().filter(|call| call.is_disturbed()).count() as f64 / calls().count().max(1) as f64
    }
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// The product; the feed-forward part has it twice (gate, up) and its mirror once (down).
    pub shape: Shape,
    /// The secondary unit's rows in every split.
    pub secondary_rows: u32,
    /// The balanced ratio that the rows come from, from both units' finish times.
    pub ratio: Ratio,
    /// All times.
    pub timings: Timings,
    /// The largest relative error of a split against its unsplit counterpart, no unit.
    pub relative_error: f64,
    /// What it means.
    pub verdict: Verdict,
}

/// How much a probe measures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// The product.
    pub shape: Shape,
    /// How often each way is timed.
    pub rounds: usize,
}

impl Scale {
    /// What a verdict takes: the paper's K and N, with its 2048 rows of f16 on a GPU; fewer rows of f32 on cores, where halves
    /// are slow. Some 20 seconds.
    ///
    /// # Errors
    /// None in fact: the shape is fixed.
    pub fn usual(units: &Units) -> Result<Self, SplitError> {
        measure::usual(units)
    }
}

/// Runs the probe. `progress` is told each finished round and how many there are.
///
/// # Errors
/// [`SplitError::Mlx`] if MLX fails.
pub fn run(units: &Units, scale: Scale, progress: impl FnMut(usize, usize)) -> Result<Probe, SplitError> {
    measure::run(units, scale, progress)
}
