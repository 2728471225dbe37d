//! What macOS says: states of its notification keys, sysctls, and properties of its registry of devices.

use std::time::Duration;

use fusion_calibrations::conditions::{LowPowerMode, Memory, Power, Thermal};

/// A value of a property list: what Core Foundation gives, copied out of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Property {
    /// A number that is whole and fits.
    Number(i64),
    /// A string.
    Text(String),
    /// A boolean.
    Flag(bool),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A dictionary with strings as keys.
    Map(Vec<(String, Property)>),
    /// Anything else.
    Other,
}

impl Property {
    fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }
}

/// State of the key "com.apple.system.thermalpressurelevel" (`OSThermalPressureLevel` of <libkern/OSThermalNotification.h>, on macOS): what
/// powermetrics prints. Asleep for heat is the worst that can be told. iOS has other numbers (10, 20, ...), which mean nothing here.
///
/// `NSProcessInfo.thermalState` is coarser, says "nominal" or "fair" where this says "heavy", and its notification often doesn't come
/// (macmade/Hot issues 37, 73, 74; metaspartan/mactop issue 71).
pub fn thermal(state: u64) -> Thermal {
    match state {
        0 => Thermal::Nominal,
        1 => Thermal::Moderate,
        2 => Thermal::Heavy,
        3 | 4 => Thermal::Trapping,
        _ => Thermal::Unknown,
    }
}

/// `kern.memorystatus_vm_pressure_level`: the `NOTE_MEMORYSTATUS_PRESSURE_*` of XNU's bsd/sys/event.h; the colour in Activity Monitor.
pub fn memory(level: i32) -> Memory {
    match level {
        1 => Memory::Normal,
        2 => Memory::Warn,
        4 => Memory::Critical,
        _ => Memory::Unknown,
    }
}

/// State of the key "com.apple.system.lowpowermode".
pub fn low_power_mode(state: u64) -> LowPowerMode {
    match state {
        0 => LowPowerMode::Off,
        1 => LowPowerMode::On,
        _ => LowPowerMode::Unknown,
    }
}

/// What `IOPSGetProvidingPowerSourceType` names: `kIOPMACPowerKey`, `kIOPMBatteryPowerKey`, `kIOPMUPSPowerKey` of
/// <IOKit/ps/IOPowerSources.h>. A UPS that provides is a battery that runs down.
pub fn power_source(name: &str) -> Power {
    match name {
        "AC Power" => Power::Ac,
        "Battery Power" | "UPS Power" => Power::Battery,
        _ => Power::Unknown,
    }
}

/// The share of time that the GPU works, for whomever: "Device Utilization %" in `PerformanceStatistics` of the accelerator
/// (`AGXAccelerator`). The driver averages over about a second.
pub fn gpu_busy(statistics: &Property) -> Option<f64> {
    let percent = statistics.get("Device Utilization %")?.number()?;
    super::share_of_percent(f64::from(i32::try_from(percent).ok()?))
}

/// How long ago the last key, pointer or touch event was: `HIDIdleTime` of `IOHIDSystem`, in ns. A number, or the eight bytes of one in
/// older systems.
pub fn user_idle(property: &Property) -> Option<Duration> {
    let ns = match property {
        Property::Number(ns) => u64::try_from(*ns).ok()?,
        Property::Bytes(bytes) => u64::from_ne_bytes(bytes.as_slice().try_into().ok()?),
        _ => return None,
    };
    Some(Duration::from_nanos(ns))
}

/// Whether the machine is in a dark wake: awake for itself, not for a person. "System Capabilities" of `IOPMrootDomain` (XNU:
/// iokit/Kernel/IOPMrootDomain.cpp) holds the bits `kIOPMSystemCapability*` of <IOKit/pwr_mgt/IOPM.h>: processors 1, graphics 2. Whoever
/// reads this runs on a processor, so a value without that bit is nonsense.
pub fn dark_wake(capabilities: &Property) -> Option<bool> {
    const PROCESSOR: i64 = 0x1;
    const GRAPHICS: i64 = 0x2;
    const ALL_KNOWN: i64 = 0x1f;
    let bits = capabilities.number().filter(|bits| (0..=ALL_KNOWN).contains(bits))?;
    (bits & PROCESSOR != 0).then_some(bits & GRAPHICS == 0)
}

