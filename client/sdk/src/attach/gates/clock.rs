//! The clock of gates: calls are told by the time of day.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Turns the monotonic clock into ms since 1970.
#[derive(Debug)]
pub(in crate::attach) struct Clock {
    start: Instant,
    unix_at_start_ms: AtomicU64,
}

impl Clock {
    pub(super) fn new() -> Self {
        let clock = Self { start: Instant::now(), unix_at_start_ms: AtomicU64::new(0) };
        clock.adjust();
        clock
    }

    /// The clocks part while the machine sleeps.
    pub(super) fn adjust(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_start = now.as_secs_f64() * 1e3 - self.start.elapsed().as_secs_f64() * 1e3;
        self.unix_at_start_ms.store(at_start.to_bits(), Ordering::Relaxed);
    }

    pub(in crate::attach) fn unix_ms(&self, at: Instant) -> f64 {
        let since = at.saturating_duration_since(self.start).as_secs_f64() * 1e3;
        f64::from_bits(self.unix_at_start_ms.load(Ordering::Relaxed)) + since
    }
}
