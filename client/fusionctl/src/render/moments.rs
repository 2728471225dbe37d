//! Moments as people say them: how long ago, how long from now. Beyond a day they are dates.

use std::time::Duration;

use super::words;

const DAY: Duration = Duration::from_secs(86_400);

/// "40 s", "12 min", "2 h 46 min": no finer than anybody asks.
pub(crate) fn roughly(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        _ => words::duration(time.as_secs_f64() * 1000.0),
    }
}

/// "for 12 min", "since 2026-01-02 03:04".
pub(crate) fn since(then_unix_ms: u64, now_unix_ms: u64) -> String {
    let age = Duration::from_millis(now_unix_ms.saturating_sub(then_unix_ms));
    if age < DAY { format!("for {}", roughly(age)) } else { format!("since {}", words::moment(then_unix_ms)) }
}

/// "12 min ago", "at 2026-01-02 03:04".
pub(crate) fn ago(then_unix_ms: u64, now_unix_ms: u64) -> String {
    let age = Duration::from_millis(now_unix_ms.saturating_sub(then_unix_ms));
    if age < DAY { format!("{} ago", roughly(age)) } else { format!("at {}", words::moment(then_unix_ms)) }
}

/// "in 20 s", "at 2026-01-02 03:04"; `None` if it is past.
pub(crate) fn until(then_unix_ms: u64, now_unix_ms: u64) -> Option<String> {
    let left = Duration::from_millis(then_unix_ms.checked_sub(now_unix_ms).filter(|left| *left > 0)?);
    let text = if left < DAY {
        format!("in {}", roughly(left))
    } else {
        format!("at {}", words::moment(then_unix_ms))
    };
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_767_323_045_000;
    const MINUTE: u64 = 60_000;
    const DAYS: u64 = 1440 * MINUTE;

    #[test]
    fn near_moments_are_told_by_their_distance() {
        assert_eq!(since(NOW - 12 * MINUTE - 5000, NOW), "for 12 min");
        assert_eq!(since(NOW - 166 * MINUTE, NOW), "for 2 h 46 min");
        assert_eq!(ago(NOW - 59_999, NOW), "59 s ago");
        assert_eq!(until(NOW + 20_000, NOW).as_deref(), Some("in 20 s"));
        assert_eq!(until(NOW + 1, NOW).as_deref(), Some("in 0 s"));
    }

    #[test]
    fn far_moments_are_dates() {
        assert!(since(NOW - 2 * DAYS, NOW).starts_with("since 20"));
        assert!(ago(NOW - 2 * DAYS, NOW).starts_with("at 20"));
        assert!(until(NOW + 2 * DAYS, NOW).unwrap().starts_with("at 20"));
        assert_eq!(until(u64::MAX, NOW).as_deref(), Some("at -"));
    }

    #[test]
    fn a_clock_that_was_set_back_is_no_trouble() {
        assert_eq!(since(NOW + 5, NOW), "for 0 s");
        assert_eq!((until(NOW, NOW), until(0, NOW)), (None, None));
    }
}
