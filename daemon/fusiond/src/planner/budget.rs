//! The duty budget: a token bucket in ms of machine time.
//!
//! Credit comes in by wall time times the duty of the present power state, up to what the policy lets it save up. What a job took is
//! charged afterwards; since a job stops before the call that wouldn't fit in its allowance, it overdraws by one call at most.
//!
//! ```text
//! spent <= credit at the start + sum over time of duty x elapsed + what one call took beyond its forerunners
//! ```
//!
//! Time that nobody can vouch for earns nothing: sleep, a clock that was set, and the time that the daemon didn't run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::moment::Moment;
use super::policy::{Policy, Share};

/// What of a budget survives a restart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BudgetState {
    /// Machine time that may be spent, in ms; negative if it was overdrawn.
    pub credit_ms: f64,
}

/// The bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    credit_ms: f64,
    as_of: Moment,
    duty: Share,
    /// What `duty` can save up; what is there already, where nothing is earned.
    capacity_ms: f64,
}

impl Budget {
    /// The bucket that a daemon left behind; a full one on a machine that never had one.
    pub fn restore(state: Option<BudgetState>, now: Moment, policy: &Policy, duty: Share) -> Self {
        let full = policy.capacity_ms(policy.duty_on_ac);
        let credit_ms = match state {
            // A damaged file is no reason to spend.
            Some(state) if !state.credit_ms.is_finite() => 0.0,
            Some(state) => state.credit_ms.min(full),
            None => full,
        };
        let mut budget = Self { credit_ms, as_of: now, duty: Share::NONE, capacity_ms: full };
        budget.earn(now, duty, policy);
        budget
    }

    /// From now on `duty` is earned. More than that can save up is lost: an hour on AC isn't spent on battery.
    pub fn earn(&mut self, now: Moment, duty: Share, policy: &Policy) {
        self.advance(now);
        self.duty = duty;
        if !duty.is_none() {
            self.capacity_ms = policy.capacity_ms(duty);
            self.credit_ms = self.credit_ms.min(self.capacity_ms);
        }
    }

    /// Credit at `now`, in ms; negative if overdrawn.
    pub fn credit_ms(&self, now: Moment) -> f64 {
        let earned = self.duty.of_ms(now.since(self.as_of));
        if earned > 0.0 { (self.credit_ms + earned).min(self.capacity_ms) } else { self.credit_ms }
    }

    /// The most that can be saved up at the present duty, in ms; nothing where nothing may be spent.
    pub fn capacity_ms(&self) -> f64 {
        if self.duty.is_none() { 0.0 } else { self.capacity_ms }
    }

    /// When there will be `need_ms`, if the present duty lasts; `None` if never.
    pub fn when(&self, now: Moment, need_ms: f64) -> Option<Moment> {
        let missing_ms = need_ms - self.credit_ms(now);
        if missing_ms <= 0.0 {
            return Some(now);
        }
        if need_ms > self.capacity_ms() {
            return None;
        }
        // One ms more, since moments have no fractions.
        let wait = Duration::try_from_secs_f64(missing_ms / self.duty.get() / 1e3).ok()?;
        Some(now.after(wait.saturating_add(Duration::from_millis(1))))
    }

    /// Machine time was spent. Nonsense is ignored.
    pub fn charge(&mut self, now: Moment, ms: f64) {
        self.advance(now);
        if ms.is_finite() && ms > 0.0 {
            self.credit_ms -= ms;
        }
    }

    /// The clock jumped, or the machine slept: the time since is nobody's.
    pub fn skip_to(&mut self, now: Moment) {
        self.as_of = now;
    }

    /// What survives a restart.
    pub fn state(&self, now: Moment) -> BudgetState {
        BudgetState { credit_ms: self.credit_ms(now) }
    }

