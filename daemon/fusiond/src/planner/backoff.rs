//! What went wrong, and when it may be tried again.
//!
//! A shape that fails waits, twice as long each time in a row, up to a day. One that was interrupted by a client waits too, but less: it did nothing
//! wrong, yet a shape that never gets to its end between two bursts must not keep the others from theirs. One whose result its own lines contradict is
//! served, and repeated after a while. The worker as a whole (it isn't
//! there, or dies whatever it is given) backs off like a shape.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use fusion_calibrations::shape::Shape;

use super::moment::Moment;

/// First wait after a failure: a crash that has a passing cause is over by then.
const FIRST_WAIT: Duration = Duration::from_secs(300);
/// Longest wait after failures: an update may have repaired it without anyone saying so.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);
/// First wait after an interruption: about the pause between two bursts of a conversation.
const FIRST_WAIT_INTERRUPTED: Duration = Duration::from_secs(30);
/// Longest wait after interruptions.
const LONGEST_WAIT_INTERRUPTED: Duration = Duration::from_secs(3600);
/// First wait before a doubtful result is repeated. It is nearly always an accident, so the next one settles it.
const FIRST_WAIT_DOUBTFUL: Duration = Duration::from_secs(3600);
/// Longest wait before a result is repeated that stays doubtful: then it is the machine that two lines don't describe.
const LONGEST_WAIT_DOUBTFUL: Duration = Duration::from_secs(7 * 24 * 3600);
/// Shapes in trouble that are remembered; of more, those that may be tried first are forgotten.
const MOST: usize = 4096;

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// Whatever it is given.
    Worker,
    /// One shape.
    Shape(Shape),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker => f.write_str("the worker"),
            Self::Shape(shape) => shape.fmt(f),
        }
    }
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// By itself, with what a person should read.
    Failed(String),
    /// By a client that turned busy, or a machine that fell asleep.
    Interrupted,
    /// With a result that its own lines contradict.
    Doubtful,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed(reason) => reason,
            Self::Interrupted => "interrupted",
            Self::Doubtful => "its own lines contradict its result",
        })
    }
}

impl Cause {
    /// The wait after so many times in a row.
    fn wait(&self, in_a_row: u32) -> Duration {
        let (first, longest) = match self {
            Self::Failed(_) => (FIRST_WAIT, LONGEST_WAIT),
            Self::Interrupted => (FIRST_WAIT_INTERRUPTED, LONGEST_WAIT_INTERRUPTED),
            Self::Doubtful => (FIRST_WAIT_DOUBTFUL, LONGEST_WAIT_DOUBTFUL),
        };
        let doublings = in_a_row.saturating_sub(1).min(31);
        first.saturating_mul(1 << doublings).min(longest)
    }
}

/// A subject's present trouble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// How it ended last.
    pub cause: Cause,
    /// Times in a row.
    pub in_a_row: u32,
    /// When it ended last.
    pub last: Moment,
}

impl Trouble {
    /// When it may be tried again.
    pub fn retry(&self, now: Moment) -> Moment {
        // A clock that ran backwards can't make anyone wait longer than once more.
        self.last.min(now).after(self.cause.wait(self.in_a_row))
    }
}

/// Everything that is in trouble.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backoff {
    troubles: BTreeMap<Subject, Trouble>,
}

impl Backoff {
    /// It ended without a result.
    pub fn failed(&mut self, now: Moment, subject: Subject, cause: Cause) {
        let in_a_row = self.troubles.get(&subject).map_or(1, |trouble| trouble.in_a_row.saturating_add(1));
        self.troubles.insert(subject, Trouble { cause, in_a_row, last: now });
        if self.troubles.len() > MOST {
            let first = self.troubles.iter().min_by_key(|(_, trouble)| trouble.retry(now));
            if let Some(subject) = first.map(|(subject, _)| *subject) {
                self.troubles.remove(&subject);
            }
        }
    }

