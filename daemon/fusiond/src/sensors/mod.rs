//! In which state the machine is.
//!
//! Every value is optional: a sensor that is absent or speaks nonsense makes a condition unknown, never a wrong one.

#[cfg(target_os = "linux")]
mod linux;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fusion_calibrations::conditions::Conditions;

/// What tells the state of the machine. A trait because tests and demos script it.
pub trait Sensors: Send + Sync {
    /// The conditions now. Cheap enough to be read around every timed call: well below 0.1 ms.
    fn conditions(&self) -> Conditions;

    /// Memory that a new process could use without pushing others out, in bytes; `None` if nobody says.
    fn available_memory_bytes(&self) -> Option<u64>;
}

/// The sensors of this machine.
#[derive(Debug, Default)]
pub struct SystemSensors;

#[cfg(target_os = "linux")]
impl Sensors for SystemSensors {
    fn conditions(&self) -> Conditions {
        linux::conditions()
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        linux::available_memory_bytes()
    }
}

#[cfg(target_os = "macos")]
impl Sensors for SystemSensors {
    fn conditions(&self) -> Conditions {
        use fusion_calibrations::conditions::Memory;

        // `kern.memorystatus_vm_pressure_level`: 1 normal, 2 warn, 4 critical (XNU, bsd/kern/kern_memorystatus_notify.c).
        let memory = match crate::platform::sysctl_i32(c"kern.memorystatus_vm_pressure_level") {
            Some(1) => Memory::Normal,
            Some(2) => Memory::Warn,
            Some(4) => Memory::Critical,
            _ => Memory::Unknown,
        };
        Conditions { memory, ..Conditions::default() }
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        // `kern.memorystatus_level` is the share of memory that can be had without swapping, in percent.
        let percent = crate::platform::sysctl_i32(c"kern.memorystatus_level")?;
        let installed = crate::platform::sysctl_u64(c"hw.memsize")?;
        Some(installed / 100 * u64::try_from(percent).ok()?.min(100))
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
impl Sensors for SystemSensors {
    fn conditions(&self) -> Conditions {
        Conditions::default()
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        None
    }
}

/// Sensors whose conditions are read at most once in [`Recent::FOR`]: answering a question must not cost a walk through the file system.
pub struct Recent {
    sensors: Arc<dyn Sensors>,
    last: Mutex<Option<(Instant, Conditions)>>,
}

impl Recent {
    /// How long conditions count as present. Heat and memory pressure change over seconds.
    pub const FOR: Duration = Duration::from_millis(500);

    /// The recent conditions of `sensors`.
    pub fn new(sensors: Arc<dyn Sensors>) -> Self {
        Self { sensors, last: Mutex::default() }
    }

    /// The conditions, at most [`Self::FOR`] old.
    pub fn conditions(&self) -> Conditions {
        let mut last = self.last.lock().expect("no holder of this lock panics");
        match *last {
            Some((at, conditions)) if at.elapsed() < Self::FOR => conditions,
            _ => {
                let conditions = self.sensors.conditions();
                *last = Some((Instant::now(), conditions));
                conditions
            }
        }
    }
}

/// Conditions that stay as they are told: for tests and demos.
#[derive(Debug, Default)]
pub struct FixedSensors {
    /// What [`Sensors::conditions`] says.
    pub conditions: Conditions,
    /// What [`Sensors::available_memory_bytes`] says.
    pub available_memory_bytes: Option<u64>,
}

impl Sensors for FixedSensors {
    fn conditions(&self) -> Conditions {
        self.conditions
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        self.available_memory_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Counting(AtomicU32);

    impl Sensors for Counting {
        fn conditions(&self) -> Conditions {
            self.0.fetch_add(1, Ordering::Relaxed);
            Conditions::default()
        }

        fn available_memory_bytes(&self) -> Option<u64> {
            None
        }
    }

    #[test]
    fn questions_in_a_row_read_the_sensors_once() {
        let sensors = Arc::new(Counting::default());
        let recent = Recent::new(Arc::clone(&sensors) as Arc<dyn Sensors>);
        for _ in 0..100 {
            recent.conditions();
        }
        assert!(sensors.0.load(Ordering::Relaxed) < 10);
    }
}
