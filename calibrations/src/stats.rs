//! Robust statistics of a handful of timings.
//!
//! Timings have a hard lower edge and a long upper tail, so the centre is the median and the spread the median absolute
//! deviation, scaled by 1.4826 to equal the standard deviation of a normal distribution (Rousseeuw and Croux, 1993).
//!
//! A comparison is made on *pairs* of calls that were adjacent in time: what slowed one slowed the other. The interval
//! on the ratio of pairs is a Student-t interval on the logarithms with a *moderated* variance (Smyth, 2004, "Linear
//! models and empirical Bayes methods", section 3): the sample variance of n pairs is pooled with a prior variance that counts as
//! [`PRIOR_DEGREES`] more degrees of freedom. It works from a single pair on, never claims more precision than timings of
//! matrix products are known to have, and converges to the ordinary interval as pairs come in.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Relative standard deviation of one call of a quiet machine, before any call was made: 1.5 %, the spread of FusionML's
/// published repetitions (`prefill_cells`: median of std/median over 40 cells of 50 calls).
pub const PRIOR_RELATIVE_DEVIATION: f64 = 0.015;

/// How many degrees of freedom the prior variance counts for.
pub const PRIOR_DEGREES: f64 = 4.0;

/// Scale of the median absolute deviation to the standard deviation of a normal distribution.
const MAD_SCALE: f64 = 1.4826;

/// Asymptotic standard deviation of a median over that of a mean, normal data: sqrt(pi / 2).
const MEDIAN_INEFFICIENCY: f64 = 1.253_314_137_315_500_3;

/// The median of finite numbers; `None` of nothing. Not-a-numbers are ignored.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    if sorted.is_empty() {
        return None;
    }
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    Some(if sorted.len() % 2 == 1 { sorted[middle] } else { sorted[middle - 1].midpoint(sorted[middle]) })
}

/// The median absolute deviation from the median, scaled to the standard deviation of a normal distribution.
pub fn scaled_mad(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    median(&deviations).map(|mad| mad * MAD_SCALE)
}

/// A value with the interval it lies in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Best guess.
    pub value: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// A value that is exact.
    pub fn exact(value: f64) -> Self {
        Self { low: value, value, high: value }
    }
}

/// Two-sided confidence of every interval that is shown or decided on, unless one says otherwise.
pub const CONFIDENCE: f64 = 0.95;

/// The interval on numerator / denominator from pairs of positive timings that were adjacent in time, with the prior
/// spread of one call as [`PRIOR_RELATIVE_DEVIATION`]. `None` without a usable pair.
pub fn ratio_of_pairs(pairs: &[(f64, f64)], confidence: f64) -> Option<Interval> {
    let logs: Vec<f64> = pairs
        .iter()
        .map(|(numerator, denominator)| (numerator / denominator).ln())
        .filter(|log| log.is_finite())
        .collect();
    let centre = median(&logs)?;
    // The difference of two independent calls varies with twice the variance of one.
    let half_width = moderated_half_width(&logs, 2.0 * PRIOR_RELATIVE_DEVIATION.powi(2), confidence)?;
    Some(Interval {
        low: (centre - half_width).exp(),
        value: centre.exp(),
        high: (centre + half_width).exp(),
    })
}

/// The interval on the median of positive timings, by the same model. `None` without a usable one.
pub fn median_interval(times: &[f64], confidence: f64) -> Option<Interval> {
    let logs: Vec<f64> = times.iter().map(|time| time.ln()).filter(|log| log.is_finite()).collect();
    let centre = median(&logs)?;
    let half_width = moderated_half_width(&logs, PRIOR_RELATIVE_DEVIATION.powi(2), confidence)?;
    Some(Interval {
        low: (centre - half_width).exp(),
        value: centre.exp(),
        high: (centre + half_width).exp(),
    })
}

