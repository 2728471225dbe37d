//! What is believed of both units' times per row: a Kalman filter on their logarithms, with what it must withstand.
//!
//! The state is the logarithm of each unit's time over the stored one. A call that shows both units is taken in as two independent observations: their difference,
//! which what slows the whole call (an accident, the first call after a rest, a hot moment) leaves alone, and their mean, which it moves.
//!
//! What can't be told at once is held back for one call: a call that is far too slow as a whole, or one that shows a single unit far too slow, is an accident more often
//! than a change; a change shows again. Nothing makes a product too fast: what was believed before such a call was wrong, so it is forgotten. That holds for a unit
//! whose time is hidden too: it was done by the time that the other one was.

use super::{BOUND, CALL_DEVIATION, DRIFT_DEVIATION, LIMIT, UNIT_SESSION_DEVIATION};
use crate::sample::Unit;

/// Standard deviation of the logarithm of what slows a call as a whole: the calls of one session differ by about 1.5 %, and as much again for hot and cool moments.
const COMMON_DEVIATION: f64 = 0.022;
/// Variance of what one call shows of one unit.
const ONE_UNIT_VARIANCE: f64 = CALL_DEVIATION * CALL_DEVIATION + COMMON_DEVIATION * COMMON_DEVIATION;
/// How the difference (secondary less primary) and the mean of the units are made of them.
const DIFFERENCE: [f64; 2] = [-1.0, 1.0];
const MEAN: [f64; 2] = [0.5, 0.5];

/// A belief. Primary unit first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Belief {
    /// Logarithms of believed over stored time per row.
    offsets: [f64; 2],
    variances: [f64; 2],
    covariance: f64,
    /// Whether the last call was held back: the next one counts, whatever it says.
    doubted: bool,
}

impl Belief {
    /// Nothing was seen yet: the stored values, as far as they can be trusted in another session.
    pub(super) fn new() -> Self {
        Self {
            offsets: [0.0; 2],
            variances: [UNIT_SESSION_DEVIATION.powi(2); 2],
            covariance: 0.0,
            doubted: false,
        }
    }

    /// Believed over stored time per row.
    pub(super) fn factor(&self, unit: Unit) -> f64 {
        self.offsets[index(unit)].exp()
    }

    /// What the calls said since was wrong: believe this rather than the next calls.
    pub(super) fn trusted(self) -> Self {
        Self { variances: [(CALL_DEVIATION / 2.0).powi(2); 2], covariance: 0.0, doubted: false, ..self }
    }

    /// A call that shows both units.
    pub(super) fn observe_both(&mut self, primary: f64, secondary: f64) {
        self.drift();
        let seen = [primary, secondary];
        let noise = CALL_DEVIATION.powi(2);
        for (unit, offset) in seen.into_iter().enumerate() {
            let expected = (self.variances[unit] + noise + COMMON_DEVIATION.powi(2)).sqrt();
            if offset - self.offsets[unit] < -BOUND * expected {
                self.widen(unit);
            }
        }
        self.learn_difference(seen, 2.0 * noise);
        self.learn_mean(seen, noise / 2.0 + COMMON_DEVIATION.powi(2));
        self.keep_bounds();
    }

    /// A call that shows one unit: the other was done before anybody looked, and so takes `other_at_most`.
    pub(super) fn observe_one(&mut self, unit: Unit, offset: f64, other_at_most: Option<f64>) {
        self.drift();
        let at = index(unit);
        if let Some(most) = other_at_most {
            self.learn_at_most(1 - at, most);
        }
        let surprise = offset - self.offsets[at];
        let expected = (self.variances[at] + ONE_UNIT_VARIANCE).sqrt();
        if surprise > BOUND * expected && !self.doubted {
            self.doubted = true;
            return self.widen(at);
        }
        if surprise < -BOUND * expected {
            self.widen(at);
        }
        self.doubted = false;
        self.learn_unit(at, surprise);
    }

    /// A unit that was done can't be as slow as was believed, if that is more: it was an accident.
    fn learn_at_most(&mut self, at: usize, most: f64) {
        let surprise = most - self.offsets[at];
        if surprise < -(self.variances[at] + ONE_UNIT_VARIANCE).sqrt() {
            self.widen(at);
            self.learn_unit(at, surprise);
        }
    }

    fn learn_unit(&mut self, at: usize, surprise: f64) {
        let mut weights = [0.0; 2];
        weights[at] = 1.0;
        self.learn(weights, surprise, ONE_UNIT_VARIANCE);
        self.keep_bounds();
    }

    fn learn_difference(&mut self, seen: [f64; 2], noise: f64) {
        let surprise = project(DIFFERENCE, seen) - project(DIFFERENCE, self.offsets);
        let cut_off = self.learn(DIFFERENCE, surprise, noise);
        if cut_off {
            // Either an accident of one unit or a change: what follows decides, so what follows must count.
            self.widen(0);
            self.widen(1);
        }
    }

    fn learn_mean(&mut self, seen: [f64; 2], noise: f64) {
        let surprise = project(MEAN, seen) - project(MEAN, self.offsets);
        let expected = (self.variance_of(MEAN) + noise).sqrt();
        let far = surprise.abs() > BOUND * expected;
        if far {
            self.widen_together();
        }
        let doubted = far && surprise > 0.0 && !self.doubted;
        self.doubted = doubted;
        if !doubted {
            self.learn(MEAN, surprise, noise);
        }
    }

