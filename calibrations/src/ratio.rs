//! The secondary unit's share of the rows.

use std::fmt;

/// The secondary unit's share of the rows: 0 means no split, at most [`Ratio::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Ratio(f64);

/// A number that is no ratio.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0} is not a ratio: it must lie between 0 (no split) and {max}", max = Ratio::MAX.0)]
pub struct RatioError(pub f64);

impl Ratio {
    /// No split: the primary unit does all the rows.
    pub const ZERO: Self = Self(0.0);
    /// The largest share that is ever served. A secondary unit that deserves more should have been the primary one.
    pub const MAX: Self = Self(0.9);

    /// Accepts `share` if it lies in `[0, 0.9]`.
    ///
    /// # Errors
    /// [`RatioError`] for anything else, NaN included.
    pub fn new(share: f64) -> Result<Self, RatioError> {
        if (0.0..=Self::MAX.0).contains(&share) { Ok(Self(share)) } else { Err(RatioError(share)) }
    }

    /// The nearest ratio to `share`; NaN becomes 0, since no evidence means no split.
    pub fn saturating(share: f64) -> Self {
        if share.is_nan() { Self::ZERO } else { Self(share.clamp(0.0, Self::MAX.0)) }
    }

    /// The share as a number.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Whether rows go to the secondary unit at all.
    pub fn splits(self) -> bool {
        self.0 > 0.0
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shares_up_to_the_maximum_are_ratios() {
        for good in [0.0, 1e-9, 0.5, 0.9] {
            assert_eq!(Ratio::new(good).unwrap().get(), good);
        }
        for bad in [-1e-9, 0.900_001, 1.0, f64::NAN, f64::INFINITY] {
            assert!(Ratio::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn saturating_never_leaves_the_range() {
        assert_eq!(Ratio::saturating(f64::NAN), Ratio::ZERO);
        assert_eq!(Ratio::saturating(-3.0), Ratio::ZERO);
        assert_eq!(Ratio::saturating(7.0), Ratio::MAX);
    }
}
