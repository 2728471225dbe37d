//! Version 1 of a stored calibration. Frozen: never edited, only converted from.

use serde::{Deserialize, Serialize};

use super::{Record, RecordError};
use crate::chip::{Chip, Cooling};
use crate::conditions::Conditions;
use crate::engine::Engine;
use crate::estimate::{Estimate, Provenance};
use crate::lines::Lines;
use crate::ratio::Ratio;
use crate::sample::{DropReason, FinishTimes, Sample, Unit};
use crate::shape::{Layer, Layout, Shape};
use crate::stats::Interval;

/// A calibration as version 1 stores it. Text where a newer fusiond may know more words; numbers elsewhere.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Calibration {
    brand: String,
    gpu_cores: Option<u16>,
    memory_gib: u32,
    model_identifier: String,
    cooling: u8,
    pair: String,
    os_build: String,
    mlx_version: String,
    library_hash: String,
    rows: u32,
    inputs: u32,
    outputs: u32,
    format: String,
    layout: String,
    conditions: [u8; 4],
    lines: Option<[f64; 4]>,
    ratio: f64,
    secondary_rows: u32,
    stock_ms: f64,
    split_ms: f64,
    speed_up: [f64; 3],
    kept_samples: u32,
    dropped_samples: u32,
    relative_error: Option<f64>,
    measured_at_unix_ms: u64,
    provenance: u8,
    samples: Vec<StoredSample>,
    written_by: String,
}

/// One sample: the finish times as primary, secondary and whether the secondary unit was waited for first.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredSample {
    secondary_rows: u32,
    total_ms: f64,
    finish_times: Option<(f64, f64, bool)>,
    dropped: u8,
}

fn body(reason: impl std::fmt::Display) -> RecordError {
    RecordError::Body { reason: reason.to_string() }
}

impl From<&Record> for Calibration {
    fn from(record: &Record) -> Self {
        let Record { chip, engine, estimate, samples, written_by } = record;
        let layer = estimate.shape.layer();
        Self {
            brand: chip.brand.clone(),
            gpu_cores: chip.gpu_cores,
            memory_gib: chip.memory_gib,
            model_identifier: chip.model_identifier.clone(),
            cooling: cooling_code(chip.cooling),
            pair: chip.pair.to_string(),
            os_build: engine.os_build.clone(),
            mlx_version: engine.mlx_version.clone(),
            library_hash: engine.library_hash.clone(),
            rows: estimate.shape.rows(),
            inputs: layer.inputs(),
            outputs: layer.outputs(),
            format: layer.format().to_string(),
            layout: layer.layout().to_string(),
            conditions: estimate.conditions.to_key(),
            lines: estimate.lines.map(|lines| {
                [
                    lines.primary_ms_per_row,
                    lines.secondary_ms_per_row,
                    lines.overhead_ms,
                    lines.stock_ms_per_row,
                ]
            }),
            ratio: estimate.ratio.get(),
            secondary_rows: estimate.secondary_rows,
            stock_ms: estimate.stock_ms,
            split_ms: estimate.split_ms,
            speed_up: [estimate.speed_up.low, estimate.speed_up.value, estimate.speed_up.high],
            kept_samples: estimate.kept_samples,
            dropped_samples: estimate.dropped_samples,
            relative_error: estimate.relative_error,
            measured_at_unix_ms: estimate.measured_at_unix_ms,
            provenance: estimate.provenance.code(),
            samples: samples.iter().map(StoredSample::from).collect(),
            written_by: written_by.clone(),
        }
    }
}

impl From<&Sample> for StoredSample {
    fn from(sample: &Sample) -> Self {
        Self {
            secondary_rows: sample.secondary_rows,
            total_ms: sample.total_ms,
            finish_times: sample
                .finish_times
                .map(|times| (times.primary_ms, times.secondary_ms, times.first_waited == Unit::Secondary)),
            dropped: sample.dropped.map_or(0, DropReason::code),
        }
    }
}

impl TryFrom<StoredSample> for Sample {
    type Error = RecordError;

    fn try_from(stored: StoredSample) -> Result<Self, RecordError> {
        let dropped = match stored.dropped {
            0 => None,
            code => Some(
                DropReason::from_code(code)
                    .ok_or_else(|| body(format!("unknown reason {code} for dropping")))?,
            ),
        };
        Ok(Self {
            secondary_rows: stored.secondary_rows,
            total_ms: stored.total_ms,
            finish_times: stored.finish_times.map(|(primary_ms, secondary_ms, secondary_first)| {
                FinishTimes {
                    primary_ms,
                    secondary_ms,
                    first_waited: if secondary_first { Unit::Secondary } else { Unit::Primary },
                }
            }),
            dropped,
        })
    }
}

fn cooling_code(cooling: Cooling) -> u8 {
    match cooling {
        Cooling::Unknown => 0,
        Cooling::Active => 1,
        Cooling::Passive => 2,
    }
}

fn cooling_from(code: u8) -> Result<Cooling, RecordError> {
    [Cooling::Unknown, Cooling::Active, Cooling::Passive]
        .into_iter()
        .find(|cooling| cooling_code(*cooling) == code)
        .ok_or_else(|| body(format!("unknown cooling {code}")))
}