    /// It gave a result.
    pub fn succeeded(&mut self, subject: Subject) {
        self.troubles.remove(&subject);
    }

    /// Another engine may not fail where this one did.
    pub fn clear(&mut self) {
        self.troubles.clear();
    }

    /// When it may be tried, if not now.
    pub fn waits(&self, now: Moment, subject: Subject) -> Option<(Moment, &Trouble)> {
        let trouble = self.troubles.get(&subject)?;
        let retry = trouble.retry(now);
        (retry > now).then_some((retry, trouble))
    }

    /// Everything in trouble, for people.
    pub fn troubles(&self) -> impl Iterator<Item = (Subject, &Trouble)> {
        self.troubles.iter().map(|(subject, trouble)| (*subject, trouble))
    }

    /// Takes a clock that ran backwards in: nothing ended later than now.
    pub fn settle(&mut self, now: Moment) {
        for trouble in self.troubles.values_mut() {
            trouble.last = trouble.last.min(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_calibrations::shape::{Layout, WeightFormat};
    use proptest::prelude::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_unix_ms(1_000_000_000 + 1000 * seconds)
    }

    fn subject(rows: u32) -> Subject {
        let text = format!("{rows}x64x64");
        Subject::Shape(Shape::parse(&text, WeightFormat::F32, Layout::default()).unwrap())
    }

    fn failed() -> Cause {
        Cause::Failed("the worker ended with signal 6".to_owned())
    }

    #[test]
    fn a_result_ends_the_trouble_and_another_shape_is_not_in_it() {
        let mut backoff = Backoff::default();
        backoff.failed(at(0), subject(1), failed());
        assert_eq!(backoff.waits(at(299), subject(1)).unwrap().0, at(300));
        assert!(backoff.waits(at(300), subject(1)).is_none());
        assert!(
            backoff.waits(at(0), subject(2)).is_none() && backoff.waits(at(0), Subject::Worker).is_none()
        );
        backoff.failed(at(300), subject(1), Cause::Interrupted);
        assert_eq!(backoff.waits(at(301), subject(1)).unwrap().0, at(360));
        assert_eq!(backoff.troubles().map(|(_, trouble)| trouble.in_a_row).collect::<Vec<_>>(), [2]);
        backoff.succeeded(subject(1));
        assert_eq!(backoff, Backoff::default());
    }

    #[test]
    fn a_clock_set_back_costs_one_wait() {
        let mut backoff = Backoff::default();
        backoff.failed(at(1_000_000), subject(1), failed());
        assert_eq!(backoff.waits(at(0), subject(1)).unwrap().0, at(300));
        backoff.settle(at(0));
        assert!(backoff.waits(at(300), subject(1)).is_none());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut backoff = Backoff::default();
        for rows in 1..(MOST as u32 + 100) {
            backoff.failed(at(rows.into()), subject(rows), failed());
        }
        assert_eq!(backoff.troubles().count(), MOST);
        assert!(backoff.waits(at(5000), subject(MOST as u32 + 99)).is_none());
    }

    proptest! {
        #[test]
        fn waits_double_and_are_bounded(times in 1u32..200, kind in 0u8..3) {
            let (cause, longest) = match kind {
                0 => (Cause::Interrupted, LONGEST_WAIT_INTERRUPTED),
                1 => (Cause::Doubtful, LONGEST_WAIT_DOUBTFUL),
                _ => (failed(), LONGEST_WAIT),
            };
            let (mut backoff, mut now, mut before) = (Backoff::default(), at(0), Duration::ZERO);
            for _ in 0..times {
                backoff.failed(now, subject(1), cause.clone());
                let (retry, _) = backoff.waits(now, subject(1)).unwrap();
                let wait = retry.since(now);
                prop_assert!(wait == before * 2 || before.is_zero() || wait == longest);
                prop_assert!(wait <= longest && wait >= before);
                (now, before) = (retry, wait);
            }
        }
    }
}
