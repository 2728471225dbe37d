//! Linux: files of /proc and /sys, all readable without privileges.
//!
//! What Linux doesn't tell a daemon without a desktop: when the user last touched a key, and a GPU's work if the driver isn't amdgpu.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fs_err as fs;
use fusion_calibrations::conditions::{Conditions, LowPowerMode, Memory, Power, Thermal};
use rustix::time::{ClockId, clock_gettime};

use super::linux_events::LinuxEvents;
use crate::sensors::decode::{self, cooling, memory, pressure, processor, supply, video};
use crate::sensors::{Events, ProcessorTime, Readings, Sensors};

/// How long heat, power source and profile count as present between timed calls: firmware may take milliseconds to tell a temperature.
const SLOW_VALUES_LAST: Duration = Duration::from_millis(250);

/// Conditions that take a walk through /sys.
#[derive(Debug, Clone, Copy)]
struct Slow {
    read: Instant,
    thermal: Thermal,
    power: Power,
    low_power_mode: LowPowerMode,
}

/// The sensors of this machine.
#[derive(Debug)]
pub struct SystemSensors {
    proc: PathBuf,
    sys: PathBuf,
    slow: Mutex<Option<Slow>>,
}

impl SystemSensors {
    /// The sensors.
    pub fn new() -> Self {
        Self::at(Path::new("/"))
    }

    /// Sensors whose files lie elsewhere: for tests.
    fn at(root: &Path) -> Self {
        Self { proc: root.join("proc"), sys: root.join("sys"), slow: Mutex::default() }
    }

    fn memory(&self) -> Memory {
        fs::read_to_string(self.proc.join("pressure/memory"))
            .map_or(Memory::Unknown, |text| pressure::memory(&text))
    }

    /// The conditions, of which the slow ones may be `at_most` old.
    fn conditions_within(&self, at_most: Duration) -> Conditions {
        let mut slow = self.slow.lock().expect("no holder of this lock panics");
        let known = slow.filter(|slow| slow.read.elapsed() < at_most);
        let now = known.unwrap_or_else(|| self.slow());
        *slow = Some(now);
        let Slow { thermal, power, low_power_mode, .. } = now;
        Conditions { thermal, memory: self.memory(), power, low_power_mode }
    }

    fn slow(&self) -> Slow {
        let profile = text(&self.sys.join("firmware/acpi"), "platform_profile");
        Slow {
            thermal: thermal(&self.sys.join("class/thermal")),
            power: power(&self.sys.join("class/power_supply")),
            low_power_mode: supply::low_power_mode(&profile),
            read: Instant::now(),
        }
    }

    fn proc_text(&self, name: &str) -> String {
        text(&self.proc, name)
    }
}

impl Default for SystemSensors {
    fn default() -> Self {
        Self::new()
    }
}

impl Sensors for SystemSensors {
    fn conditions(&self) -> Conditions {
        self.conditions_within(SLOW_VALUES_LAST)
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        memory::available_bytes(&self.proc_text("meminfo"))
    }

    fn readings(&self) -> Readings {
        let processors = self.sys.join("devices/system/cpu");
        let graphics = self.sys.join("class/drm");
        Readings {
            conditions: self.conditions_within(Duration::ZERO),
            available_memory_bytes: self.available_memory_bytes(),
            swapped_in_pages: memory::swapped_in_pages(&self.proc_text("vmstat")),
            cpu_pressure: pressure::processor(&self.proc_text("pressure/cpu")),
            gpu_busy: gpu_busy(&graphics),
            user_idle: None,
            display_asleep: display_asleep(&graphics),
            dark_wake: None,
            slept: slept(),
            throttle_events: throttle_events(&processors),
            cpu_speed_limit: speed_limit(&processors.join("cpufreq")),
        }
    }

    fn processor_time(&self) -> Option<ProcessorTime> {
        processor::time_of_stat(&self.proc_text("stat"))
    }

    fn events(&self) -> Box<dyn Events> {
        Box::new(LinuxEvents::open())
    }

    fn source(&self) -> String {
        "this machine".to_owned()
    }
}

/// A small file's text; empty if it can't be read: many exist on some machines only, and some fail while a device rests.
fn text(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap_or_default()
}

