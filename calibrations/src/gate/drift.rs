//! Drift: has the level of an arm changed?
//!
//! A one-sided cumulative sum (Page 1954, "Continuous inspection schemes"): S becomes max(0, S + z - k), and S > h is an alarm, where z is the
//! deviation from the level in standard deviations. Timings have heavy upper tails (2 % of the calls take 1.5 times as long, which is
//! 27 standard deviations), so z is clipped: one or two disturbed calls are never an alarm.

/// Most that one call counts, in standard deviations.
pub const CLIP: f64 = 3.0;

/// Alarm threshold, in standard deviations. Above twice [`CLIP`], so that an alarm takes at least three calls; with normal data and an
/// allowance of 1 the mean time between false alarms is about exp(2 h) / 2, more than 10^5 calls (Siegmund's approximation).
pub const THRESHOLD: f64 = 6.5;

/// Allowance of the drift tests, in standard deviations: half of the change that is looked for. With a spread of 1.5 % a change of 4 % is
/// found in 5 calls.
pub const ALLOWANCE: f64 = 1.33;

/// One side of Page's test.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cusum {
    sum: f64,
}

impl Cusum {
    /// Takes one deviation in standard deviations; true is an alarm, after which the sum starts anew.
    pub fn push(&mut self, deviation: f64, allowance: f64) -> bool {
        // f64::max ignores a not-a-number: no evidence.
        self.sum = (self.sum + deviation.clamp(-CLIP, CLIP) - allowance).max(0.0);
        let alarm = self.sum > THRESHOLD;
        if alarm {
            self.sum = 0.0;
        }
        alarm
    }

    /// Where the sum stands, in standard deviations.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Forgets what was seen.
    pub fn reset(&mut self) {
        self.sum = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    fn calls_to_alarm(shift: f64, allowance: f64, limit: usize, noise: &mut Noise) -> usize {
        let mut cusum = Cusum::default();
        let outlier = |factor: f64| factor.ln() / 0.015;
        (0..limit)
            .find(|_| cusum.push(outlier(noise.call_factor(0.015)) + shift, allowance))
            .map_or(limit, |call| call + 1)
    }

    #[test]
    fn one_or_two_disturbed_calls_are_no_alarm_and_a_changed_level_is() {
        let mut cusum = Cusum::default();
        assert!(!cusum.push(1e9, 0.0) && !cusum.push(f64::INFINITY, 0.0));
        assert!(cusum.push(50.0, 0.0));
        assert_eq!(cusum.sum(), 0.0);
        assert!(!cusum.push(f64::NAN, 0.0));
    }

    #[test]
    fn delay_and_false_alarms_are_as_stated() {
        let mut noise = Noise::new(3);
        let delays: Vec<usize> =
            (0..200).map(|_| calls_to_alarm(4.0 / 1.5, ALLOWANCE, 1000, &mut noise)).collect();
        let mean = delays.iter().sum::<usize>() as f64 / 200.0;
        assert!((3.0..7.0).contains(&mean), "{mean} calls");
        assert_eq!(calls_to_alarm(0.0, ALLOWANCE, 50_000, &mut noise), 50_000);
    }
}