/// Whether every display sleeps: `CGDisplayIsAsleep` of the online ones. `None` without a display, or outside a session of the window server.
pub fn all_asleep(displays: &[bool]) -> Option<bool> {
    displays.iter().copied().reduce(|one, other| one && other)
}

/// Pages of `host_statistics64` (`vm_statistics64` of <mach/vm_statistics.h>).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pages {
    /// `free_count`, in which the speculative ones are.
    pub free: u64,
    /// `speculative_count`: read ahead, not used yet.
    pub speculative: u64,
    /// `purgeable_count`: their owner gave them up.
    pub purgeable: u64,
    /// `external_page_count`: backed by files.
    pub file_backed: u64,
}

/// Memory that a new process could use without making others swap, in bytes: free, purgeable and backed by files, which is what Activity
/// Monitor doesn't count as used. Inactive pages are not counted: most belong to processes, and have to be compressed first (a Mac with
/// 22 GB compressed showed 18 GB that way: AndySparks/sourceconvert issue 25). `None` if it is more than `installed` bytes.
pub fn available_bytes(pages: &Pages, page_bytes: u64, installed: u64) -> Option<u64> {
    let free = pages.free.checked_sub(pages.speculative)?;
    let available =
        free.checked_add(pages.purgeable)?.checked_add(pages.file_backed)?.checked_mul(page_bytes)?;
    (page_bytes > 0 && available <= installed).then_some(available)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a dictionary as ioreg prints one: `{"a"=1,"b"="x","c"=Yes,"d"=<0011>}`. Numbers are unsigned there, whatever they mean.
    fn ioreg(text: &str) -> Property {
        let inner = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap();
        let entries = inner.split(',').filter(|entry| !entry.is_empty()).map(|entry| {
            let (key, value) = entry.split_once('=').unwrap();
            let value = match value.parse::<u64>() {
                Ok(number) => Property::Number(number.cast_signed()),
                Err(_) if value == "Yes" || value == "No" => Property::Flag(value == "Yes"),
                Err(_) if value.starts_with('<') => Property::Bytes(Vec::new()),
                Err(_) => Property::Text(value.trim_matches('"').to_owned()),
            };
            (key.trim_matches('"').to_owned(), value)
        });
        Property::Map(entries.collect())
    }

    #[test]
    fn thermal_levels_are_macos_own() {
        let levels = [0, 1, 2, 3, 4].map(thermal);
        let expected =
            [Thermal::Nominal, Thermal::Moderate, Thermal::Heavy, Thermal::Trapping, Thermal::Trapping];
        assert_eq!(levels, expected);
        // iOS' numbers, and nonsense.
        for state in [5, 10, 20, 30, u64::MAX] {
            assert_eq!(thermal(state), Thermal::Unknown);
        }
    }

    #[test]
    fn memory_levels_skip_three() {
        assert_eq!([1, 2, 4].map(memory), [Memory::Normal, Memory::Warn, Memory::Critical]);
        for level in [i32::MIN, -1, 0, 3, 5, i32::MAX] {
            assert_eq!(memory(level), Memory::Unknown);
        }
    }

    #[test]
    fn low_power_mode_is_on_or_off_or_nothing() {
        assert_eq!(
            [0, 1, 2].map(low_power_mode),
            [LowPowerMode::Off, LowPowerMode::On, LowPowerMode::Unknown]
        );
    }

    #[test]
    fn a_ups_is_a_battery() {
        let sources = ["AC Power", "Battery Power", "UPS Power"].map(power_source);
        assert_eq!(sources, [Power::Ac, Power::Battery, Power::Battery]);
        for name in ["", "ac power", "Off Line", "Solar"] {
            assert_eq!(power_source(name), Power::Unknown, "{name}");
        }
    }

    #[test]
    fn the_gpu_is_as_busy_as_its_driver_says() {
        // M4 Max; the order differs from system to system.
        let statistics = ioreg(
            r#"{"In use system memory (driver)"=0,"Alloc system memory"=52967440384,"Tiler Utilization %"=10,"recoveryCount"=0,"Device Utilization %"=16,"Renderer Utilization %"=15,"In use system memory"=2363801600}"#,
        );
        assert_eq!(gpu_busy(&statistics), Some(0.16));
        assert_eq!(gpu_busy(&ioreg(r#"{"Device Utilization %"=0}"#)), Some(0.0));
        for nonsense in [
            r#"{}"#,
            r#"{"Renderer Utilization %"=40}"#,
            r#"{"Device Utilization %"=101}"#,
            r#"{"Device Utilization %"=18446744073709551615}"#,
            r#"{"Device Utilization %"="16"}"#,
            r#"{"Device Utilization %"=Yes}"#,
        ] {
            assert_eq!(gpu_busy(&ioreg(nonsense)), None, "{nonsense}");
        }
        assert_eq!(gpu_busy(&Property::Number(16)), None);
    }

    #[test]
    fn the_user_is_idle_for_some_nanoseconds() {
        assert_eq!(user_idle(&Property::Number(4_523_000_000)), Some(Duration::from_millis(4523)));
        assert_eq!(user_idle(&Property::Bytes(7u64.to_ne_bytes().to_vec())), Some(Duration::from_nanos(7)));
        for nonsense in [
            Property::Number(-1),
            Property::Bytes(vec![0; 4]),
            Property::Text("4523".to_owned()),
            Property::Flag(true),
            Property::Other,
        ] {
            assert_eq!(user_idle(&nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn a_wake_without_graphics_is_dark() {
        let root = ioreg(r#"{"System Capabilities"=15,"IOPMUserIsActive"=Yes}"#);
        assert_eq!(dark_wake(root.get("System Capabilities").unwrap()), Some(false));
        // Processors and network, for mail and updates.
        assert_eq!(dark_wake(&Property::Number(0b1001)), Some(true));
        for nonsense in
            [Property::Number(0), Property::Number(2), Property::Number(-1), Property::Number(1 << 40)]
        {
            assert_eq!(dark_wake(&nonsense), None, "{nonsense:?}");
        }
        assert_eq!(dark_wake(&Property::Flag(true)), None);
    }

    #[test]
    fn no_display_is_neither_awake_nor_asleep() {
        assert_eq!(
            [all_asleep(&[true, false]), all_asleep(&[true, true]), all_asleep(&[])],
            [Some(false), Some(true), None]
        );
    }

    #[test]
    fn what_files_back_is_available_and_what_is_inactive_is_not() {
        const GIB: u64 = 1 << 30;
        const PAGE: u64 = 16384;
        // vm_stat of a Mac with 24 GB: 91234 free and 5000 speculative pages, of which free_count has both.
        let pages = Pages { free: 96_234, speculative: 5_000, purgeable: 12_000, file_backed: 310_000 };
        assert_eq!(available_bytes(&pages, PAGE, 24 * GIB), Some((91_234 + 12_000 + 310_000) * PAGE));
        assert_eq!(available_bytes(&pages, PAGE, 4 * GIB), None);
        assert_eq!(available_bytes(&pages, 0, 24 * GIB), None);
        assert_eq!(available_bytes(&Pages { speculative: 1, ..Pages::default() }, PAGE, GIB), None);
        assert_eq!(available_bytes(&Pages { free: u64::MAX, ..Pages::default() }, PAGE, GIB), None);
    }
}
