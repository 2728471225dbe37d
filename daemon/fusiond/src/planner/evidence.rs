//! What running clients show of the stored calibrations, without measuring.
//!
//! A client's split calls refresh a layer's live lines. That counts as freshness; and where the live lines say that the stored ratio
//! loses, it is evidence of drift. Heat is drift that is gone when the machine may be measured: so a drift that the measurement doesn't find makes the
//! next one of that layer wait twice as long.

use std::collections::BTreeMap;
use std::time::Duration;

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::lines::Lines;
use fusion_calibrations::shape::Layer;

use super::moment::Moment;
use super::policy::Policy;

/// Observations that bring the balance back (`calibrations::live`): from so many on they count.
const ENOUGH: u32 = 3;
/// The longest wait for a drift that was never found.
const LONGEST_PATIENCE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Places that are remembered; of more, those seen longest ago are forgotten.
const MOST: usize = 8192;

/// How much longer a split at `stored` lines' balance takes than at that of the `live` ones, if those are true: a share, without the
/// cost of splitting itself.
pub fn loss(stored: &Lines, live: &Lines) -> f64 {
    let ms_per_row =
        |share: f64| (live.primary_ms_per_row * (1.0 - share)).max(live.secondary_ms_per_row * share);
    let (taken, best) = (ms_per_row(stored.balanced_ratio().get()), ms_per_row(live.balanced_ratio().get()));
    let loss = taken / best - 1.0;
    if loss.is_finite() { loss.max(0.0) } else { 0.0 }
}

/// What clients showed of one layer under one set of conditions.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Seen {
    /// Observations that counted.
    observations: u32,
    /// When the last was made.
    last: Moment,
    /// What the stored ratio loses by them, and when that was first more than is tolerated.
    drift: Option<(f64, Moment)>,
    /// Measurements in a row that didn't find the drift.
    unconfirmed: u32,
}

impl Seen {
    /// When clients last confirmed that something is known here.
    pub fn confirmed(&self) -> Option<Moment> {
        (self.observations >= ENOUGH).then_some(self.last)
    }

    /// What the stored ratio loses, and since when that is seen, if it is too much.
    pub fn drift(&self) -> Option<(f64, Moment)> {
        self.drift.filter(|_| self.observations >= ENOUGH)
    }

    /// How long after a measurement drift may cause the next.
    pub fn patience(&self, policy: &Policy) -> Duration {
        policy.drift_patience.saturating_mul(1 << self.unconfirmed.min(20)).min(LONGEST_PATIENCE)
    }
}

/// Everything that clients of one engine showed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    seen: BTreeMap<(Layer, Conditions), Seen>,
}

impl Evidence {
    /// A client's calls refreshed the live lines of a layer; the stored ratio loses [`loss`] by them.
    pub fn observed(
        &mut self,
        now: Moment,
        layer: Layer,
        conditions: Conditions,
        loss: f64,
        policy: &Policy,
    ) {
        let seen = self.seen.entry((layer, conditions)).or_default();
        seen.observations = seen.observations.saturating_add(1);
        seen.last = now;
        seen.drift = match seen.drift {
            Some((_, since)) if loss >= policy.drift_loss => Some((loss, since)),
            None if loss >= policy.drift_loss => Some((loss, now)),
            _ => None,
        };
        if self.seen.len() > MOST {
            let oldest = self.seen.iter().min_by_key(|(_, seen)| seen.last).map(|(place, _)| *place);
            self.seen.retain(|place, _| Some(*place) != oldest);
        }
    }

    /// A layer was measured; whether that moved its lines. If clients saw a drift, it was found or not.
    pub fn measured(&mut self, layer: Layer, conditions: Conditions, moved: bool) {
        if let Some(seen) = self.seen.get_mut(&(layer, conditions))
            && seen.drift.take().is_some()
        {
            seen.unconfirmed = if moved { 0 } else { seen.unconfirmed.saturating_add(1) };
        }
    }

    /// What clients showed of a layer.
    pub fn of(&self, layer: Layer, conditions: Conditions) -> Option<&Seen> {
        self.seen.get(&(layer, conditions))
    }

