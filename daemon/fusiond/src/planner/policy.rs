//! What the planner is told once: how much it may cost, and how long it waits.

use std::time::Duration;

use fusion_calibrations::conditions::{Conditions, LowPowerMode, Power, Thermal};

/// A share of wall time, between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Share(f64);

/// A number that is no share.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0} is no share of the time: write a number from 0 (never measure) to 1 (measure all the time)")]
pub struct ShareError(pub f64);

impl Share {
    /// Nothing.
    pub const NONE: Self = Self(0.0);

    /// Accepts a number from 0 to 1.
    ///
    /// # Errors
    /// [`ShareError`] for anything else, NaN included.
    pub fn new(share: f64) -> Result<Self, ShareError> {
        if (0.0..=1.0).contains(&share) { Ok(Self(share)) } else { Err(ShareError(share)) }
    }

    /// The share as a number.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Whether it is nothing.
    pub fn is_none(self) -> bool {
        self.0 <= 0.0
    }

    /// So much of `time`, in ms.
    pub fn of_ms(self, time: Duration) -> f64 {
        self.0 * time.as_secs_f64() * 1e3
    }
}

/// How the planner decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Share of wall time that measuring may take on AC power.
    pub duty_on_ac: Share,
    /// The same on battery, and where no sensor says.
    pub duty_on_battery: Share,
    /// Credit for so much time is saved up at most.
    pub saved_up: Duration,
    /// Conditions count once they held for so long.
    pub dwell: Duration,
    /// Clients must have been idle for so long: between two bursts of a conversation nothing is started.
    pub quiet: Duration,
    /// What nobody announces (other programs' load, free memory, another user's lock) is looked at again after this.
    pub look_again: Duration,
    /// A calibration that nobody confirmed for so long is stale.
    pub oldest: Duration,
    /// A drift of running clients is measured at the earliest so long after the calibration before. Doubled
    /// each time the measurement doesn't find what the clients saw.
    pub drift_patience: Duration,
    /// What the stored ratio must lose by the clients' calls before that counts as drift, as a share.
    pub drift_loss: f64,
    /// Every so many jobs, whoever waited for the most jobs comes first, however little it promises.
    pub fair_turn: u64,
    /// How many times its size a working set needs to be available: the operands, and as much again for everyone else.
    pub memory_margin: u64,
    /// Share of all cores that others may use.
    pub idle_cpu: f64,
    /// Share of the GPU that others may use. It has no low-priority queue: two processes share it evenly, whatever they are.
    pub idle_gpu: f64,
}

impl Default for Policy {
    /// 1 % on AC, 0.1 % on battery.
    fn default() -> Self {
        Self {
            duty_on_ac: Share(0.01),
            duty_on_battery: Share(0.001),
            // On AC 36 s: a model's layers, measured at once on a fresh machine. On battery 3.6 s.
            saved_up: Duration::from_secs(3600),
            dwell: Duration::from_secs(30),
            quiet: Duration::from_secs(10),
            look_again: Duration::from_secs(60),
            oldest: Duration::from_secs(30 * 24 * 3600),
            // Live lines serve meanwhile, and most drift is a hot afternoon.
            drift_patience: Duration::from_secs(6 * 3600),
            // Two calibrations of one shape differ by 2-3 % of a unit's time: less than this would be chasing noise. Live lines win it back anyway.
            drift_loss: 0.04,
            fair_turn: 8,
            memory_margin: 2,
            idle_cpu: 0.25,
            idle_gpu: 0.05,
        }
    }
}

impl Policy {
    /// Share of wall time that measuring may take under `conditions`: none in low-power mode or at heavy heat.
    pub fn duty(&self, conditions: Conditions) -> Share {
        if conditions.low_power_mode == LowPowerMode::On || conditions.thermal >= Thermal::Heavy {
            return Share::NONE;
        }
        match conditions.power {
            Power::Ac => self.duty_on_ac,
            Power::Battery | Power::Unknown => self.duty_on_battery,
        }
    }

    /// The most credit that can be saved up at `duty`, in ms of machine time.
    pub fn capacity_ms(&self, duty: Share) -> f64 {
        duty.of_ms(self.saved_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_spent_where_it_would_hurt() {
        let policy = Policy::default();
        let ac = Conditions { power: Power::Ac, ..Conditions::default() };
        assert_eq!(policy.duty(ac).get(), 0.01);
        assert_eq!(policy.duty(Conditions { thermal: Thermal::Moderate, ..ac }).get(), 0.01);
        for thermal in [Thermal::Heavy, Thermal::Trapping] {
            assert!(policy.duty(Conditions { thermal, ..ac }).is_none());
        }
        assert!(policy.duty(Conditions { low_power_mode: LowPowerMode::On, ..ac }).is_none());
        for power in [Power::Battery, Power::Unknown] {
            assert_eq!(policy.duty(Conditions { power, ..ac }).get(), 0.001);
        }
        assert!((policy.capacity_ms(policy.duty_on_ac) - 36_000.0).abs() < 1e-6);
    }

    #[test]
    fn only_shares_are_shares() {
        for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(Share::new(bad).is_err(), "{bad}");
        }
        assert_eq!(Share::new(1.0).unwrap().of_ms(Duration::from_secs(2)), 2000.0);
    }
}
