//! In which state the machine is.
//!
//! ```text
//! system: macOS or Linux --+
//! scripted: a file --------+--> Sensors --> SensorWatch --> whoever asks, and watch::Receiver<Observed>
//! fixed: as told ----------+        (decode: what the values mean)
//! ```
//!
//! Every value is optional: a sensor that is absent or speaks nonsense makes a condition unknown, never a wrong one.

pub mod choice;
pub mod decode;
mod readings;
mod scripted;
mod system;
mod watch;

use std::pin::Pin;

use fusion_calibrations::conditions::Conditions;

pub use decode::processor::ProcessorTime;
pub use readings::Readings;
pub use scripted::{ScriptError, ScriptedSensors};
pub use system::SystemSensors;
pub use watch::{Observed, SensorWatch};

/// What tells the state of the machine. A trait because tests and demos script it.
pub trait Sensors: Send + Sync {
    /// The conditions now. Cheap enough to be read around every timed call: well below 0.1 ms.
    fn conditions(&self) -> Conditions;

    /// Memory that a new process could use without pushing others out, in bytes; `None` if nobody says.
    fn available_memory_bytes(&self) -> Option<u64>;

    /// Everything that can be said now. Some files and calls: for once before and after something, not around every call.
    fn readings(&self) -> Readings;

    /// What all processors did since the machine started; the difference of two answers tells how busy they were. `None` if nobody says.
    fn processor_time(&self) -> Option<ProcessorTime> {
        None
    }

    /// Tells that a look is worth it. Called once, inside a tokio runtime; never an event by default.
    fn events(&self) -> Box<dyn Events> {
        Box::new(Never)
    }

    /// Where the readings come from, for people: "this machine", "scripted: sensors.toml".
    fn source(&self) -> String;
}

/// Events of a system: something may have changed.
pub trait Events: Send {
    /// Waits for the next. Dropping the future loses nothing.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Nothing ever happens.
struct Never;

impl Events for Never {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

/// Readings that stay as they are told: for tests, and for machines that are data.
#[derive(Debug, Default)]
pub struct FixedSensors {
    /// What they say.
    pub readings: Readings,
}

impl Sensors for FixedSensors {
    fn conditions(&self) -> Conditions {
        self.readings.conditions
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        self.readings.available_memory_bytes
    }

    fn readings(&self) -> Readings {
        self.readings.clone()
    }

    fn source(&self) -> String {
        "none: the machine is data".to_owned()
    }
}
