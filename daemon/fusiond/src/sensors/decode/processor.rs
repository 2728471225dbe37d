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

/// What all processors did since the machine started, in ticks of no particular length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessorTime {
    /// At work, for whomever.
    pub busy: u64,
    /// In all.
    pub total: u64,
}

impl ProcessorTime {
    /// The share of all processors that was at work since `earlier`; `None` if no tick passed, or if a counter ran over.
    pub fn busy_since(self, earlier: Self) -> Option<f64> {
        let (busy, total) = (self.busy.checked_sub(earlier.busy)?, self.total.checked_sub(earlier.total)?);
        (total > 0 && busy <= total).then(|| busy as f64 / total as f64)
    }
}

/// The first line of Linux' `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, and guests, who are in user already
/// (proc_stat(5)). Stolen time was somebody's work on another machine of the host: this one couldn't have it.
pub fn time_of_stat(text: &str) -> Option<ProcessorTime> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, idle, rest @ ..] = &ticks[..] else { return None };
    let rest = |place: usize| rest.get(place).copied().unwrap_or(0);
    let (iowait, interrupts, stolen) = (rest(0), rest(1).checked_add(rest(2))?, rest(3));
    let busy = [*user, *nice, *system, interrupts, stolen].into_iter().try_fold(0, u64::checked_add)?;
    Some(ProcessorTime { busy, total: busy.checked_add(*idle)?.checked_add(iowait)? })
}

/// Mach's `host_cpu_load_info` (<mach/host_info.h>): user, system, idle and nice ticks of all processors, 32 bits each.
pub fn time_of_mach([user, system, idle, nice]: [u32; 4]) -> ProcessorTime {
    let busy = u64::from(user) + u64::from(system) + u64::from(nice);
    ProcessorTime { busy, total: busy + u64::from(idle) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_a_difference() {
        let before = time_of_stat("cpu  100 5 50 1000 10 1 2 3 0 0\ncpu0 50 5 50 500 0 0 0 0 0 0\n").unwrap();
        assert_eq!(before, ProcessorTime { busy: 161, total: 1171 });
        let after = time_of_stat("cpu  130 5 50 1060 10 1 2 13 0 0").unwrap();
        assert_eq!(after.busy_since(before), Some(0.4));
        assert_eq!((before.busy_since(after), before.busy_since(before)), (None, None));
        // Before Linux 2.6.11 there was less to tell.
        assert_eq!(time_of_stat("cpu  1 2 3 4"), Some(ProcessorTime { busy: 6, total: 10 }));
        for nonsense in ["", "cpu", "cpu  1 2 3", "cpu0 1 2 3 4", "cpu  x", "cpu  18446744073709551615 1 1 1"]
        {
            assert_eq!(time_of_stat(nonsense), None, "{nonsense:?}");
        }
        assert_eq!(time_of_mach([1, 2, 3, 4]), ProcessorTime { busy: 7, total: 10 });
    }

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
