//! Which two units share the rows.

use std::str::FromStr;

use fusion_calibrations::chip::Pair;

/// Which two units to open.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum PairKind {
    /// GPU and CPU if MLX reports a GPU, else the development pair.
    #[default]
    Auto,
    /// Two CPU streams, each on a core of its own where there are two.
    Development,
    /// Two CPU streams, the secondary of which does `WorkFactor` times the work a row.
    Asymmetric(WorkFactor),
}

impl PairKind {
    /// Work that the secondary unit does a row, in units of the product's own.
    pub(crate) fn work_factor(self) -> f64 {
        match self {
            Self::Asymmetric(factor) => factor.0,
            Self::Auto | Self::Development => 1.0,
        }
    }

    /// The pair as it is recorded, given whether its primary unit is a GPU. The work factor is only told apart, not told.
    pub(crate) fn identity(self, on_gpu: bool) -> Pair {
        match self {
            Self::Asymmetric(factor) => Pair::AsymmetricDevelopment { tag: factor.tag() },
            Self::Auto if on_gpu => Pair::GpuAndCpu,
            Self::Auto | Self::Development => Pair::Development,
        }
    }
}

/// How many times the work a row the secondary unit of an asymmetric pair does: 1 to 16.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkFactor(f64);

/// A number that is no work factor.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("'{0}' is not a work factor: give a number from 1 (equal units) to 16")]
pub struct WorkFactorError(pub String);

impl WorkFactor {
    const MAX: f64 = 16.0;

    /// A factor in `[1, 16]`.
    ///
    /// # Errors
    /// [`WorkFactorError`] for anything else.
    pub fn new(factor: f64) -> Result<Self, WorkFactorError> {
        if (1.0..=Self::MAX).contains(&factor) {
            Ok(Self(factor))
        } else {
            Err(WorkFactorError(factor.to_string()))
        }
    }

    /// Tells two factors apart without giving either away at a glance.
    fn tag(self) -> u32 {
        crc32fast::hash(&self.0.to_bits().to_be_bytes())
    }
}

impl FromStr for WorkFactor {
    type Err = WorkFactorError;

    fn from_str(text: &str) -> Result<Self, WorkFactorError> {
        text.parse().map_err(|_| WorkFactorError(text.to_owned())).and_then(Self::new)
    }
}

/// The rows that the secondary unit multiplies for `rows` rows of result: the rest is ballast, real work whose result is
/// dropped. It is one product, since each call costs something that does not grow with the rows.
pub(crate) fn worked_rows(rows: u32, factor: f64) -> u32 {
    (f64::from(rows) * factor).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_multiplies_the_rows() {
        assert_eq!(worked_rows(100, 1.0), 100);
        assert_eq!(worked_rows(100, 3.55), 355);
        assert_eq!(worked_rows(0, 4.0), 0);
        // One row cannot do half a row more: rounded.
        assert_eq!(worked_rows(1, 1.4), 1);
    }

    #[test]
    fn only_sensible_factors_pass() {
        assert!("1".parse::<WorkFactor>().is_ok() && "2.6".parse::<WorkFactor>().is_ok());
        for bad in ["0.9", "17", "NaN", "inf", "two", ""] {
            assert!(bad.parse::<WorkFactor>().is_err(), "{bad}");
        }
    }

    #[test]
    fn factors_have_tags_of_their_own() {
        let tag = |factor| WorkFactor::new(factor).unwrap().tag();
        assert_eq!(tag(1.7), tag(1.7));
        assert_ne!(tag(1.7), tag(1.71));
    }

    #[test]
    fn only_auto_on_a_gpu_is_the_real_pair() {
        assert_eq!(PairKind::Auto.identity(true), Pair::GpuAndCpu);
        assert_eq!(PairKind::Auto.identity(false), Pair::Development);
        assert_eq!(PairKind::Development.identity(true), Pair::Development);
    }
}