/// Entries of a directory whose names begin so; none if there is no directory.
fn entries(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let named = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    named.map(|entry| entry.path()).collect()
}

fn thermal(class: &Path) -> Thermal {
    let zones = entries(class, "thermal_zone").into_iter().map(|path| zone(&path));
    let devices = entries(class, "cooling_device").into_iter().map(|path| {
        cooling::device(&text(&path, "type"), &text(&path, "cur_state"), &text(&path, "max_state"))
    });
    cooling::worst(zones.chain(devices))
}

fn zone(path: &Path) -> Thermal {
    let kind = text(path, "type");
    // Asking a radio for its temperature may wake it.
    if !cooling::is_of_processors(&kind) {
        return Thermal::Unknown;
    }
    let trips: Vec<(String, String)> = (0..)
        .map(|number| (format!("trip_point_{number}_type"), format!("trip_point_{number}_temp")))
        .map(|(kind, temperature)| (text(path, &kind), text(path, &temperature)))
        .take_while(|(kind, _)| !kind.is_empty())
        .collect();
    cooling::zone(&kind, &text(path, "temp"), &trips)
}

fn power(class: &Path) -> Power {
    if !class.is_dir() {
        return Power::Unknown;
    }
    let files = |path: &PathBuf| ["type", "scope", "status", "online"].map(|name| text(path, name));
    let supplies: Vec<[String; 4]> = entries(class, "").iter().map(files).collect();
    supply::source(supplies.iter().map(|[kind, scope, status, online]| supply::Supply {
        kind,
        scope,
        status,
        online,
    }))
}

fn gpu_busy(class: &Path) -> Option<f64> {
    let texts: Vec<String> =
        entries(class, "card").iter().map(|card| text(card, "device/gpu_busy_percent")).collect();
    video::gpu_busy(texts.iter().map(String::as_str))
}

fn display_asleep(class: &Path) -> Option<bool> {
    let texts: Vec<(String, String)> =
        entries(class, "card").iter().map(|path| (text(path, "status"), text(path, "dpms"))).collect();
    video::display_asleep(texts.iter().map(|(status, power)| (status.as_str(), power.as_str())))
}

/// clock_gettime(2): the boot-time clock runs through sleep, the monotonic one stops.
fn slept() -> Option<Duration> {
    let read = |clock| Duration::try_from(clock_gettime(clock)).ok();
    let while_awake = read(ClockId::Monotonic)?;
    decode::slept(read(ClockId::Boottime)?, while_awake)
}

fn throttle_events(processors: &Path) -> Option<u64> {
    let counters = |name: &str| -> Vec<String> {
        entries(processors, "cpu")
            .iter()
            .map(|path| text(&path.join("thermal_throttle"), name))
            .filter(|text| !text.is_empty())
            .collect()
    };
    let (cores, packages) = (counters("core_throttle_count"), counters("package_throttle_count"));
    processor::throttle_events(cores.iter().map(String::as_str), packages.iter().map(String::as_str))
}

