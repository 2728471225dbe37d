//! Clocks with and without sleep.

use std::time::Duration;

/// Time since the start of the machine: first awake only, then with sleep. `None` if the system has no such clocks.
///
/// clock_gettime(3): `CLOCK_UPTIME_RAW` is `mach_absolute_time`, which stops during sleep, `CLOCK_MONOTONIC_RAW` is `mach_continuous_time`,
/// which doesn't. Rust's `Instant` is the former.
pub(crate) fn clocks() -> Option<(Duration, Duration)> {
    let awake = read(libc::CLOCK_UPTIME_RAW)?;
    Some((awake, read(libc::CLOCK_MONOTONIC_RAW)?))
}

#[expect(unsafe_code, reason = "rustix doesn't name these clocks")]
fn read(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `int clock_gettime(clockid_t, struct timespec *)` of <time.h> writes one timespec.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
    (failed == 0).then(|| Duration::new(seconds, nanoseconds))
}
