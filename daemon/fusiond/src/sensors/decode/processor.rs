//! What a processor says of its own throttling: `/sys/devices/system/cpu/cpu*/thermal_throttle` (x86) and `cpufreq/policy*` (kernel
//! documentation: admin-guide/pm/cpufreq).

/// How often processors throttled themselves since the machine started: the sum of the cores' counters and of the packages'. The package's
/// counter is shown once for every core of it, so its highest value is taken. Only a difference of two readings means anything.
pub fn throttle_events<'a>(
    cores: impl IntoIterator<Item = &'a str>,
    packages: impl IntoIterator<Item = &'a str>,
) -> Option<u64> {
    let count = |text: &str| text.trim().parse::<u64>().ok();
    let cores = cores.into_iter().filter_map(count).reduce(u64::saturating_add);
    let package = packages.into_iter().filter_map(count).max();
    match (cores, package) {
        (None, None) => None,
        (cores, package) => Some(cores.unwrap_or(0).saturating_add(package.unwrap_or(0))),
    }
}

/// The share of its highest clock that the system lets the most limited processor use: `scaling_max_freq` of `cpuinfo_max_freq`, in pairs.
/// Thermal drivers, power profiles and persons lower the former.
pub fn speed_limit<'a>(policies: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<f64> {
    let share = |(allowed, highest): (&str, &str)| {
        let (allowed, highest): (u32, u32) = (allowed.trim().parse().ok()?, highest.trim().parse().ok()?);
        (allowed > 0 && highest > 0).then(|| (f64::from(allowed) / f64::from(highest)).min(1.0))
    };
    policies.into_iter().filter_map(share).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttling_is_counted_once() {
        assert_eq!(throttle_events(["3\n", "4\n"], ["10\n", "10\n"]), Some(17));
        assert_eq!(throttle_events(["0\n"], []), Some(0));
        assert_eq!(throttle_events([], []), None);
        assert_eq!(throttle_events(["", "-1", "x"], [""]), None);
        assert_eq!(throttle_events(["18446744073709551615", "1"], ["1"]), Some(u64::MAX));
    }

    #[test]
    fn the_most_limited_processor_counts() {
        assert_eq!(speed_limit([("2400000\n", "4800000\n"), ("4800000\n", "4800000\n")]), Some(0.5));
        // The boost frequency may be allowed without being advertised.
        assert_eq!(speed_limit([("5000000", "4800000")]), Some(1.0));
        for nonsense in [("0", "4800000"), ("2400000", "0"), ("", ""), ("-1", "3"), ("1", "99999999999")] {
            assert_eq!(speed_limit([nonsense]), None, "{nonsense:?}");
        }
        assert_eq!(speed_limit([]), None);
    }
}
