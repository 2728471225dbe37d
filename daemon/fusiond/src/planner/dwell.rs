//! Since when the machine is in the state that it is in.

use std::time::Duration;

use fusion_calibrations::conditions::Conditions;

use super::moment::Moment;

/// The present conditions, and since when they hold. Conditions that come and go never settle, so nothing is measured under them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dwell {
    conditions: Conditions,
    since: Moment,
}

impl Dwell {
    /// Conditions that were seen for the first time.
    pub fn new(now: Moment, conditions: Conditions) -> Self {
        Self { conditions, since: now }
    }

    /// Conditions as they are now. A change, and a clock that ran backwards, begin anew.
    pub fn see(&mut self, now: Moment, conditions: Conditions) {
        if self.conditions != conditions || now < self.since {
            *self = Self::new(now, conditions);
        }
    }

    /// Nobody knows what was in between: the machine slept, or the clock was set.
    pub fn restart(&mut self, now: Moment) {
        self.since = now;
    }

    /// The conditions now.
    pub fn conditions(&self) -> Conditions {
        self.conditions
    }

    /// When they count, if they stay; `None` if they do already.
    pub fn settles(&self, now: Moment, dwell: Duration) -> Option<Moment> {
        // A clock that ran backwards can't make anyone wait longer than once more.
        let at = self.since.min(now).after(dwell);
        if self.since <= now && at <= now { None } else { Some(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_calibrations::conditions::Power;

    const DWELL: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Moment {
        Moment::from_unix_ms(1_000_000_000 + 1000 * seconds)
    }

    #[test]
    fn only_what_stays_settles() {
        let (ac, battery) = (Conditions { power: Power::Ac, ..Conditions::default() }, Conditions::default());
        let mut dwell = Dwell::new(at(0), ac);
        assert_eq!(dwell.settles(at(0), DWELL), Some(at(30)));
        dwell.see(at(20), ac);
        assert_eq!((dwell.settles(at(29), DWELL), dwell.settles(at(30), DWELL)), (Some(at(30)), None));
        for second in (30..300).step_by(20) {
            dwell.see(at(second), if second % 40 == 30 { battery } else { ac });
            assert!(dwell.settles(at(second + 19), DWELL).is_some(), "{second}");
        }
        dwell.restart(at(400));
        assert_eq!(dwell.settles(at(401), DWELL), Some(at(430)));
    }

    #[test]
    fn a_clock_set_back_costs_one_dwell() {
        let mut dwell = Dwell::new(at(1_000_000), Conditions::default());
        assert_eq!(dwell.settles(at(5), DWELL), Some(at(35)));
        dwell.see(at(5), Conditions::default());
        assert_eq!((dwell.settles(at(6), DWELL), dwell.settles(at(35), DWELL)), (Some(at(35)), None));
    }
}
