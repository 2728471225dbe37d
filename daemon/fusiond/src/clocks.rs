//! The monotonic clock and the wall clock beside each other: they part when the machine slept, or when the wall clock was set.

use std::time::Duration;

/// Clocks that differ by more than this have parted.
pub const GAP: Duration = Duration::from_millis(500);

/// Whether they disagree about how long something took; `wall` is `None` if the wall clock ran backwards.
pub fn part(monotonic: Duration, wall: Option<Duration>) -> bool {
    wall.is_none_or(|wall| wall.abs_diff(monotonic) > GAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_and_a_set_clock_part_them() {
        let call = Duration::from_millis(20);
        assert!(!part(call, Some(call)));
        assert!(part(call, Some(Duration::from_secs(3600))));
        assert!(part(Duration::from_secs(3600), Some(call)));
        assert!(part(call, None));
    }
}
