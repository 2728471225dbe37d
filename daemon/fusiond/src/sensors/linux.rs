//! Linux: pressure stall information, the power supply class and `meminfo`. Thermal pressure stays unknown: there is no
//! unprivileged level of the kernel that means what macOS' does.

use std::path::Path;

use fs_err as fs;
use fusion_calibrations::conditions::{Conditions, Memory, Power};

/// Share of the last 10 s in which some task waited for memory, in percent, from which on pressure is a warning; in which all tasks
/// waited, from which on it is critical. systemd-oomd acts at 60 % over 30 s, so these come long before it does.
const WARN_SOME_PERCENT: f64 = 10.0;
const CRITICAL_FULL_PERCENT: f64 = 20.0;

pub(super) fn conditions() -> Conditions {
    Conditions {
        memory: fs::read_to_string("/proc/pressure/memory").map_or(Memory::Unknown, |text| memory(&text)),
        power: power(Path::new("/sys/class/power_supply")),
        ..Conditions::default()
    }
}

pub(super) fn available_memory_bytes() -> Option<u64> {
    available(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// Reads `/proc/pressure/memory` (kernel documentation: accounting/psi).
fn memory(text: &str) -> Memory {
    let average = |kind: &str| -> Option<f64> {
        let line = text.lines().find(|line| line.starts_with(kind))?;
        line.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
    };
    match (average("some"), average("full")) {
        (_, Some(full)) if full >= CRITICAL_FULL_PERCENT => Memory::Critical,
        (Some(some), _) if some >= WARN_SOME_PERCENT => Memory::Warn,
        (Some(_), _) => Memory::Normal,
        (None, _) => Memory::Unknown,
    }
}

/// A battery that discharges means battery; anything else that supplies power, or a machine without a battery, means the wall.
fn power(class: &Path) -> Power {
    let Ok(supplies) = fs::read_dir(class) else { return Power::Unknown };
    let read = |path: &Path, file: &str| {
        fs::read_to_string(path.join(file)).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    let discharging = supplies.flatten().any(|supply| {
        let path = supply.path();
        // A mouse's battery has the scope "Device".
        read(&path, "type") == "Battery"
            && read(&path, "scope") != "Device"
            && read(&path, "status") == "Discharging"
    });
    if discharging { Power::Battery } else { Power::Ac }
}

/// Reads `MemAvailable` of `/proc/meminfo`, in KiB there.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressure(some: &str, full: &str) -> String {
        format!(
            "some avg10={some} avg60=0.00 avg300=0.00 total=1\nfull avg10={full} avg60=0.00 avg300=0.00 total=1\n"
        )
    }

    #[test]
    fn pressure_is_read_and_nonsense_is_unknown() {
        assert_eq!(memory(&pressure("0.00", "0.00")), Memory::Normal);
        assert_eq!(memory(&pressure("12.50", "3.00")), Memory::Warn);
        assert_eq!(memory(&pressure("80.00", "40.00")), Memory::Critical);
        for text in ["", "some", "some avg10=x", "Operation not supported"] {
            assert_eq!(memory(text), Memory::Unknown, "{text}");
        }
    }

    #[test]
    fn available_memory_is_in_bytes() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:   20000000 kB\n";
        assert_eq!(available(text), Some(20_480_000_000));
        assert_eq!(available("MemAvailable: 99999999999999999999 kB"), None);
        assert_eq!(available(""), None);
    }

    #[test]
    fn only_a_discharging_battery_of_the_machine_is_battery() {
        let class = tempfile::tempdir().unwrap();
        assert_eq!(power(class.path()), Power::Ac);
        assert_eq!(power(&class.path().join("absent")), Power::Unknown);
        let supply = |name: &str, status: &str, scope: &str| {
            let path = class.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            for (file, text) in [("type", "Battery"), ("status", status), ("scope", scope)] {
                std::fs::write(path.join(file), format!("{text}\n")).unwrap();
            }
        };
        supply("mouse", "Discharging", "Device");
        assert_eq!(power(class.path()), Power::Ac);
        supply("BAT0", "Charging", "System");
        assert_eq!(power(class.path()), Power::Ac);
        supply("BAT0", "Discharging", "System");
        assert_eq!(power(class.path()), Power::Battery);
    }
}
