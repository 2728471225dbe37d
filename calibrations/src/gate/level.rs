//! The level of an arm: a robust centre of its latest calls, in the logarithm of ms per row.
//!
//! Logarithms turn "3 % faster" into a difference whatever the region's size. Centre and spread are median and scaled MAD of the latest
//! [`WINDOW`] calls, the spread moderated as in [`crate::stats`] (Smyth 2004). Everything is of fixed size: a call that is recorded
//! allocates nothing.

use crate::stats::{PRIOR_DEGREES, PRIOR_RELATIVE_DEVIATION};

/// Calls that a level is made of.
pub const WINDOW: usize = 16;

/// Scale of the median absolute deviation to a standard deviation (normal data).
const MAD_SCALE: f64 = 1.4826;
/// Variance of a median over that of a mean (normal data): pi / 2.
const MEDIAN_VARIANCE: f64 = std::f64::consts::FRAC_PI_2;
/// Student's t at 0.995 (two-sided 99 %) for 4 to 19 degrees of freedom.
const T_995: [f64; WINDOW] = [
    4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878,
    2.861,
];

/// The latest values, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Window {
    values: [f64; WINDOW],
    len: usize,
}

impl Window {
    pub(crate) fn push(&mut self, value: f64) {
        if self.len == WINDOW {
            self.values.copy_within(1.., 0);
            self.len -= 1;
        }
        self.values[self.len] = value;
        self.len += 1;
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn values(&self) -> &[f64] {
        &self.values[..self.len]
    }

    pub(crate) fn median(&self) -> Option<f64> {
        median_of(self.values())
    }

    /// Median of the newer half minus that of the older half: how the level moves.
    pub(crate) fn trend(&self) -> Option<f64> {
        let (older, newer) = self.values().split_at(self.len / 2);
        Some(median_of(newer)? - median_of(older)?)
    }

    fn mad(&self, centre: f64) -> f64 {
        let mut off = [0.0; WINDOW];
        for (slot, value) in off.iter_mut().zip(self.values()) {
            *slot = (value - centre).abs();
        }
        MAD_SCALE * median_of(&off[..self.len]).unwrap_or(0.0)
    }

    /// The level of what is in the window.
    pub(crate) fn level(&self) -> Option<Level> {
        let value = self.median()?;
        let count = self.len as f64;
        let own = self.mad(value).powi(2) * (count - 1.0);
        let variance =
            (PRIOR_DEGREES * PRIOR_RELATIVE_DEVIATION.powi(2) + own) / (PRIOR_DEGREES + count - 1.0);
        Some(Level { value, deviation: variance.sqrt(), count: self.len as u32 })
    }
}

fn median_of(values: &[f64]) -> Option<f64> {
    let mut sorted = [0.0; WINDOW];
    let sorted = &mut sorted[..values.len().min(WINDOW)];
    sorted.copy_from_slice(&values[..sorted.len()]);
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some(sorted[middle - 1].midpoint(sorted[middle])),
    }
}

/// Where an arm stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Logarithm of ms per row.
    pub value: f64,
    /// Standard deviation of one call's logarithm.
    pub deviation: f64,
    /// Calls behind it, at most [`WINDOW`].
    pub count: u32,
}

impl Level {
    /// Expected time of a call of `rows` rows, in ms.
    pub fn ms(&self, rows: u32) -> f64 {
        self.value.exp() * f64::from(rows)
    }

    /// Whether it can be a level at all: kept states come from outside.
    pub(crate) fn is_sound(&self) -> bool {
        self.value.is_finite() && self.deviation > 0.0 && self.deviation.is_finite() && self.count > 0
    }

    fn variance_of_centre(&self) -> f64 {
        let inefficiency = if self.count < 3 { 1.0 } else { MEDIAN_VARIANCE };
        inefficiency * self.deviation.powi(2) / f64::from(self.count.max(1))
    }

    /// The logarithm of how many times faster `self` is than `other`, with its 99 % interval: low, value, high.
    pub(crate) fn faster_than(&self, other: &Self) -> LogGain {
        let degrees = (self.count.min(other.count).max(1) as usize - 1).min(WINDOW - 1);
        let half_width = T_995[degrees] * (self.variance_of_centre() + other.variance_of_centre()).sqrt();
        let value = other.value - self.value;
        LogGain { low: value - half_width, value, high: value + half_width }
    }
}

/// A speed-up with its interval, as logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LogGain {
    pub(crate) low: f64,
    pub(crate) value: f64,
    pub(crate) high: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{median, scaled_mad};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_window_is_the_statistics_of_its_latest_values(values in prop::collection::vec(-5.0f64..5.0, 1..40)) {
            let mut window = Window::default();
            for value in &values {
                window.push(*value);
            }
            let latest = &values[values.len().saturating_sub(WINDOW)..];
            prop_assert_eq!(window.values(), latest);
            prop_assert_eq!(window.median(), median(latest));
            let centre = median(latest).unwrap();
            prop_assert!((window.mad(centre) - scaled_mad(latest).unwrap()).abs() < 1e-12);
        }
    }

    #[test]
    fn one_call_has_the_prior_spread() {
        let mut window = Window::default();
        window.push(1.0);
        let level = window.level().unwrap();
        assert!((level.deviation - PRIOR_RELATIVE_DEVIATION).abs() < 1e-12);
        let gain = level.faster_than(&Level { value: 1.2, ..level });
        assert!((gain.high - gain.value - 4.604 * 2.0f64.sqrt() * 0.015).abs() < 1e-9);
    }
}
