//! Sensors that say what a file says: for tests and demos.
//!
//! ```toml
//! thermal = "heavy"           # nominal, moderate, heavy, trapping
//! memory = "normal"           # normal, warn, critical
//! power = "battery"           # ac, battery
//! low_power_mode = false
//! available_memory_bytes = 8_000_000_000
//! gpu_busy = 0.4
//! user_idle_seconds = 120
//! ```
//!
//! What is left out is unknown. The file is read anew at every look, and never without one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use fs_err as fs;
use fusion_calibrations::conditions::{Conditions, LowPowerMode, Memory, Power, Thermal};
use serde::Deserialize;

use super::{Readings, Sensors};

/// Why a script says nothing.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It can't be read. The message names it.
    #[error("the sensors' script can't be read: {0}")]
    Io(#[from] io::Error),
    /// It is no TOML, or has a key that means nothing here.
    #[error("the sensors' script {path} can't be understood: {source}")]
    Form {
        /// The script.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A value can't be.
    #[error("the sensors' script {path}: {key} must be {allowed}")]
    Value {
        /// The script.
        path: PathBuf,
        /// Which.
        key: &'static str,
        /// What it may be.
        allowed: &'static str,
    },
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    thermal: Option<ThermalWord>,
    memory: Option<MemoryWord>,
    power: Option<PowerWord>,
    low_power_mode: Option<bool>,
    available_memory_bytes: Option<u64>,
    swapped_in_pages: Option<u64>,
    cpu_pressure: Option<f64>,
    gpu_busy: Option<f64>,
    user_idle_seconds: Option<f64>,
    display_asleep: Option<bool>,
    dark_wake: Option<bool>,
    slept_seconds: Option<f64>,
    throttle_events: Option<u64>,
    cpu_speed_limit: Option<f64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ThermalWord {
    Nominal,
    Moderate,
    Heavy,
    Trapping,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MemoryWord {
    Normal,
    Warn,
    Critical,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PowerWord {
    Ac,
    Battery,
}

/// Reads a script.
fn parse(path: &Path, text: &str) -> Result<Readings, ScriptError> {
    let form = |source| ScriptError::Form { path: path.to_owned(), source: Box::new(source) };
    let script: Script = toml::from_str(text).map_err(form)?;
    let value = |key, allowed| ScriptError::Value { path: path.to_owned(), key, allowed };
    let share = |key, share: Option<f64>| match share {
        Some(share) if !(0.0..=1.0).contains(&share) => Err(value(key, "between 0 and 1")),
        share => Ok(share),
    };
    let seconds = |key, seconds: Option<f64>| {
        seconds.map(Duration::try_from_secs_f64).transpose().map_err(|_| value(key, "a number of seconds"))
    };
    Ok(Readings {
        conditions: conditions(&script),
        available_memory_bytes: script.available_memory_bytes,
        swapped_in_pages: script.swapped_in_pages,
        cpu_pressure: share("cpu_pressure", script.cpu_pressure)?,
        gpu_busy: share("gpu_busy", script.gpu_busy)?,
        user_idle: seconds("user_idle_seconds", script.user_idle_seconds)?,
        display_asleep: script.display_asleep,
        dark_wake: script.dark_wake,
        slept: seconds("slept_seconds", script.slept_seconds)?,
        throttle_events: script.throttle_events,
        cpu_speed_limit: share("cpu_speed_limit", script.cpu_speed_limit)?,
    })
}

fn conditions(script: &Script) -> Conditions {
    Conditions {
        thermal: script.thermal.map_or(Thermal::Unknown, |word| match word {
            ThermalWord::Nominal => Thermal::Nominal,
            ThermalWord::Moderate => Thermal::Moderate,
            ThermalWord::Heavy => Thermal::Heavy,
            ThermalWord::Trapping => Thermal::Trapping,
        }),
        memory: script.memory.map_or(Memory::Unknown, |word| match word {
            MemoryWord::Normal => Memory::Normal,
            MemoryWord::Warn => Memory::Warn,
            MemoryWord::Critical => Memory::Critical,
        }),
        power: script.power.map_or(Power::Unknown, |word| match word {
            PowerWord::Ac => Power::Ac,
            PowerWord::Battery => Power::Battery,
        }),
        low_power_mode: script.low_power_mode.map_or(LowPowerMode::Unknown, |on| match on {
            true => LowPowerMode::On,
            false => LowPowerMode::Off,
        }),
    }
}

/// What was read last.
#[derive(Debug)]
struct Last {
    /// The file's text, or why there is none: nothing is said twice of the same.
    seen: Result<String, String>,
    /// What the last good text means.
    good: Readings,
}

/// Sensors that say what a file says now; what it said last, and a word in the log, while the file is bad.
#[derive(Debug)]
pub struct ScriptedSensors {
    path: PathBuf,
    last: Mutex<Last>,
}

impl ScriptedSensors {
    /// Opens a script.
    ///
    /// # Errors
    /// Every [`ScriptError`]: at the start nothing good was said before.
    pub fn open(path: PathBuf) -> Result<Self, ScriptError> {
        let text = fs::read_to_string(&path)?;
        let good = parse(&path, &text)?;
        Ok(Self { path, last: Mutex::new(Last { seen: Ok(text), good }) })
    }
}

impl Sensors for ScriptedSensors {
    fn conditions(&self) -> Conditions {
        self.readings().conditions
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        self.readings().available_memory_bytes
    }

    fn readings(&self) -> Readings {
        let seen = fs::read_to_string(&self.path).map_err(|error| error.to_string());
        let mut last = self.last.lock().expect("no holder of this lock panics");
        if seen == last.seen {
            return last.good.clone();
        }
        let parsed = match &seen {
            Ok(text) => parse(&self.path, text).map_err(|error| error.to_string()),
            Err(error) => Err(error.clone()),
        };
        match parsed {
            Ok(good) => last.good = good,
            Err(error) => tracing::warn!("the sensors say what they said before: {error}"),
        }
        last.seen = seen;
        last.good.clone()
    }

    fn source(&self) -> String {
        format!("scripted: {}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = r#"
thermal = "heavy"
memory = "warn"
power = "battery"
low_power_mode = true
available_memory_bytes = 8_000_000_000
swapped_in_pages = 3
cpu_pressure = 0.25
gpu_busy = 1.0
user_idle_seconds = 1.5
display_asleep = true
dark_wake = false
slept_seconds = 3600
throttle_events = 7
cpu_speed_limit = 0.5
"#;

    fn script(text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sensors.toml");
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    #[test]
    fn every_reading_can_be_scripted() {
        let readings = parse(Path::new("x"), ALL).unwrap();
        let expected = Readings {
            conditions: Conditions {
                thermal: Thermal::Heavy,
                memory: Memory::Warn,
                power: Power::Battery,
                low_power_mode: LowPowerMode::On,
            },
            available_memory_bytes: Some(8_000_000_000),
            swapped_in_pages: Some(3),
            cpu_pressure: Some(0.25),
            gpu_busy: Some(1.0),
            user_idle: Some(Duration::from_millis(1500)),
            display_asleep: Some(true),
            dark_wake: Some(false),
            slept: Some(Duration::from_secs(3600)),
            throttle_events: Some(7),
            cpu_speed_limit: Some(0.5),
        };
        assert_eq!(readings, expected);
        assert_eq!(parse(Path::new("x"), "").unwrap(), Readings::default());
    }

    #[test]
    fn a_bad_script_names_file_and_key() {
        for (text, says) in [
            ("thermal = \"warm\"", "thermal"),
            ("termal = \"heavy\"", "termal"),
            ("thermal = ", "can't be understood"),
            ("gpu_busy = 40", "gpu_busy must be between 0 and 1"),
            ("cpu_pressure = nan", "cpu_pressure must be between 0 and 1"),
            ("user_idle_seconds = -1", "user_idle_seconds must be a number of seconds"),
            ("slept_seconds = inf", "slept_seconds must be a number of seconds"),
            ("available_memory_bytes = -1", "available_memory_bytes"),
        ] {
            let error = parse(Path::new("/x/sensors.toml"), text).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("/x/sensors.toml"), "{text}: {error}");
        }
    }

    #[test]
    fn the_file_counts_at_each_look_and_a_bad_one_changes_nothing() {
        let (_directory, path) = script("thermal = \"nominal\"\navailable_memory_bytes = 5");
        let sensors = ScriptedSensors::open(path.clone()).unwrap();
        assert_eq!(
            (sensors.conditions().thermal, sensors.available_memory_bytes()),
            (Thermal::Nominal, Some(5))
        );
        // The same length in the same instant: neither size nor time of the file may be relied on.
        std::fs::write(&path, "thermal = \"nominal\"\navailable_memory_bytes = 6").unwrap();
        assert_eq!(sensors.available_memory_bytes(), Some(6));
        std::fs::write(&path, "thermal = ").unwrap();
        assert_eq!(
            (sensors.conditions().thermal, sensors.available_memory_bytes()),
            (Thermal::Nominal, Some(6))
        );
        std::fs::remove_file(&path).unwrap();
        assert_eq!(sensors.conditions().thermal, Thermal::Nominal);
        std::fs::write(&path, "thermal = \"trapping\"").unwrap();
        assert_eq!(
            (sensors.conditions().thermal, sensors.available_memory_bytes()),
            (Thermal::Trapping, None)
        );
        assert!(sensors.source().starts_with("scripted: /"));
    }

    #[test]
    fn a_script_that_is_bad_from_the_start_is_refused() {
        let (directory, path) = script("gpu_busy = 2");
        assert!(matches!(ScriptedSensors::open(path), Err(ScriptError::Value { key: "gpu_busy", .. })));
        let absent = ScriptedSensors::open(directory.path().join("absent.toml")).unwrap_err();
        assert!(absent.to_string().contains("absent.toml"), "{absent}");
    }
}
