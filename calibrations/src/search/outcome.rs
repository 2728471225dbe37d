//! What a search concludes.

use std::fmt;

use crate::lines::Lines;
use crate::ratio::Ratio;
use crate::rows::Cliff;
use crate::stats::Interval;

/// How sure the choice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The split beat stock by more than its uncertainty, that between sessions included.
    Confirmed,
    /// It didn't, or lost: the ratio is 0.
    NotBetter,
    /// The budget ran out before it was clear: the ratio is 0.
    Unresolved,
    /// No usable sample of stock or of a split: nothing is known, and nothing should be stored.
    NoEvidence,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Confirmed => "confirmed",
            Self::NotBetter => "not better than stock",
            Self::Unresolved => "unresolved: the budget ran out",
            Self::NoEvidence => "no usable sample",
        })
    }
}

/// Why a row count wasn't chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// Measured (or, with a handful of samples, believed) slower than the choice.
    Slower,
    /// The row rule forbids it.
    Cliff,
    /// Far above both lines, twice: remembered as a cliff.
    DiscoveredCliff,
    /// Not better than stock by more than its uncertainty, that between sessions included.
    NotBetterThanStock,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slower => "slower than the choice",
            Self::Cliff => "a known cliff",
            Self::DiscoveredCliff => "a cliff: far above both lines, twice",
            Self::NotBetterThanStock => {
                "does not beat stock by more than its uncertainty, in this session and others"
            }
        })
    }
}

/// What a search concludes.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// How sure it is.
    pub verdict: Verdict,
    /// The chosen share; 0 unless [`Verdict::Confirmed`].
    pub ratio: Ratio,
    /// The secondary unit's rows; 0 with a ratio of 0.
    pub secondary_rows: u32,
    /// The fitted lines; `None` if no usable split and stock were seen.
    pub lines: Option<Lines>,
    /// Median of kept stock calls, in ms.
    pub stock_ms: Option<f64>,
    /// Median of kept calls of the best split found, in ms, whether or not it was chosen.
    pub split_ms: Option<f64>,
    /// Rows of that best split.
    pub best_split_rows: Option<u32>,
    /// Stock over that best split: the 95 % interval on the ratio of pairs of this session.
    pub speed_up: Option<Interval>,
    /// The same, widened by the spread between sessions of one machine: what another day may bring.
    pub speed_up_any_session: Option<Interval>,
    /// Pairs behind the interval.
    pub pairs: u32,
    /// Row counts that were measured or considered and not chosen.
    pub rejected: Vec<(u32, Rejection)>,
    /// Cliffs that the row rule didn't know.
    pub discovered_cliffs: Vec<Cliff>,
}

impl Outcome {
    /// Whether a split is chosen because it beat stock by more than its uncertainty.
    pub fn confirmed(&self) -> bool {
        self.verdict == Verdict::Confirmed
    }
}
