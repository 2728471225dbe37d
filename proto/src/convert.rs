//! Between the wire's messages and the domain's types.

use std::fmt;

use fusion_calibrations::chip::Chip;
use fusion_calibrations::conditions::{Conditions, LowPowerMode, Memory, Power, Thermal};
use fusion_calibrations::engine::Engine;
use fusion_calibrations::estimate::{Estimate, Provenance, StaleReason};
use fusion_calibrations::lines::Lines;
use fusion_calibrations::lookup::Source;
use fusion_calibrations::rows::{Cliff, RowRule};
use fusion_calibrations::sample::{Sample, Unit};
use fusion_calibrations::shape::{Layer, Layout, Shape, ShapeError};
use fusion_calibrations::stats::Interval;

use crate::v1;

/// A message whose content can't be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field without which the message means nothing.
    #[error("the field '{field}' is missing")]
    Missing {
        /// Its name.
        field: &'static str,
    },
    /// A field with a value that can't be.
    #[error("the field '{field}' can't be {value}")]
    Impossible {
        /// Its name.
        field: &'static str,
        /// What it holds.
        value: String,
    },
    /// A shape that can't be.
    #[error("{0}")]
    Shape(#[from] ShapeError),
}

impl WireError {
    /// A field that holds what can't be.
    pub fn impossible(field: &'static str, value: &dyn fmt::Display) -> Self {
        Self::Impossible { field, value: value.to_string() }
    }
}

impl From<Shape> for v1::Shape {
    fn from(shape: Shape) -> Self {
        Self { rows: shape.rows(), layer: Some(shape.layer().into()) }
    }
}

impl From<Layer> for v1::Layer {
    fn from(layer: Layer) -> Self {
        Self {
            inputs: layer.inputs(),
            outputs: layer.outputs(),
            format: layer.format().to_string(),
            layout: layer.layout().to_string(),
        }
    }
}

impl TryFrom<&v1::Layer> for Layer {
    type Error = WireError;

    fn try_from(wire: &v1::Layer) -> Result<Self, WireError> {
        let layout = if wire.layout.is_empty() { Layout::default() } else { wire.layout.parse()? };
        Ok(Self::new(wire.inputs, wire.outputs, wire.format.parse()?, layout)?)
    }
}

impl TryFrom<&v1::Shape> for Shape {
    type Error = WireError;

    fn try_from(wire: &v1::Shape) -> Result<Self, WireError> {
        let layer = wire.layer.as_ref().ok_or(WireError::Missing { field: "layer" })?;
        Ok(Layer::try_from(layer)?.with_rows(wire.rows)?)
    }
}

impl From<&Chip> for v1::Chip {
    fn from(chip: &Chip) -> Self {
        Self {
            key: chip.key(),
            brand: chip.brand.clone(),
            gpu_cores: chip.gpu_cores.map(u32::from),
            memory_gib: chip.memory_gib,
            model_identifier: chip.model_identifier.clone(),
            cooling: chip.cooling.to_string(),
            pair: chip.pair.to_string(),
            pair_label: chip.pair.label().unwrap_or_default().to_owned(),
        }
    }
}

impl From<&Engine> for v1::Engine {
    fn from(engine: &Engine) -> Self {
        Self {
            os_build: engine.os_build.clone(),
            mlx_version: engine.mlx_version.clone(),
            library_hash: engine.library_hash.clone(),
        }
    }
}

impl From<v1::Engine> for Engine {
    fn from(wire: v1::Engine) -> Self {
        Self { os_build: wire.os_build, mlx_version: wire.mlx_version, library_hash: wire.library_hash }
    }
}

