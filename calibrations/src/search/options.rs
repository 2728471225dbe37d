//! What a search is told before it starts.

use crate::estimate::Estimate;
use crate::lines::Lines;
use crate::ratio::Ratio;
use crate::rows::RowRule;

/// What is known before the first call.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Start {
    /// Nothing but the row rule.
    #[default]
    Cold,
    /// Lines of something near: the chip's file, another number of rows, other conditions, another machine.
    Prior(Lines),
    /// This very shape was calibrated before.
    Warm(Known),
}

/// An earlier calibration of the very shape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Known {
    /// The secondary unit's rows that were chosen; 0 is stock.
    pub secondary_rows: u32,
    /// The fitted lines.
    pub lines: Option<Lines>,
    /// Stock, in ms.
    pub stock_ms: f64,
    /// The chosen split, in ms.
    pub split_ms: f64,
}

impl From<&Estimate> for Known {
    fn from(estimate: &Estimate) -> Self {
        Self {
            secondary_rows: estimate.secondary_rows,
            lines: estimate.lines,
            stock_ms: estimate.stock_ms,
            split_ms: estimate.split_ms,
        }
    }
}

/// What the machine tells about a split call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Evidence {
    /// When each unit finished: two calls show both lines.
    #[default]
    FinishTimes,
    /// Only when the whole was done: recorded grids, foreign tools.
    Totals,
}

/// Which row counts may be chosen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Candidates {
    /// Any that the row rule allows.
    #[default]
    Any,
    /// Only these (recorded machines know no others), less what the row rule forbids. 0 is always a choice.
    Rows(Vec<u32>),
}

/// How much may be spent. Every call counts, thrown away or not; one that another process disturbed and that is made again counts as machine
/// time ([`super::Search::charge`]).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// Timed calls at most.
    pub calls: u32,
    /// Machine time at most, in ms. A call is only asked for while less than this is spent, and what it is expected to take still fits.
    pub machine_ms: f64,
}

impl Budget {
    /// Two minutes a shape: the paper's calibrations take 7 to 140 s for a whole model. Only huge shapes on slow units come near.
    pub const MACHINE_MS: f64 = 120_000.0;

    /// 26 calls: where only totals are known.
    pub fn totals() -> Self {
        Self { calls: 26, machine_ms: Self::MACHINE_MS }
    }
}

impl Default for Budget {
    /// 12 calls: enough for a confirmed calibration where finish times are known.
    fn default() -> Self {
        Self { calls: 12, machine_ms: Self::MACHINE_MS }
    }
}

/// Everything that a search is told before it starts. `..Options::default()` is a cold search with finish times in 12 calls.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    /// What is known.
    pub start: Start,
    /// What the machine tells.
    pub evidence: Evidence,
    /// Which row counts may be chosen.
    pub candidates: Candidates,
    /// The chip's cliffs and alignment.
    pub rule: RowRule,
    /// What may be spent.
    pub budget: Budget,
    /// The share of the first probe; `None` leaves it to the search.
    pub first_ratio: Option<Ratio>,
    /// Breaks ties in the order of calls (which unit is waited for first). The same seed and samples give the same search.
    pub seed: u64,
}