/// Reads the body of a version 1 calibration.
pub(super) fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
    let stored: Calibration = super::decode_body(bytes)?;
    Ok(Record {
        chip: stored.chip()?,
        engine: Engine {
            os_build: stored.os_build.clone(),
            mlx_version: stored.mlx_version.clone(),
            library_hash: stored.library_hash.clone(),
        },
        estimate: stored.estimate()?,
        samples: stored.samples.into_iter().map(Sample::try_from).collect::<Result<_, _>>()?,
        written_by: stored.written_by,
    })
}

impl Calibration {
    fn chip(&self) -> Result<Chip, RecordError> {
        Ok(Chip {
            brand: self.brand.clone(),
            gpu_cores: self.gpu_cores,
            memory_gib: self.memory_gib,
            model_identifier: self.model_identifier.clone(),
            cooling: cooling_from(self.cooling)?,
            pair: self.pair.parse().map_err(body)?,
        })
    }

    fn shape(&self) -> Result<Shape, RecordError> {
        let layout: Layout = self.layout.parse().map_err(body)?;
        Layer::new(self.inputs, self.outputs, self.format.parse().map_err(body)?, layout)
            .and_then(|layer| layer.with_rows(self.rows))
            .map_err(body)
    }

    fn estimate(&self) -> Result<Estimate, RecordError> {
        let [low, value, high] = self.speed_up;
        let shape = self.shape()?;
        if self.secondary_rows > shape.rows() {
            return Err(body(format!(
                "{} of {} rows are the secondary unit's",
                self.secondary_rows,
                shape.rows()
            )));
        }
        Ok(Estimate {
            shape,
            conditions: Conditions::from_key(self.conditions).ok_or_else(|| body("unknown conditions"))?,
            lines: self.lines.map(|[primary, secondary, overhead, stock]| Lines {
                primary_ms_per_row: primary,
                secondary_ms_per_row: secondary,
                overhead_ms: overhead,
                stock_ms_per_row: stock,
            }),
            ratio: Ratio::new(self.ratio).map_err(body)?,
            secondary_rows: self.secondary_rows,
            stock_ms: self.stock_ms,
            split_ms: self.split_ms,
            speed_up: Interval { low, value, high },
            kept_samples: self.kept_samples,
            dropped_samples: self.dropped_samples,
            relative_error: self.relative_error,
            measured_at_unix_ms: self.measured_at_unix_ms,
            provenance: Provenance::from_code(self.provenance)
                .ok_or_else(|| body(format!("unknown provenance {}", self.provenance)))?,
        })
    }
}

/// The record behind the golden bytes: it uses every optional field and every kind of sample.
#[cfg(test)]
pub(crate) fn example() -> Record {
    use crate::chip::Pair;
    use crate::conditions::{LowPowerMode, Memory, Power, Thermal};
    use crate::shape::WeightFormat;

    let stock = Sample { secondary_rows: 0, total_ms: 20.5, finish_times: None, dropped: None };
    let times = FinishTimes { primary_ms: 13.25, secondary_ms: 13.5, first_waited: Unit::Secondary };
    let split = Sample { secondary_rows: 716, total_ms: 15.25, finish_times: Some(times), dropped: None };
    let disturbed = Sample { dropped: Some(DropReason::Disturbed), ..split };
    Record {
        chip: Chip {
            brand: "Apple M4 Pro".to_owned(),
            gpu_cores: Some(20),
            memory_gib: 24,
            model_identifier: "Mac16,8".to_owned(),
            cooling: Cooling::Active,
            pair: Pair::GpuAndCpu,
        },
        engine: Engine {
            os_build: "25G83".to_owned(),
            mlx_version: "0.32.2".to_owned(),
            library_hash: "00c0ffee00c0ffee".to_owned(),
        },
        estimate: Estimate {
            shape: Layer::new(
                1600,
                6400,
                WeightFormat::Affine { bits: 4, group: 64 },
                Layout::OutputsByInputs,
            )
            .and_then(|layer| layer.with_rows(2048))
            .expect("the example is a shape"),
            conditions: Conditions {
                thermal: Thermal::Moderate,
                memory: Memory::Normal,
                power: Power::Battery,
                low_power_mode: LowPowerMode::Off,
            },
            lines: Some(Lines {
                primary_ms_per_row: 0.01,
                secondary_ms_per_row: 0.018,
                overhead_ms: 0.25,
                stock_ms_per_row: 0.0098,
            }),
            ratio: Ratio::new(0.35).expect("the example is a ratio"),
            secondary_rows: 716,
            stock_ms: 20.5,
            split_ms: 15.25,
            speed_up: Interval { low: 1.28, value: 1.34, high: 1.4 },
            kept_samples: 2,
            dropped_samples: 1,
            relative_error: Some(0.0028),
            measured_at_unix_ms: 1_790_000_000_123,
            provenance: Provenance::Measured,
        },
        samples: vec![stock, split, disturbed],
        written_by: "0.1.0".to_owned(),
    }
}