/// Half the width of the moderated interval on the median of `logs`, each of `prior_variance`.
fn moderated_half_width(logs: &[f64], prior_variance: f64, confidence: f64) -> Option<f64> {
    let count = logs.len() as f64;
    let deviation = scaled_mad(logs)?;
    let degrees = PRIOR_DEGREES + count - 1.0;
    let variance = (PRIOR_DEGREES * prior_variance + (count - 1.0) * deviation.powi(2)) / degrees;
    // With one or two values the median is the mean.
    let inefficiency = if logs.len() < 3 { 1.0 } else { MEDIAN_INEFFICIENCY };
    let t = StudentsT::new(0.0, 1.0, degrees).ok()?.inverse_cdf(0.5 + confidence / 2.0);
    Some(t * inefficiency * (variance / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_answers() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[f64::NAN, 1.0]), Some(1.0));
        assert!((scaled_mad(&[1.0, 2.0, 3.0, 4.0, 100.0]).unwrap() - 1.4826).abs() < 1e-12);
    }

    #[test]
    fn one_pair_has_the_prior_interval() {
        let interval = ratio_of_pairs(&[(2.0, 1.0)], CONFIDENCE).unwrap();
        // t(0.975, 4) = 2.7764; 2.7764 * sqrt(2) * 0.015 = 0.0589
        assert!((interval.value - 2.0).abs() < 1e-12);
        assert!(((interval.high / interval.value).ln() - 0.0589).abs() < 1e-3);
    }

    #[test]
    fn nonsense_pairs_are_no_evidence() {
        assert_eq!(ratio_of_pairs(&[(0.0, 1.0), (f64::NAN, 1.0), (1.0, 0.0)], CONFIDENCE), None);
    }

    #[test]
    fn the_interval_covers_as_often_as_it_says() {
        // 2,000 experiments of 6 pairs with 2 % noise a call from a fixed generator: a 95 % interval must cover the truth about that often.
        let mut state = 1u64;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        let mut normal = move || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        let covered = (0..2000)
            .filter(|_| {
                let pairs: Vec<(f64, f64)> =
                    (0..6).map(|_| (1.3 * (0.02 * normal()).exp(), (0.02 * normal()).exp())).collect();
                let interval = ratio_of_pairs(&pairs, CONFIDENCE).unwrap();
                interval.low <= 1.3 && 1.3 <= interval.high
            })
            .count();
        assert!((1840..=1990).contains(&covered), "{covered} of 2000 covered");
    }

    proptest! {
        #[test]
        fn scaling_both_sides_changes_nothing(
            pairs in prop::collection::vec((0.1f64..1e3, 0.1f64..1e3), 1..20),
            factor in 1e-3f64..1e3,
        ) {
            let scaled: Vec<_> = pairs.iter().map(|(a, b)| (a * factor, b * factor)).collect();
            let (one, other) = (ratio_of_pairs(&pairs, CONFIDENCE).unwrap(), ratio_of_pairs(&scaled, CONFIDENCE).unwrap());
            prop_assert!((one.low / other.low - 1.0).abs() < 1e-9 && (one.high / other.high - 1.0).abs() < 1e-9);
        }

        #[test]
        fn order_of_pairs_does_not_matter(pairs in prop::collection::vec((0.1f64..1e3, 0.1f64..1e3), 1..20)) {
            let mut reversed = pairs.clone();
            reversed.reverse();
            prop_assert_eq!(ratio_of_pairs(&pairs, CONFIDENCE), ratio_of_pairs(&reversed, CONFIDENCE));
        }

        #[test]
        fn swapping_sides_inverts_the_interval(pairs in prop::collection::vec((0.1f64..1e3, 0.1f64..1e3), 1..20)) {
            let swapped: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
            let (one, other) = (ratio_of_pairs(&pairs, CONFIDENCE).unwrap(), ratio_of_pairs(&swapped, CONFIDENCE).unwrap());
            prop_assert!((one.low * other.high - 1.0).abs() < 1e-9);
        }
    }
}
