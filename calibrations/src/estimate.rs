//! What is believed of a shape under conditions.

use std::fmt;

use crate::conditions::Conditions;
use crate::lines::Lines;
use crate::ratio::Ratio;
use crate::shape::Shape;
use crate::stats::Interval;

/// Where an estimate comes from. The order is the order of trust: a later one is never overwritten by an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Provenance {
    /// A first guess: shipped with fusiond for this kind of chip, or taken over from a machine with another chip.
    Prior,
    /// Taken over from an equal machine.
    Imported,
    /// Derived from the calls of a running client.
    Observed,
    /// Measured by a worker of this daemon.
    Measured,
}

impl Provenance {
    /// Every provenance, in the order of the codes.
    pub const ALL: [Self; 4] = [Self::Prior, Self::Imported, Self::Observed, Self::Measured];

    /// The stable number in records.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The provenance of a stable number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// On which machine a number came about. The order is that of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// On this one.
    Here,
    /// On an equal one.
    EqualMachine,
    /// On another: a first guess.
    Elsewhere,
}

impl Provenance {
    /// On which machine a number of this provenance came about.
    pub fn origin(self) -> Origin {
        match self {
            Self::Measured | Self::Observed => Origin::Here,
            Self::Imported => Origin::EqualMachine,
            Self::Prior => Origin::Elsewhere,
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prior => "prior",
            Self::Imported => "imported",
            Self::Observed => "observed",
            Self::Measured => "measured",
        })
    }
}

/// Why an estimate should be measured anew. It is served meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StaleReason {
    /// Measured by another operating system build or MLX library.
    EngineChanged,
    /// Older than it may be.
    Age,
    /// Running clients saw other times.
    Drift,
}

impl fmt::Display for StaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EngineChanged => "measured with another OS build or MLX library",
            Self::Age => "too old",
            Self::Drift => "running clients see other times",
        })
    }
}

/// What is believed of a shape under conditions.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// What was multiplied.
    pub shape: Shape,
    /// The state of the machine while measuring.
    pub conditions: Conditions,
    /// The fitted lines; `None` where the search ended before both units were seen.
    pub lines: Option<Lines>,
    /// The chosen share; 0 unless splitting beats stock by more than its own uncertainty.
    pub ratio: Ratio,
    /// The secondary unit's rows at that ratio, by the row rule.
    pub secondary_rows: u32,
    /// Median time of stock, in ms.
    pub stock_ms: f64,
    /// Median time of the chosen split, in ms; that of stock if the ratio is 0.
    pub split_ms: f64,
    /// Stock over the best split, with the 95 % interval on the ratio of pairs. Kept also where the ratio is 0: it says why.
    pub speed_up: Interval,
    /// Samples that counted.
    pub kept_samples: u32,
    /// Samples that were thrown away.
    pub dropped_samples: u32,
    /// Largest relative error of the split result against the unsplit one, as max|a-b| / max|b|; `None` if unchecked.
    pub relative_error: Option<f64>,
    /// When it was measured, in ms since 1970 (UTC).
    pub measured_at_unix_ms: u64,
    /// Where it comes from.
    pub provenance: Provenance,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_is_trusted_most_and_codes_are_stable() {
        assert!(Provenance::Measured > Provenance::Observed && Provenance::Observed > Provenance::Imported);
        for provenance in Provenance::ALL {
            assert_eq!(Provenance::from_code(provenance.code()), Some(provenance));
        }
        assert_eq!(Provenance::from_code(4), None);
    }
}
