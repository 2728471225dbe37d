//! A point of wall-clock time, as an argument: nothing here reads a clock.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970 (UTC), as the wall clock said. It may run backwards between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(u64);

impl Moment {
    /// The moment so many ms after 1970 (UTC).
    pub fn from_unix_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since 1970 (UTC).
    pub fn unix_ms(self) -> u64 {
        self.0
    }

    /// This moment, and a time later. The last moment that can be written, if that is beyond.
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Time that passed since `earlier`; nothing if the clock ran backwards.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match i64::try_from(self.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()) {
            Some(time) => write!(f, "{}", time.strftime("%Y-%m-%d %H:%M:%S UTC")),
            None => f.write_str("the end of time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_saturate_and_read_as_time() {
        let moment = Moment::from_unix_ms(1_782_914_600_000);
        assert_eq!(moment.to_string(), "2026-07-01 14:03:20 UTC");
        assert_eq!(moment.after(Duration::MAX), Moment::from_unix_ms(u64::MAX));
        assert_eq!(Moment::from_unix_ms(u64::MAX).to_string(), "the end of time");
        assert_eq!(moment.since(moment.after(Duration::from_secs(5))), Duration::ZERO);
        assert_eq!(moment.after(Duration::from_secs(5)).since(moment), Duration::from_secs(5));
    }
}