    /// Nothing that was seen of one engine holds for another.
    pub fn clear(&mut self) {
        self.seen.clear();
    }

    /// Takes a clock that ran backwards in: nothing was seen later than now.
    pub fn settle(&mut self, now: Moment) {
        for seen in self.seen.values_mut() {
            seen.last = seen.last.min(now);
            seen.drift = seen.drift.map(|(loss, since)| (loss, since.min(now)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::examples::LINES as STORED;
    use fusion_calibrations::shape::{Layout, WeightFormat};

    fn at(seconds: u64) -> Moment {
        Moment::from_unix_ms(1_000_000_000 + 1000 * seconds)
    }

    fn layer(outputs: u32) -> Layer {
        Layer::new(64, outputs, WeightFormat::F16, Layout::default()).unwrap()
    }

    #[test]
    fn the_loss_is_what_a_wrong_balance_costs() {
        assert_eq!(loss(&STORED, &STORED), 0.0);
        // A quarter of the rows on a unit that is twice as slow as thought: 0.06 x 0.25 against 0.01 x 6/7.
        let slower = Lines { secondary_ms_per_row: 0.06, ..STORED };
        assert!((loss(&STORED, &slower) - (0.015 / (0.01 * 6.0 / 7.0) - 1.0)).abs() < 1e-12);
        assert!(
            loss(&STORED, &Lines { primary_ms_per_row: 0.02, secondary_ms_per_row: 0.06, ..STORED }) < 1e-12
        );
        assert_eq!(loss(&STORED, &Lines { primary_ms_per_row: f64::NAN, ..STORED }), 0.0);
    }

    #[test]
    fn three_observations_count_and_drift_ends_with_its_cause() {
        let (policy, conditions) = (Policy::default(), Conditions::default());
        let mut evidence = Evidence::default();
        for second in 0..3 {
            assert!(evidence.of(layer(1), conditions).is_none_or(|seen| seen.confirmed().is_none()));
            evidence.observed(at(second), layer(1), conditions, 0.05, &policy);
        }
        let seen = *evidence.of(layer(1), conditions).unwrap();
        assert_eq!((seen.confirmed(), seen.drift()), (Some(at(2)), Some((0.05, at(0)))));
        assert_eq!(evidence.of(layer(2), conditions), None);
        evidence.observed(at(3), layer(1), conditions, 0.01, &policy);
        assert_eq!(evidence.of(layer(1), conditions).unwrap().drift(), None);
    }

    #[test]
    fn a_drift_that_is_not_found_is_looked_for_less_and_less() {
        let (policy, conditions) = (Policy::default(), Conditions::default());
        let mut evidence = Evidence::default();
        let mut patience = policy.drift_patience;
        for round in 0..40 {
            for call in 0..3 {
                evidence.observed(at(10 * round + call), layer(1), conditions, 0.05, &policy);
            }
            let seen = *evidence.of(layer(1), conditions).unwrap();
            assert!(seen.drift().is_some());
            assert_eq!(seen.patience(&policy), patience);
            evidence.measured(layer(1), conditions, false);
            assert!(evidence.of(layer(1), conditions).unwrap().drift().is_none());
            patience = (patience * 2).min(LONGEST_PATIENCE);
        }
        evidence.measured(layer(1), conditions, false);
        assert_eq!(evidence.of(layer(1), conditions).unwrap().patience(&policy), LONGEST_PATIENCE);
        for _ in 0..3 {
            evidence.observed(at(1000), layer(1), conditions, 0.05, &policy);
        }
        evidence.measured(layer(1), conditions, true);
        assert_eq!(evidence.of(layer(1), conditions).unwrap().patience(&policy), policy.drift_patience);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut evidence = Evidence::default();
        for outputs in 1..=(MOST as u32 + 50) {
            evidence.observed(
                at(outputs.into()),
                layer(outputs),
                Conditions::default(),
                0.0,
                &Policy::default(),
            );
        }
        assert_eq!(evidence.seen.len(), MOST);
        assert!(evidence.of(layer(50), Conditions::default()).is_none());
    }
}
