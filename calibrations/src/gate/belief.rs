//! What is believed of one arm in one region, and the absolute reference that stock is.

use super::level::{Level, Window};

/// Clean stock calls from which on a reference is used: with fewer, 3 % can't be told from noise.
pub(crate) const REFERENCE_CALLS: usize = 5;
/// Clean stock calls without a fall before a reference may rise.
const SETTLED_CALLS: usize = 8;
/// Fall of the newer half of the window against the older one, in the logarithm, at which stock isn't settled: it still cools.
const SETTLED_TREND: f64 = -0.01;

/// How much slower than the reference stock may be when a trial begins, in the logarithm.
const AT_REFERENCE: f64 = 0.01;

/// One arm's calls, condensed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct ArmBelief {
    pub(crate) window: Window,
    pub(crate) level: Option<Level>,
    /// How often everything known was thrown away because the machine changed. A later epoch wins when states are merged.
    pub(crate) epoch: u32,
    pub(crate) observations: u64,
    /// Exploring calls ever made, for the first `n0`.
    pub(crate) explored: u32,
    /// Refutations in a row.
    pub(crate) failures: u32,
    pub(crate) retry_at_ms: f64,
    pub(crate) updated_at_ms: f64,
}

impl ArmBelief {
    /// A call of an arm that is judged.
    pub(crate) fn push(&mut self, log: f64, now_ms: f64) {
        self.count(now_ms);
        self.window.push(log);
        self.level = self.window.level();
    }

    /// A call of stock running alone, its heat memory over: the reference. `anew` if another arm ran since the last one; `cool` if it
    /// ran alone for so long that no trial's heat is left.
    ///
    /// Down at once, up only when cool and settled: a reference that is too low costs a chance, one that is too high blesses a loser. In
    /// the heat that a split leaves, stock reads up to 1.5 times its own time (M1: 4009 ms against 2552-2668), and each trial would lift it a
    /// little more.
    pub(crate) fn push_reference(&mut self, log: f64, now_ms: f64, anew: bool, cool: bool) {
        self.count(now_ms);
        if anew {
            self.window.clear();
        }
        self.window.push(log);
        let (calls, trend) = (self.window.len(), self.window.trend().unwrap_or(0.0));
        let Some(seen) = self.window.level() else { return };
        let take = match self.level {
            None => true,
            Some(level) if seen.value <= level.value => calls >= REFERENCE_CALLS,
            Some(level) => {
                level.count < REFERENCE_CALLS as u32
                    || (cool && calls >= SETTLED_CALLS && trend >= SETTLED_TREND)
            }
        };
        if take {
            self.level = Some(seen);
        }
    }

    /// Whether the latest calls are as fast as the reference, noise aside: the machine isn't hotter than when it was taken.
    pub(crate) fn at_reference(&self) -> bool {
        match (self.level, self.window.level()) {
            (Some(level), Some(seen)) => {
                seen.faster_than(&level).high > -AT_REFERENCE && seen.value - level.value < 2.0 * AT_REFERENCE
            }
            _ => true,
        }
    }

    fn count(&mut self, now_ms: f64) {
        self.observations = self.observations.saturating_add(1);
        self.updated_at_ms = now_ms;
    }

    /// The level, once it is a reference.
    pub(crate) fn reference(&self) -> Option<Level> {
        self.level.filter(|level| level.count >= REFERENCE_CALLS as u32)
    }

    /// The machine changed: what was refuted may be tried again at once.
    pub(crate) fn reopen(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
        self.failures = 0;
        self.retry_at_ms = f64::NEG_INFINITY;
    }

    /// It lost: not again for a while, twice as long each time.
    pub(crate) fn refute(&mut self, now_ms: f64, retry_ms: f64) {
        let doublings = i32::try_from(self.failures.min(20)).unwrap_or(20);
        self.retry_at_ms = now_ms + retry_ms * 2f64.powi(doublings);
        self.failures = self.failures.saturating_add(1);
    }
}
