//! One timed call, and what became of it.

use std::fmt;

/// One of the two units that share a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// The unit that stock MLX uses: the GPU on a Mac.
    Primary,
    /// The unit that helps: the CPU on a Mac.
    Secondary,
}

impl Unit {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Primary => Self::Secondary,
            Self::Secondary => Self::Primary,
        }
    }
}

/// When both parts of a split were seen to finish, in milliseconds after submission.
///
/// The parts are waited for one after the other. The one waited for first is exact. The other is exact only if it finished
/// later; otherwise it was already done and its time is an upper bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FinishTimes {
    /// When waiting for the primary unit's part returned, in ms.
    pub primary_ms: f64,
    /// When waiting for the secondary unit's part returned, in ms.
    pub secondary_ms: f64,
    /// The unit that was waited for first.
    pub first_waited: Unit,
}

impl FinishTimes {
    /// The smallest gap between two returns that means the second wait really waited, as a share of the time so far. An
    /// already finished part returns within microseconds.
    const REAL_WAIT: f64 = 0.005;
    /// How much later than the unit waited for first the other must be seen to finish to be behind: between two units of one call that are balanced,
    /// noise makes about 2 %.
    const BEHIND: f64 = 0.05;

    /// The time a unit took, if it is exact.
    pub fn exact_ms(&self, unit: Unit) -> Option<f64> {
        let (this, other) = match unit {
            Unit::Primary => (self.primary_ms, self.secondary_ms),
            Unit::Secondary => (self.secondary_ms, self.primary_ms),
        };
        (unit == self.first_waited || this > other * (1.0 + Self::REAL_WAIT)).then_some(this)
    }

    /// The unit to wait for first in the next call of the same product. They take turns, so that noise hides the one as often as the other; but a unit that is
    /// behind has no turn, since that call would show nothing of the other, and the rows are far from balanced just then.
    pub fn next_first_waited(&self) -> Unit {
        let other = self.first_waited.other();
        let (first_ms, other_ms) = match self.first_waited {
            Unit::Primary => (self.primary_ms, self.secondary_ms),
            Unit::Secondary => (self.secondary_ms, self.primary_ms),
        };
        if other_ms > first_ms * (1.0 + Self::BEHIND) { self.first_waited } else { other }
    }
}

/// Share of a call during which a unit's thread may wait for a core before the call counts as disturbed. Two calls of a quiet machine
/// differ by about 1.5 %, so a smaller wait can't be seen in the times.
const TOLERATED_RUN_DELAY: f64 = 0.02;
/// A wait that is none: a call wakes its threads a few times, and each has its core some 10 us later on a quiet machine too. In ms.
const WAKING_MS: f64 = 0.06;

/// Whether other programs disturbed a call of `total_ms`, whose units' threads were ready but had no core for `run_delay_ms`. Where the system doesn't
/// tell, none did.
pub fn is_disturbed(run_delay_ms: Option<f64>, total_ms: f64) -> bool {
    run_delay_ms.is_some_and(|delay| delay > (TOLERATED_RUN_DELAY * total_ms).max(WAKING_MS))
}

/// Why a sample doesn't count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// A call that only warms up: the first after a change of arm runs 1.04-1.25 times slower on a cool machine and 10 %
    /// faster on a hot one.
    FirstAfterChange,
    /// The thread of a unit waited for a core longer than is tolerated.
    Disturbed,
    /// Conditions differed before and after.
    ConditionsChanged,
    /// The clock jumped: the machine slept.
    ClockGap,
    /// The time isn't a positive finite number.
    Nonsense,
    /// A call of an earlier calibration of the same shape that showed a cliff: kept so that the cliff isn't forgotten.
    EarlierCliff,
}

impl DropReason {
    /// Every reason, in the order of the codes.
    pub const ALL: [Self; 6] = [
        Self::FirstAfterChange,
        Self::Disturbed,
        Self::ConditionsChanged,
        Self::ClockGap,
        Self::Nonsense,
        Self::EarlierCliff,
    ];

    /// The stable number of the reason in records; 0 is for a kept sample.
    pub fn code(self) -> u8 {
        self as u8 + 1
    }

    /// The reason of a stable number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstAfterChange => "first call after a change of arm",
            Self::Disturbed => "another process held the core",
            Self::ConditionsChanged => "conditions changed",
            Self::ClockGap => "the machine slept",
            Self::Nonsense => "not a time",
            Self::EarlierCliff => "showed a cliff in an earlier calibration",
        })
    }
}

/// One timed call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Rows of the secondary unit; 0 is stock: the primary unit alone.
    pub secondary_rows: u32,
    /// From submission until the joined result was there, in ms.
    pub total_ms: f64,
    /// When each part finished, where there were two parts and the machine tells.
    pub finish_times: Option<FinishTimes>,
    /// `None` if the sample counts.
    pub dropped: Option<DropReason>,
}

impl Sample {
    /// Whether the sample counts.
    pub fn is_kept(&self) -> bool {
        self.dropped.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_take_turns_unless_one_is_behind() {
        let times =
            |primary_ms, secondary_ms, first_waited| FinishTimes { primary_ms, secondary_ms, first_waited };
        // Hidden, or behind by no more than noise.
        assert_eq!(times(10.0, 10.001, Unit::Primary).next_first_waited(), Unit::Secondary);
        assert_eq!(times(10.0, 10.3, Unit::Primary).next_first_waited(), Unit::Secondary);
        assert_eq!(times(10.3, 10.0, Unit::Secondary).next_first_waited(), Unit::Primary);
        // Waited for first, the one behind would hide the other.
        assert_eq!(times(10.0, 11.0, Unit::Primary).next_first_waited(), Unit::Primary);
        assert_eq!(times(11.0, 10.0, Unit::Secondary).next_first_waited(), Unit::Secondary);
    }

    #[test]
    fn a_long_wait_for_a_core_is_a_disturbance() {
        assert!(!is_disturbed(None, 1.0));
        assert!(!is_disturbed(Some(0.19), 10.0));
        assert!(is_disturbed(Some(0.21), 10.0));
        // Waking is no disturbance, however short the call.
        assert!(!is_disturbed(Some(0.05), 1.0));
        assert!(is_disturbed(Some(0.07), 1.0));
    }

    #[test]
    fn only_what_was_waited_for_is_exact() {
        let hidden = FinishTimes { primary_ms: 10.0, secondary_ms: 10.001, first_waited: Unit::Primary };
        assert_eq!(hidden.exact_ms(Unit::Primary), Some(10.0));
        assert_eq!(hidden.exact_ms(Unit::Secondary), None);
        let later = FinishTimes { secondary_ms: 12.0, ..hidden };
        assert_eq!(later.exact_ms(Unit::Secondary), Some(12.0));
    }

    #[test]
    fn reasons_keep_their_codes() {
        for reason in DropReason::ALL {
            assert_eq!(DropReason::from_code(reason.code()), Some(reason));
        }
        assert_eq!(DropReason::from_code(0), None);
    }
}