    fn advance(&mut self, now: Moment) {
        self.credit_ms = self.credit_ms(now);
        self.as_of = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Moment {
        Moment::from_unix_ms(1_000_000_000 + ms)
    }

    fn policy() -> Policy {
        Policy::default()
    }

    fn empty(duty: Share) -> Budget {
        Budget::restore(Some(BudgetState { credit_ms: 0.0 }), at(0), &policy(), duty)
    }

    #[test]
    fn credit_grows_by_duty_up_to_an_hours_worth_and_is_there_when_it_said() {
        let budget = empty(policy().duty_on_ac);
        assert_eq!(budget.credit_ms(at(100_000)), 1000.0);
        assert_eq!(budget.credit_ms(at(36_000_000)), 36_000.0);
        let when = budget.when(at(0), 750.0).unwrap();
        assert!(budget.credit_ms(when) >= 750.0);
        assert!(budget.credit_ms(Moment::from_unix_ms(when.unix_ms() - 2)) < 750.0);
        assert_eq!((budget.when(at(0), -1.0), budget.when(at(0), 36_001.0)), (Some(at(0)), None));
    }

    #[test]
    fn what_was_earned_on_ac_is_not_spent_on_battery() {
        let mut budget = Budget::restore(None, at(0), &policy(), policy().duty_on_ac);
        assert_eq!(budget.credit_ms(at(0)), 36_000.0);
        budget.earn(at(1), policy().duty_on_battery, &policy());
        assert!((budget.credit_ms(at(1)) - 3600.0).abs() < 1e-6);
        budget.earn(at(2), Share::NONE, &policy());
        assert_eq!((budget.when(at(2), 5000.0), budget.capacity_ms()), (None, 0.0));
        assert!((budget.credit_ms(at(1_000_000)) - 3600.0).abs() < 1e-3);
    }

    #[test]
    fn a_restart_and_a_clock_that_runs_backwards_give_nothing_away() {
        let mut budget = empty(policy().duty_on_ac);
        budget.charge(at(100_000), 1500.0);
        assert_eq!(budget.state(at(100_000)).credit_ms, -500.0);
        budget.earn(at(0), policy().duty_on_ac, &policy());
        assert_eq!(budget.credit_ms(at(0)), -500.0);
        assert_eq!(budget.credit_ms(at(50_000)), 0.0);
        budget.skip_to(at(90_000));
        assert_eq!(budget.credit_ms(at(90_000)), -500.0);
        let kept = budget.state(at(90_000));
        let restored = Budget::restore(Some(kept), at(90_000_000), &policy(), policy().duty_on_ac);
        assert_eq!(restored.credit_ms(at(90_000_000)), -500.0);
        let nonsense = BudgetState { credit_ms: f64::NAN };
        assert_eq!(Budget::restore(Some(nonsense), at(0), &policy(), Share::NONE).credit_ms(at(0)), 0.0);
    }

    proptest! {
        /// Whatever happens in whatever order: what is spent stays below what was there, what was earned, and one call.
        #[test]
        fn the_budget_law_holds(
            events in prop::collection::vec((0u64..4_000_000, 0u8..6, 0.0f64..3000.0), 1..200),
        ) {
            let policy = policy();
            let mut budget = Budget::restore(None, at(0), &policy, policy.duty_on_ac);
            let (mut now, mut duty) = (at(0), policy.duty_on_ac);
            let (mut earned, mut spent, mut longest) = (budget.credit_ms(now), 0.0, 0.0f64);
            for (elapsed, what, ms) in events {
                if what != 5 {
                    now = now.after(Duration::from_millis(elapsed));
                    earned += duty.of_ms(Duration::from_millis(elapsed));
                }
                match what {
                    0 => duty = policy.duty_on_ac,
                    1 => duty = policy.duty_on_battery,
                    2 => duty = Share::NONE,
                    3 => {
                        let state = budget.state(now);
                        budget = Budget::restore(Some(state), now, &policy, duty);
                    }
                    4 if budget.credit_ms(now) > 0.0 => {
                        // A job's calls: each starts only while there is credit.
                        spent += ms;
                        longest = longest.max(ms);
                        budget.charge(now, ms);
                    }
                    4 => {}
                    // The clock is set back; what the true time earned is forgotten, never doubled.
                    _ => {
                        now = Moment::from_unix_ms(now.unix_ms().saturating_sub(elapsed));
                        budget.earn(now, duty, &policy);
                    }
                }
                budget.earn(now, duty, &policy);
                prop_assert!(budget.credit_ms(now) >= -longest - 1e-6);
                prop_assert!(spent <= earned + longest + 1e-6, "{} of {}", spent, earned);
            }
        }

        #[test]
        fn more_time_is_never_less_credit(start in -5e3f64..5e4, first in 0u64..10_000_000, more in 0u64..10_000_000) {
            let policy = policy();
            let budget = Budget::restore(Some(BudgetState { credit_ms: start }), at(0), &policy, policy.duty_on_ac);
            prop_assert!(budget.credit_ms(at(first + more)) >= budget.credit_ms(at(first)));
        }
    }
}
