//! Whether inference threads work, in one word: read and written by all of them, without a lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One held guard; 20 bits.
const HELD: u64 = 1;
/// One call in the air; 20 bits.
const CALL: u64 = 1 << 20;
/// One call begun, ever; 24 bits that may overflow.
const BEGUN: u64 = 1 << 40;

/// Guards and calls.
#[derive(Debug, Default)]
pub(super) struct Activity {
    word: AtomicU64,
    /// Whether the daemon was told that we are busy. While it is, nobody needs to be woken.
    told: AtomicBool,
}

/// A call in the air.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    begun: u64,
    alone: bool,
}

impl Activity {
    /// Takes a guard; whether the background thread must be woken.
    pub(super) fn hold(&self) -> bool {
        self.must_wake(self.word.fetch_add(HELD, Ordering::SeqCst))
    }

    /// Gives a guard back.
    pub(super) fn release(&self) {
        self.word.fetch_sub(HELD, Ordering::SeqCst);
    }

    /// A call begins; whether the background thread must be woken.
    pub(super) fn begin(&self) -> (Mark, bool) {
        let before = self.word.fetch_add(CALL | BEGUN, Ordering::SeqCst);
        let mark = Mark { begun: (before >> 40) + 1, alone: before & (BEGUN - CALL) == 0 };
        (mark, self.must_wake(before))
    }

    /// A call ends; whether another one of this process was in the air at any time meanwhile.
    pub(super) fn end(&self, mark: Mark) -> bool {
        let before = self.word.fetch_sub(CALL, Ordering::SeqCst);
        !mark.alone || (before >> 40) != mark.begun & 0xff_ffff
    }

    // The order of all these is total: either the background thread sees the guard, or the guard's taker sees that nobody was told.
    fn must_wake(&self, before: u64) -> bool {
        before & (BEGUN - 1) == 0 && !self.told.load(Ordering::SeqCst)
    }

    /// Whether a guard is held or a call in the air.
    pub(super) fn is_busy(&self) -> bool {
        self.word.load(Ordering::SeqCst) & (BEGUN - 1) != 0
    }

    /// The number of calls ever begun, to see whether there were any.
    pub(super) fn begun(&self) -> u64 {
        self.word.load(Ordering::SeqCst) >> 40
    }

    /// The daemon is about to be told that we are busy.
    pub(super) fn busy_told(&self) {
        self.told.store(true, Ordering::SeqCst);
    }

    /// The daemon is about to be told that we rest; false if that isn't true any more, or a call has begun since there were `begun`.
    pub(super) fn rest(&self, begun: u64) -> bool {
        self.told.store(false, Ordering::SeqCst);
        let rests = !self.is_busy() && self.begun() == begun;
        if !rests {
            self.busy_told();
        }
        rests
    }

    /// There is no daemon that was told anything.
    pub(super) fn nobody_told(&self) {
        self.told.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_wakes_and_only_until_somebody_was_told() {
        let activity = Activity::default();
        assert!(activity.hold());
        let (mark, wake) = activity.begin();
        assert!(!wake && !activity.end(mark));
        assert!(activity.is_busy());
        activity.busy_told();
        activity.release();
        let begun = activity.begun();
        assert!(!activity.hold() && !activity.rest(begun));
        activity.release();
        assert!(activity.rest(begun) && activity.hold());
    }

    #[test]
    fn a_call_that_came_and_went_is_no_rest() {
        let activity = Activity::default();
        activity.busy_told();
        let begun = activity.begun();
        let (mark, wake) = activity.begin();
        activity.end(mark);
        assert!(!wake && !activity.rest(begun));
        assert!(activity.rest(activity.begun()));
        assert!(activity.begin().1);
    }

    #[test]
    fn calls_that_overlap_know_it() {
        let activity = Activity::default();
        let (first, _) = activity.begin();
        let (second, _) = activity.begin();
        assert!(activity.end(second));
        assert!(activity.end(first));
        let (alone, _) = activity.begin();
        assert!(!activity.end(alone));
        // The counter overflows without harm.
        activity.word.store((0xff_ffff) << 40, Ordering::SeqCst);
        let (mark, _) = activity.begin();
        assert!(!activity.end(mark) && activity.begun() == 0);
    }
}
