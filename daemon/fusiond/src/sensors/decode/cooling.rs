//! Thermal zones and cooling devices of `/sys/class/thermal` (kernel documentation: driver-api/thermal/sysfs-api).
//!
//! Linux has no one level of thermal pressure. A zone has trip points, whose kinds say what the kernel does there: at a passive one it slows
//! the processors, a hot one is told to the firmware, at a critical one the machine is switched off. A cooling device of the kind that
//! slows something says how far it does so now. Their maximum stands for macOS' level.

use fusion_calibrations::conditions::Thermal;

/// What zones of processors, of the GPU beside them and of the board are called. Others (radio, battery, disk) slow something else.
const ZONES: [&str; 8] = ["cpu", "x86_pkg_temp", "acpitz", "gpu", "soc", "package", "cluster", "core"];
/// What cooling devices are called that slow processors (ACPI, cpufreq) or the GPU (devfreq). Fans don't.
const DEVICES: [&str; 5] = ["Processor", "cpufreq", "thermal-cpufreq", "devfreq", "thermal-devfreq"];
/// Temperatures that a machine at work can have, in thousandths of a degree. Firmware says 0 or less where a sensor is off, and a trip
/// point that nobody set reads 0 or -274000.
const PLAUSIBLE: std::ops::RangeInclusive<i64> = 1..=150_000;

/// What a zone says: its `type`, `temp`, and the `trip_point_*_type` and `trip_point_*_temp` in pairs. Below every trip point is nominal
/// only where one would slow the machine: a zone that knows nothing but the temperature to switch off at can't say that all is well.
pub fn zone<Text: AsRef<str>>(kind: &str, temperature: &str, trips: &[(Text, Text)]) -> Thermal {
    if !is_of_processors(kind) {
        return Thermal::Unknown;
    }
    let Some(now) = temperature_of(temperature) else { return Thermal::Unknown };
    let level = |(kind, threshold): &(Text, Text)| {
        let above = now >= temperature_of(threshold.as_ref())?;
        Some(match (kind.as_ref().trim(), above) {
            ("passive", false) => Thermal::Nominal,
            ("passive", true) => Thermal::Moderate,
            ("hot", true) => Thermal::Heavy,
            ("critical", true) => Thermal::Trapping,
            _ => Thermal::Unknown,
        })
    };
    worst(trips.iter().filter_map(level))
}

/// Whether a zone's `type` names processors, the GPU or the board.
pub fn is_of_processors(kind: &str) -> bool {
    let kind = kind.trim().to_ascii_lowercase();
    ZONES.iter().any(|name| kind.contains(name))
}

/// What a cooling device says: its `type`, `cur_state` and `max_state`. One at rest says nothing: the processor may slow itself.
pub fn device(kind: &str, state: &str, most: &str) -> Thermal {
    let slows = DEVICES.iter().any(|name| kind.trim().starts_with(name));
    let (Some(state), Some(most)) = (count(state), count(most)) else { return Thermal::Unknown };
    match state {
        _ if !slows || state == 0 || state > most => Thermal::Unknown,
        _ if state >= most.div_ceil(2) && most > 1 => Thermal::Heavy,
        _ => Thermal::Moderate,
    }
}

/// The worst of what several say.
pub fn worst(levels: impl IntoIterator<Item = Thermal>) -> Thermal {
    levels.into_iter().max().unwrap_or_default()
}

fn temperature_of(text: &str) -> Option<i64> {
    text.trim().parse().ok().filter(|millidegrees| PLAUSIBLE.contains(millidegrees))
}

fn count(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ACPI zone of a laptop.
    const LAPTOP: [(&str, &str); 3] =
        [("critical\n", "119000\n"), ("passive\n", "95000\n"), ("hot\n", "110000\n")];

    #[test]
    fn the_highest_trip_point_below_the_temperature_counts() {
        for (temperature, level) in [
            ("27800\n", Thermal::Nominal),
            ("94999\n", Thermal::Nominal),
            ("95000\n", Thermal::Moderate),
            ("111000\n", Thermal::Heavy),
            ("119000\n", Thermal::Trapping),
        ] {
            assert_eq!(zone("acpitz\n", temperature, &LAPTOP), level, "{temperature}");
        }
    }

    #[test]
    fn a_zone_without_a_passive_trip_point_is_never_nominal() {
        let only = [("critical", "105000"), ("active", "60000")];
        assert_eq!(zone("acpitz", "70000", &only), Thermal::Unknown);
        assert_eq!(zone("acpitz", "105000", &only), Thermal::Trapping);
        assert_eq!(zone::<&str>("x86_pkg_temp", "70000", &[]), Thermal::Unknown);
    }

    #[test]
    fn other_zones_and_impossible_temperatures_mean_nothing() {
        assert_eq!(zone("iwlwifi_1", "99000", &LAPTOP), Thermal::Unknown);
        assert_eq!(zone("BAT0", "99000", &LAPTOP), Thermal::Unknown);
        for temperature in ["", "x", "0", "-274000", "255000", "99999999999999999999"] {
            assert_eq!(zone("cpu-thermal", temperature, &LAPTOP), Thermal::Unknown, "{temperature}");
        }
        // Trip points that nobody set: an x86 package.
        assert_eq!(
            zone("x86_pkg_temp", "70000", &[("passive", "0"), ("passive", "-274000")]),
            Thermal::Unknown
        );
    }

    #[test]
    fn only_a_device_that_slows_processors_says_that_they_are_slowed() {
        assert_eq!(device("Processor\n", "0\n", "10\n"), Thermal::Unknown);
        assert_eq!(device("Processor\n", "3\n", "10\n"), Thermal::Moderate);
        assert_eq!(device("cpufreq-cpu0", "5", "10"), Thermal::Heavy);
        assert_eq!(device("Processor", "1", "1"), Thermal::Moderate);
        assert_eq!(device("Fan", "1", "1"), Thermal::Unknown);
        // Idle injection that isn't running says -1 of itself.
        assert_eq!(device("intel_powerclamp", "-1", "50"), Thermal::Unknown);
        assert_eq!(device("Processor", "11", "10"), Thermal::Unknown);
        assert_eq!(device("Processor", "", ""), Thermal::Unknown);
    }

    #[test]
    fn the_worst_counts_and_silence_does_not() {
        assert_eq!(worst([Thermal::Unknown, Thermal::Nominal]), Thermal::Nominal);
        assert_eq!(worst([Thermal::Heavy, Thermal::Nominal, Thermal::Unknown]), Thermal::Heavy);
        assert_eq!(worst([]), Thermal::Unknown);
    }
}
