//! macOS: notification keys, sysctls, Mach, and the registry of devices. Written and linted, never run; what the values mean is
//! decided by [`decode::darwin`], which is tested everywhere.
//!
//! Not read: IOReport (private; its channels change with chips and systems) and the SMC (each key read is a line in the kernel's log since
//! macOS 26, exelban/stats issue 3136). So a GPU that is slowed at level "nominal" (feedback FB23754032) isn't seen here: the finish times
//! of split calls show it.

use std::ffi::CStr;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use fusion_calibrations::conditions::{Conditions, LowPowerMode, Memory, Power, Thermal};
use tokio::io::unix::AsyncFd;

use crate::platform::{
    Key, Notifications, RegistryEntry, clocks, displays_asleep, memory_counts, processor_ticks,
    providing_power_source, sysctl_i32, sysctl_u64,
};
use crate::sensors::decode::{self, darwin, processor};
use crate::sensors::{Events, ProcessorTime, Readings, Sensors};

/// `kOSThermalNotificationPressureLevelName` of <libkern/OSThermalNotification.h>.
const THERMAL: &CStr = c"com.apple.system.thermalpressurelevel";
/// What `NSProcessInfo.lowPowerModeEnabled` follows; posted by powerd.
const LOW_POWER_MODE: &CStr = c"com.apple.system.lowpowermode";
/// `kIOPSNotifyPowerSource` of <IOKit/ps/IOPowerSources.h>: another source provides. It has no state.
const POWER_SOURCE: &CStr = c"com.apple.system.powersources.source";

/// The sensors of this machine.
#[derive(Debug)]
pub struct SystemSensors {
    thermal: Option<Key>,
    low_power_mode: Option<Key>,
    power_source: Option<Key>,
    /// The source that was asked for last: powerd is asked again only after it posted.
    power: Mutex<Option<Power>>,
    accelerator: Option<RegistryEntry>,
    input: Option<RegistryEntry>,
    root_domain: Option<RegistryEntry>,
    installed_bytes: Option<u64>,
}

impl SystemSensors {
    /// The sensors.
    pub fn new() -> Self {
        Self {
            thermal: Key::register(THERMAL),
            low_power_mode: Key::register(LOW_POWER_MODE),
            power_source: Key::register(POWER_SOURCE),
            power: Mutex::default(),
            accelerator: RegistryEntry::of_class(c"AGXAccelerator"),
            input: RegistryEntry::of_class(c"IOHIDSystem"),
            root_domain: RegistryEntry::of_class(c"IOPMrootDomain"),
            installed_bytes: sysctl_u64(c"hw.memsize"),
        }
    }

    fn power(&self) -> Power {
        let mut last = self.power.lock().expect("no holder of this lock panics");
        // Asked for in any case, since asking is what forgets the post.
        let posted = self.power_source.as_ref().is_none_or(Key::posted);
        match *last {
            Some(power) if !posted && power != Power::Unknown => power,
            _ => {
                let name = providing_power_source();
                *last.insert(name.as_deref().map_or(Power::Unknown, darwin::power_source))
            }
        }
    }

    fn property(entry: Option<&RegistryEntry>, name: &'static str) -> Option<darwin::Property> {
        entry.and_then(|entry| entry.property(name))
    }
}

impl Default for SystemSensors {
    fn default() -> Self {
        Self::new()
    }
}

impl Sensors for SystemSensors {
    fn conditions(&self) -> Conditions {
        let state = |key: Option<&Key>| key.and_then(Key::state);
        Conditions {
            thermal: state(self.thermal.as_ref()).map_or(Thermal::Unknown, darwin::thermal),
            memory: sysctl_i32(c"kern.memorystatus_vm_pressure_level")
                .map_or(Memory::Unknown, darwin::memory),
            power: self.power(),
            low_power_mode: state(self.low_power_mode.as_ref())
                .map_or(LowPowerMode::Unknown, darwin::low_power_mode),
        }
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        let counts = memory_counts()?;
        darwin::available_bytes(&counts.pages, counts.page_bytes, self.installed_bytes?)
    }

    fn readings(&self) -> Readings {
        let capabilities = Self::property(self.root_domain.as_ref(), "System Capabilities");
        Readings {
            conditions: self.conditions(),
            available_memory_bytes: self.available_memory_bytes(),
            swapped_in_pages: memory_counts().map(|counts| counts.swapped_in_pages),
            cpu_pressure: None,
            gpu_busy: Self::property(self.accelerator.as_ref(), "PerformanceStatistics")
                .and_then(|statistics| darwin::gpu_busy(&statistics)),
            user_idle: Self::property(self.input.as_ref(), "HIDIdleTime")
                .and_then(|property| darwin::user_idle(&property)),
            display_asleep: darwin::all_asleep(&displays_asleep()),
            dark_wake: capabilities.and_then(|capabilities| darwin::dark_wake(&capabilities)),
            slept: slept(),
            throttle_events: None,
            cpu_speed_limit: None,
        }
    }

    fn processor_time(&self) -> Option<ProcessorTime> {
        processor_ticks().map(processor::time_of_mach)
    }

    fn events(&self) -> Box<dyn Events> {
        let notifications = Notifications::watched(&[THERMAL, LOW_POWER_MODE, POWER_SOURCE])
            .inspect_err(|error| tracing::warn!("no events of the system, which is read on demand: {error}"));
        Box::new(MacosEvents { notifications: notifications.ok() })
    }

    fn source(&self) -> String {
        "this machine".to_owned()
    }
}

fn slept() -> Option<Duration> {
    let (while_awake, through_sleep) = clocks()?;
    decode::slept(through_sleep, while_awake)
}

/// Posts of the three keys, on one descriptor. The dispatch source of memory pressure isn't used: XNU passes over processes as small as
/// this one (`VM_PRESSURE_MINIMUM_RSIZE`, bsd/kern/kern_memorystatus_notify.c).
struct MacosEvents {
    notifications: Option<AsyncFd<Notifications>>,
}

impl Events for MacosEvents {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            if let Err(error) = posted(self.notifications.as_ref()).await {
                tracing::warn!("no more events of the system: {error}");
                self.notifications = None;
            }
        })
    }
}

/// Waits for a post; for ever without a source.
async fn posted(source: Option<&AsyncFd<Notifications>>) -> std::io::Result<()> {
    let Some(source) = source else { return std::future::pending().await };
    loop {
        let mut ready = source.readable().await?;
        match ready.try_io(|notifications| notifications.get_ref().take()) {
            Ok(Ok(true)) => return Ok(()),
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => return Err(error),
        }
    }
}
