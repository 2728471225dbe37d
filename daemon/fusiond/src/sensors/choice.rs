//! Which sensors: `--sensors`.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use super::{FixedSensors, ScriptError, ScriptedSensors, Sensors, SystemSensors};
use crate::machine::MachineChoice;

const SYSTEM: &str = "system";
const SCRIPTED: &str = "scripted:";

/// Which sensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SensorChoice {
    /// This machine's.
    System,
    /// Those of a script.
    Scripted(PathBuf),
}

/// There are no such sensors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there are no sensors '{name}': give --sensors system, or --sensors scripted:FILE")]
pub struct SensorChoiceError {
    /// What was asked for.
    name: String,
}

impl FromStr for SensorChoice {
    type Err = SensorChoiceError;

    fn from_str(text: &str) -> Result<Self, SensorChoiceError> {
        match text.strip_prefix(SCRIPTED) {
            Some(path) if !path.is_empty() => Ok(Self::Scripted(path.into())),
            None if text == SYSTEM => Ok(Self::System),
            _ => Err(SensorChoiceError { name: text.to_owned() }),
        }
    }
}

impl SensorChoice {
    /// The sensors that were chosen; if none were, those that fit the machine: the state of this one says nothing about one that is data.
    ///
    /// # Errors
    /// Every [`ScriptError`].
    pub fn open(chosen: Option<Self>, machine: MachineChoice) -> Result<Arc<dyn Sensors>, ScriptError> {
        let sensors: Arc<dyn Sensors> = match chosen {
            Some(Self::Scripted(path)) => Arc::new(ScriptedSensors::open(path)?),
            Some(Self::System) => Arc::new(SystemSensors::new()),
            None if machine == MachineChoice::Worker => Arc::new(SystemSensors::new()),
            None => Arc::new(FixedSensors::default()),
        };
        Ok(sensors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensors_are_named() {
        assert_eq!("system".parse(), Ok(SensorChoice::System));
        assert_eq!("scripted:/x/y.toml".parse(), Ok(SensorChoice::Scripted("/x/y.toml".into())));
        for wrong in ["", "scripted", "scripted:", "SYSTEM", "fixed"] {
            let error = wrong.parse::<SensorChoice>().unwrap_err().to_string();
            assert!(error.contains(&format!("'{wrong}'")) && error.contains("scripted:FILE"), "{error}");
        }
    }

    #[test]
    fn a_machine_that_is_data_has_no_sensors_of_its_own() {
        let modelled = "model:m4-pro".parse().unwrap();
        assert!(SensorChoice::open(None, modelled).unwrap().source().starts_with("none"));
        assert_eq!(SensorChoice::open(None, MachineChoice::Worker).unwrap().source(), "this machine");
        assert_eq!(
            SensorChoice::open(Some(SensorChoice::System), modelled).unwrap().source(),
            "this machine"
        );
    }
}
