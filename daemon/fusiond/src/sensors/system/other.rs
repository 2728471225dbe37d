//! A system that nobody taught us to read.

use fusion_calibrations::conditions::Conditions;

use crate::sensors::{Readings, Sensors};

/// Sensors that know nothing.
#[derive(Debug, Default)]
pub struct SystemSensors;

impl SystemSensors {
    /// The sensors.
    pub fn new() -> Self {
        Self
    }
}

impl Sensors for SystemSensors {
    fn conditions(&self) -> Conditions {
        Conditions::default()
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        None
    }

    fn readings(&self) -> Readings {
        Readings::default()
    }

    fn source(&self) -> String {
        "none: this system is not known".to_owned()
    }
}