impl From<Conditions> for v1::Conditions {
    fn from(conditions: Conditions) -> Self {
        Self {
            thermal: match conditions.thermal {
                Thermal::Unknown => v1::Thermal::Unknown,
                Thermal::Nominal => v1::Thermal::Nominal,
                Thermal::Moderate => v1::Thermal::Moderate,
                Thermal::Heavy => v1::Thermal::Heavy,
                Thermal::Trapping => v1::Thermal::Trapping,
            }
            .into(),
            memory: match conditions.memory {
                Memory::Unknown => v1::Memory::Unknown,
                Memory::Normal => v1::Memory::Normal,
                Memory::Warn => v1::Memory::Warn,
                Memory::Critical => v1::Memory::Critical,
            }
            .into(),
            power: match conditions.power {
                Power::Unknown => v1::Power::Unknown,
                Power::Ac => v1::Power::Ac,
                Power::Battery => v1::Power::Battery,
            }
            .into(),
            low_power_mode: match conditions.low_power_mode {
                LowPowerMode::Unknown => v1::LowPowerMode::Unknown,
                LowPowerMode::Off => v1::LowPowerMode::Off,
                LowPowerMode::On => v1::LowPowerMode::On,
            }
            .into(),
        }
    }
}

impl From<&v1::Conditions> for Conditions {
    /// A word that this version doesn't know reads as unknown.
    fn from(wire: &v1::Conditions) -> Self {
        Self {
            thermal: match wire.thermal() {
                v1::Thermal::Unknown => Thermal::Unknown,
                v1::Thermal::Nominal => Thermal::Nominal,
                v1::Thermal::Moderate => Thermal::Moderate,
                v1::Thermal::Heavy => Thermal::Heavy,
                v1::Thermal::Trapping => Thermal::Trapping,
            },
            memory: match wire.memory() {
                v1::Memory::Unknown => Memory::Unknown,
                v1::Memory::Normal => Memory::Normal,
                v1::Memory::Warn => Memory::Warn,
                v1::Memory::Critical => Memory::Critical,
            },
            power: match wire.power() {
                v1::Power::Unknown => Power::Unknown,
                v1::Power::Ac => Power::Ac,
                v1::Power::Battery => Power::Battery,
            },
            low_power_mode: match wire.low_power_mode() {
                v1::LowPowerMode::Unknown => LowPowerMode::Unknown,
                v1::LowPowerMode::Off => LowPowerMode::Off,
                v1::LowPowerMode::On => LowPowerMode::On,
            },
        }
    }
}

impl From<Lines> for v1::Lines {
    fn from(lines: Lines) -> Self {
        Self {
            primary_ms_per_row: lines.primary_ms_per_row,
            secondary_ms_per_row: lines.secondary_ms_per_row,
            overhead_ms: lines.overhead_ms,
            stock_ms_per_row: lines.stock_ms_per_row,
        }
    }
}

impl From<&v1::Lines> for Lines {
    fn from(wire: &v1::Lines) -> Self {
        Self {
            primary_ms_per_row: wire.primary_ms_per_row,
            secondary_ms_per_row: wire.secondary_ms_per_row,
            overhead_ms: wire.overhead_ms,
            stock_ms_per_row: wire.stock_ms_per_row,
        }
    }
}

impl From<&RowRule> for v1::RowRule {
    fn from(rule: &RowRule) -> Self {
        let cliff = |cliff: &Cliff| v1::Cliff {
            secondary_rows: cliff.secondary_rows,
            minimum_inputs: cliff.minimum_inputs,
        };
        Self { cliffs: rule.cliffs.iter().map(cliff).collect(), primary_alignment: rule.primary_alignment }
    }
}

impl From<&v1::RowRule> for RowRule {
    fn from(wire: &v1::RowRule) -> Self {
        let cliff = |cliff: &v1::Cliff| Cliff {
            secondary_rows: cliff.secondary_rows,
            minimum_inputs: cliff.minimum_inputs,
        };
        Self { cliffs: wire.cliffs.iter().map(cliff).collect(), primary_alignment: wire.primary_alignment }
    }
}

impl From<Interval> for v1::Interval {
    fn from(interval: Interval) -> Self {
        Self { low: interval.low, value: interval.value, high: interval.high }
    }
}

impl From<Provenance> for v1::Provenance {
    fn from(provenance: Provenance) -> Self {
        match provenance {
            Provenance::Prior => Self::Prior,
            Provenance::Imported => Self::Imported,
            Provenance::Observed => Self::Observed,
            Provenance::Measured => Self::Measured,
        }
    }
}

impl From<Source> for v1::Source {
    fn from(source: Source) -> Self {
        match source {
            Source::Exact => Self::Exact,
            Source::OtherConditions => Self::OtherConditions,
            Source::OtherRows => Self::OtherRows,
            Source::OtherEngine => Self::OtherEngine,
            Source::ChipPrior => Self::ChipPrior,
            Source::None => Self::None,
        }
    }
}

