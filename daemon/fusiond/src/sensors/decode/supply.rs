//! `/sys/class/power_supply` and the platform profile (kernel documentation: ABI/testing/sysfs-class-power, ABI/testing/sysfs-platform_profile).

use fusion_calibrations::conditions::{LowPowerMode, Power};

/// The texts of one entry; empty where the file isn't there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Supply<'a> {
    /// `type`: "Mains", "USB", "Battery", "UPS", "Wireless".
    pub kind: &'a str,
    /// `scope`: "Device" for the battery of a mouse; often absent for the machine's own.
    pub scope: &'a str,
    /// `status` of a battery: "Charging", "Discharging", "Not charging", "Full", "Unknown".
    pub status: &'a str,
    /// `online` of an adapter: 0, or 1 and more.
    pub online: &'a str,
}

/// Where the current comes from. A battery of the machine that discharges means battery, even beside an adapter that is too weak; anything
/// else that supplies power, or a machine without a battery, means the wall. A machine that has a battery of which nobody says what it
/// does, and no adapter that is on, is unknown.
pub fn source<'a>(supplies: impl IntoIterator<Item = Supply<'a>>) -> Power {
    let (mut batteries, mut told, mut adapter) = (0, 0, false);
    for supply in supplies {
        let Supply { kind, scope, status, online } = supply;
        match kind.trim() {
            "Battery" | "UPS" if scope.trim() != "Device" => {
                batteries += 1;
                match status.trim() {
                    "Discharging" => return Power::Battery,
                    "Charging" | "Not charging" | "Full" => told += 1,
                    _ => {}
                }
            }
            "Mains" | "USB" | "Wireless" => {
                adapter |= online.trim().parse().is_ok_and(|online: u32| online > 0);
            }
            _ => {}
        }
    }
    if adapter || told == batteries { Power::Ac } else { Power::Unknown }
}

/// The low-power mode that a platform profile means. Firmware and desktop set it; a profile of a vendor's own means nothing to us.
pub fn low_power_mode(profile: &str) -> LowPowerMode {
    match profile.trim() {
        "low-power" => LowPowerMode::On,
        "cool" | "quiet" | "balanced" | "balanced-performance" | "performance" | "max-power" => {
            LowPowerMode::Off
        }
        _ => LowPowerMode::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn battery(status: &'static str) -> Supply<'static> {
        Supply { kind: "Battery\n", status, ..Supply::default() }
    }

    fn mains(online: &'static str) -> Supply<'static> {
        Supply { kind: "Mains\n", online, ..Supply::default() }
    }

    #[test]
    fn only_a_discharging_battery_of_the_machine_is_battery() {
        assert_eq!(source([]), Power::Ac);
        assert_eq!(source([Supply { scope: "Device\n", ..battery("Discharging\n") }]), Power::Ac);
        assert_eq!(source([Supply { scope: "System\n", ..battery("Discharging\n") }]), Power::Battery);
        assert_eq!(source([mains("1\n"), battery("Charging\n")]), Power::Ac);
        assert_eq!(source([battery("Full\n")]), Power::Ac);
        // Charging is held at 80 %.
        assert_eq!(source([mains("1\n"), battery("Not charging\n")]), Power::Ac);
        // The adapter is too weak.
        assert_eq!(source([mains("1\n"), battery("Discharging\n")]), Power::Battery);
        assert_eq!(source([battery("Full\n"), battery("Discharging\n")]), Power::Battery);
        assert_eq!(source([Supply { kind: "UPS", ..battery("Discharging") }]), Power::Battery);
    }

    #[test]
    fn a_battery_that_says_nothing_leaves_it_to_the_adapter() {
        for silent in ["", "Unknown\n", "\u{fffd}"] {
            assert_eq!(source([battery(silent)]), Power::Unknown);
            assert_eq!(source([battery(silent), mains("0\n")]), Power::Unknown);
            assert_eq!(source([battery(silent), mains("1\n")]), Power::Ac);
            assert_eq!(source([battery(silent), mains("-1\n")]), Power::Unknown);
        }
    }

    #[test]
    fn only_known_profiles_mean_something() {
        assert_eq!(low_power_mode("low-power\n"), LowPowerMode::On);
        assert_eq!(low_power_mode("balanced\n"), LowPowerMode::Off);
        for unknown in ["", "custom\n", "LOW-POWER", "low-power balanced performance"] {
            assert_eq!(low_power_mode(unknown), LowPowerMode::Unknown, "{unknown}");
        }
    }
}
