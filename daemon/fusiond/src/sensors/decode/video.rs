//! GPU and displays of Linux: `/sys/class/drm`.

/// The share of time that the busiest GPU works: `card*/device/gpu_busy_percent`, which amdgpu has.
pub fn gpu_busy<'a>(percentages: impl IntoIterator<Item = &'a str>) -> Option<f64> {
    let share = |text: &str| super::share_of_percent(text.trim().parse().ok()?);
    percentages.into_iter().filter_map(share).reduce(f64::max)
}

/// Whether every connected display is off: `status` and `dpms` of `card*-*`, in pairs. `None` without a display.
pub fn display_asleep<'a>(connectors: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<bool> {
    let asleep = |(status, power): (&str, &str)| match (status.trim(), power.trim()) {
        ("connected", "On") => Some(false),
        ("connected", "Off" | "Standby" | "Suspend") => Some(true),
        _ => None,
    };
    connectors.into_iter().filter_map(asleep).reduce(|one, other| one && other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_gpu_counts() {
        assert_eq!(gpu_busy(["3\n", "42\n"]), Some(0.42));
        assert_eq!(gpu_busy(["", "101", "-1", "NaN"]), None);
        assert_eq!(gpu_busy([]), None);
    }

    #[test]
    fn one_display_that_is_on_is_enough() {
        let off = ("connected\n", "Off\n");
        assert_eq!(display_asleep([off]), Some(true));
        assert_eq!(display_asleep([off, ("connected\n", "On\n")]), Some(false));
        assert_eq!(display_asleep([("disconnected\n", "On\n")]), None);
        assert_eq!(display_asleep([("connected\n", "")]), None);
        assert_eq!(display_asleep([]), None);
    }
}