fn speed_limit(policies: &Path) -> Option<f64> {
    let frequencies = |path: &PathBuf| (text(path, "scaling_max_freq"), text(path, "cpuinfo_max_freq"));
    let texts: Vec<(String, String)> = entries(policies, "policy").iter().map(frequencies).collect();
    processor::speed_limit(texts.iter().map(|(allowed, highest)| (allowed.as_str(), highest.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine's files.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, SystemSensors) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }
        let sensors = SystemSensors::at(root.path());
        (root, sensors)
    }

    #[test]
    fn a_hot_laptop_on_battery_is_read_whole() {
        let (root, sensors) = machine(&[
            ("proc/pressure/memory", "some avg10=12.00 avg60=1.00 avg300=0.00 total=9\nfull avg10=0.00"),
            ("proc/pressure/cpu", "some avg10=50.00 avg60=1.00 avg300=0.00 total=9"),
            ("proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 1000 kB"),
            ("proc/vmstat", "pswpin 12\npswpout 3"),
            ("sys/class/thermal/thermal_zone0/type", "x86_pkg_temp"),
            ("sys/class/thermal/thermal_zone0/temp", "97000"),
            ("sys/class/thermal/thermal_zone0/trip_point_0_type", "passive"),
            ("sys/class/thermal/thermal_zone0/trip_point_0_temp", "95000"),
            ("sys/class/thermal/thermal_zone0/trip_point_1_type", "critical"),
            ("sys/class/thermal/thermal_zone0/trip_point_1_temp", "105000"),
            ("sys/class/thermal/thermal_zone1/type", "iwlwifi_1"),
            ("sys/class/thermal/thermal_zone1/temp", "200"),
            ("sys/class/thermal/cooling_device0/type", "Processor"),
            ("sys/class/thermal/cooling_device0/cur_state", "0"),
            ("sys/class/thermal/cooling_device0/max_state", "10"),
            ("sys/class/power_supply/AC/type", "Mains"),
            ("sys/class/power_supply/AC/online", "0"),
            ("sys/class/power_supply/BAT0/type", "Battery"),
            ("sys/class/power_supply/BAT0/status", "Discharging"),
            ("sys/firmware/acpi/platform_profile", "low-power"),
            ("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "5"),
            ("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "7"),
            ("sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "6"),
            ("sys/devices/system/cpu/cpu1/thermal_throttle/package_throttle_count", "7"),
            ("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "1200000"),
            ("sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq", "4800000"),
            ("sys/class/drm/card0/device/gpu_busy_percent", "40"),
            ("sys/class/drm/card0-eDP-1/status", "connected"),
            ("sys/class/drm/card0-eDP-1/dpms", "Off"),
        ]);
        let readings = sensors.readings();
        let conditions = Conditions {
            thermal: Thermal::Moderate,
            memory: Memory::Warn,
            power: Power::Battery,
            low_power_mode: LowPowerMode::On,
        };
        let slept = readings.slept;
        assert!(slept.is_some());
        let expected = Readings {
            conditions,
            available_memory_bytes: Some(1_024_000),
            swapped_in_pages: Some(12),
            cpu_pressure: Some(0.5),
            gpu_busy: Some(0.4),
            user_idle: None,
            display_asleep: Some(true),
            dark_wake: None,
            slept,
            throttle_events: Some(18),
            cpu_speed_limit: Some(0.25),
        };
        assert_eq!(readings, expected);
        // The processor cooled down, but something keeps it slow.
        let class = root.path().join("sys/class/thermal");
        std::fs::write(class.join("thermal_zone0/temp"), "40000\n").unwrap();
        assert_eq!(sensors.readings().conditions.thermal, Thermal::Nominal);
        std::fs::write(class.join("cooling_device0/cur_state"), "10\n").unwrap();
        assert_eq!(sensors.readings().conditions.thermal, Thermal::Heavy);
    }

    #[test]
    fn a_machine_without_files_says_nothing() {
        let (_root, sensors) = machine(&[]);
        let readings = sensors.readings();
        assert_eq!(readings, Readings { slept: readings.slept, ..Readings::default() });
    }

    #[test]
    fn memory_pressure_is_read_at_each_call_and_power_a_little_later() {
        let (root, sensors) = machine(&[
            ("proc/pressure/memory", "some avg10=0.00"),
            ("sys/class/power_supply/BAT0/type", "Battery"),
            ("sys/class/power_supply/BAT0/status", "Full"),
        ]);
        assert_eq!(sensors.conditions().power, Power::Ac);
        std::fs::write(root.path().join("proc/pressure/memory"), "some avg10=11.00\n").unwrap();
        std::fs::write(root.path().join("sys/class/power_supply/BAT0/status"), "Discharging\n").unwrap();
        assert_eq!(sensors.conditions().memory, Memory::Warn);
        assert_eq!(sensors.readings().conditions.power, Power::Battery);
        assert_eq!(sensors.conditions().power, Power::Battery);
    }

    #[test]
    fn this_machine_can_be_read() {
        let readings = SystemSensors::new().readings();
        assert!(readings.available_memory_bytes.is_some_and(|bytes| bytes > 0));
        assert!(readings.slept.is_some());
        // For people who run this with --nocapture.
        println!("{readings:#?}");
    }
}