    /// Takes one observation of `weights` times the state in; whether it was so far away that it was cut off.
    fn learn(&mut self, weights: [f64; 2], surprise: f64, noise: f64) -> bool {
        let [primary, secondary] = weights;
        let shared = [
            self.variances[0] * primary + self.covariance * secondary,
            self.covariance * primary + self.variances[1] * secondary,
        ];
        let variance = project(weights, shared) + noise;
        let most = BOUND * variance.sqrt();
        let gains = shared.map(|shared| shared / variance);
        for (unit, gain) in gains.into_iter().enumerate() {
            self.offsets[unit] += gain * surprise.clamp(-most, most);
            self.variances[unit] -= gain * shared[unit];
        }
        self.covariance -= gains[0] * shared[1];
        surprise.abs() > most
    }

    fn variance_of(&self, weights: [f64; 2]) -> f64 {
        let [primary, secondary] = weights;
        primary.powi(2) * self.variances[0]
            + secondary.powi(2) * self.variances[1]
            + 2.0 * primary * secondary * self.covariance
    }

    /// A call later.
    fn drift(&mut self) {
        self.variances = self.variances.map(|variance| variance + DRIFT_DEVIATION.powi(2));
    }

    /// One unit may have changed by as much as between sessions.
    fn widen(&mut self, unit: usize) {
        self.variances[unit] += UNIT_SESSION_DEVIATION.powi(2);
    }

    /// Both units may have changed alike.
    fn widen_together(&mut self) {
        self.widen(0);
        self.widen(1);
        self.covariance += UNIT_SESSION_DEVIATION.powi(2);
    }

    fn keep_bounds(&mut self) {
        self.offsets = self.offsets.map(|offset| offset.clamp(-LIMIT.ln(), LIMIT.ln()));
    }
}

fn index(unit: Unit) -> usize {
    match unit {
        Unit::Primary => 0,
        Unit::Secondary => 1,
    }
}

fn project(weights: [f64; 2], values: [f64; 2]) -> f64 {
    weights[0] * values[0] + weights[1] * values[1]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: f64 = 0.4;

    /// A belief that calls have settled at the stored times.
    fn settled() -> Belief {
        let mut belief = Belief::new();
        for _ in 0..30 {
            belief.observe_both(0.0, 0.0);
        }
        belief
    }

    fn balance(belief: &Belief) -> f64 {
        belief.offsets[1] - belief.offsets[0]
    }

    #[test]
    fn a_slow_call_is_doubted_once_and_then_believed() {
        let mut belief = settled();
        belief.observe_both(SLOW, SLOW);
        assert!(belief.doubted && belief.offsets[0].abs() < 0.05, "{belief:?}");
        belief.observe_both(SLOW, SLOW);
        assert!(!belief.doubted && (belief.offsets[0] - SLOW).abs() < 0.05, "{belief:?}");
    }

    #[test]
    fn a_single_unit_is_doubted_once_too() {
        let mut belief = settled();
        belief.observe_one(Unit::Primary, SLOW, None);
        assert!(belief.doubted && belief.offsets[0].abs() < 0.01, "{belief:?}");
        belief.observe_one(Unit::Primary, SLOW, None);
        assert!(!belief.doubted && belief.offsets[0] > 0.8 * SLOW, "{belief:?}");
    }

    #[test]
    fn what_slows_the_whole_call_leaves_the_balance_alone() {
        let mut belief = settled();
        for _ in 0..6 {
            belief.observe_both(SLOW, SLOW);
            assert!(balance(&belief).abs() < 1e-9, "{belief:?}");
        }
    }

    #[test]
    fn a_hidden_unit_is_at_most_as_slow_as_the_other_showed() {
        let mut belief = Belief::new();
        belief.observe_both(SLOW, 0.0);
        let before = belief.offsets[0];
        belief.observe_one(Unit::Secondary, 0.0, Some(0.1));
        assert!(before > 0.3 && belief.offsets[0] < 0.13, "{before} {belief:?}");
        // A bound that is no news teaches nothing.
        let settled = settled();
        let mut bounded = settled;
        bounded.observe_one(Unit::Secondary, 0.0, Some(0.1));
        assert_eq!(bounded.offsets[0].to_bits(), settled.offsets[0].to_bits());
    }

    #[test]
    fn whatever_is_seen_the_variances_stay_those_of_a_belief() {
        let mut noise = crate::noise::Noise::new(3);
        let mut belief = Belief::new();
        for call in 0..5_000 {
            let wild = |deviation: f64| deviation.clamp(-1e3, 1e3);
            let (one, other) = (wild(noise.normal() * 0.5), wild(noise.normal() * 0.5));
            match call % 3 {
                0 => belief.observe_both(one, other),
                1 => belief.observe_one(Unit::Primary, one, Some(other)),
                _ => belief.observe_one(Unit::Secondary, one, Some(other)),
            }
            let [primary, secondary] = belief.variances;
            assert!(primary > 0.0 && secondary > 0.0, "{call}: {belief:?}");
            assert!(belief.covariance.powi(2) <= primary * secondary * (1.0 + 1e-9), "{call}: {belief:?}");
            assert!(belief.offsets.iter().all(|offset| offset.abs() <= LIMIT.ln()), "{call}: {belief:?}");
        }
    }

    #[test]
    fn a_trusted_belief_doubts_nothing() {
        let mut belief = settled();
        belief.observe_both(SLOW, SLOW);
        assert!(!belief.trusted().doubted);
        assert_eq!(belief.trusted().covariance.to_bits(), 0.0_f64.to_bits());
    }
}
