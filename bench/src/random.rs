//! A small generator: what it picks only has to differ from run to run.

use std::time::{SystemTime, UNIX_EPOCH};

/// xorshift64 (Marsaglia, 2003).
pub(crate) struct Random(u64);

impl Random {
    /// Seeded with the time.
    pub(crate) fn from_clock() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::from(now.subsec_nanos()) | 1)
    }

    /// A number in [0, 1).
    pub(crate) fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}