impl v1::Source {
    /// The source; `None` for a word that this version doesn't know.
    pub fn known(self) -> Option<Source> {
        match self {
            Self::Unspecified => None,
            Self::Exact => Some(Source::Exact),
            Self::OtherConditions => Some(Source::OtherConditions),
            Self::OtherRows => Some(Source::OtherRows),
            Self::OtherEngine => Some(Source::OtherEngine),
            Self::ChipPrior => Some(Source::ChipPrior),
            Self::None => Some(Source::None),
        }
    }
}

/// An estimate for the wire, with the identity it belongs to.
pub fn estimate(
    estimate: &Estimate,
    chip: &Chip,
    engine: &Engine,
    stale: Option<StaleReason>,
) -> v1::Estimate {
    v1::Estimate {
        shape: Some(estimate.shape.into()),
        conditions: Some(estimate.conditions.into()),
        lines: estimate.lines.map(Into::into),
        ratio: estimate.ratio.get(),
        secondary_rows: estimate.secondary_rows,
        stock_ms: estimate.stock_ms,
        split_ms: estimate.split_ms,
        speed_up: Some(estimate.speed_up.into()),
        kept_samples: estimate.kept_samples,
        dropped_samples: estimate.dropped_samples,
        relative_error: estimate.relative_error,
        measured_at_unix_ms: estimate.measured_at_unix_ms,
        provenance: v1::Provenance::from(estimate.provenance).into(),
        stale_reason: stale.map(|reason| reason.to_string()).unwrap_or_default(),
        chip_key: chip.key(),
        engine: Some(engine.into()),
    }
}

/// A raw sample for the wire.
pub fn sample(sample: &Sample) -> v1::Sample {
    let Sample { secondary_rows, total_ms, finish_times, dropped } = *sample;
    v1::Sample {
        secondary_rows,
        total_ms,
        primary_finish_ms: finish_times.map(|times| times.primary_ms),
        secondary_finish_ms: finish_times.map(|times| times.secondary_ms),
        secondary_waited_first: finish_times.is_some_and(|times| times.first_waited == Unit::Secondary),
        dropped_reason: dropped.map(|reason| reason.to_string()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_calibrations::shape::WeightFormat;

    #[test]
    fn shapes_survive_the_wire() {
        let shape = Shape::parse(
            "2048x4096x14336",
            WeightFormat::Affine { bits: 4, group: 64 },
            Layout::InputsByOutputs,
        )
        .unwrap();
        assert_eq!(Shape::try_from(&v1::Shape::from(shape)).unwrap(), shape);
    }

    #[test]
    fn what_is_missing_or_impossible_is_named() {
        assert_eq!(
            Shape::try_from(&v1::Shape { rows: 5, layer: None }).unwrap_err(),
            WireError::Missing { field: "layer" }
        );
        let layer = v1::Layer { inputs: 0, outputs: 1, format: "f32".to_owned(), layout: String::new() };
        let error = Shape::try_from(&v1::Shape { rows: 5, layer: Some(layer) }).unwrap_err();
        assert!(error.to_string().contains("inputs is 0"), "{error}");
    }

    #[test]
    fn sources_survive_the_wire() {
        let all = [
            Source::Exact,
            Source::OtherConditions,
            Source::OtherRows,
            Source::OtherEngine,
            Source::ChipPrior,
            Source::None,
        ];
        assert_eq!(all.map(|source| v1::Source::from(source).known()), all.map(Some));
        assert_eq!(v1::Source::Unspecified.known(), None);
    }

    #[test]
    fn conditions_survive_the_wire_and_unknown_words_read_as_unknown() {
        for &thermal in Thermal::ALL {
            for &memory in Memory::ALL {
                let conditions =
                    Conditions { thermal, memory, power: Power::Battery, low_power_mode: LowPowerMode::On };
                assert_eq!(Conditions::from(&v1::Conditions::from(conditions)), conditions);
            }
        }
        let newer = v1::Conditions { thermal: 99, ..Default::default() };
        assert_eq!(Conditions::from(&newer).thermal, Thermal::Unknown);
    }
}
