//! What several documents hold.

use fusion_client::v1;
use jiff::Timestamp;
use serde::Serialize;

use crate::render::words;

/// A shape, in numbers and as the text that the command line takes.
#[derive(Debug, Serialize)]
pub(crate) struct Shape {
    text: String,
    rows: u32,
    inputs: u32,
    outputs: u32,
    format: String,
    layout: String,
}

impl From<&v1::Shape> for Shape {
    fn from(shape: &v1::Shape) -> Self {
        let layer = shape.layer.clone().unwrap_or_default();
        Self {
            text: format!("{}x{}x{}", shape.rows, layer.inputs, layer.outputs),
            rows: shape.rows,
            inputs: layer.inputs,
            outputs: layer.outputs,
            format: layer.format,
            layout: layer.layout,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Chip {
    key: String,
    brand: String,
    gpu_cores: Option<u32>,
    memory_gib: u32,
    model_identifier: String,
    cooling: String,
    pair: String,
    pair_label: Option<String>,
}

impl From<&v1::Chip> for Chip {
    fn from(chip: &v1::Chip) -> Self {
        let chip = chip.clone();
        Self {
            key: chip.key,
            brand: chip.brand,
            gpu_cores: chip.gpu_cores,
            memory_gib: chip.memory_gib,
            model_identifier: chip.model_identifier,
            cooling: chip.cooling,
            pair: chip.pair,
            pair_label: filled(&chip.pair_label),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Engine {
    os_build: String,
    mlx_version: String,
    library_hash: String,
}

impl From<&v1::Engine> for Engine {
    fn from(engine: &v1::Engine) -> Self {
        let engine = engine.clone();
        Self { os_build: engine.os_build, mlx_version: engine.mlx_version, library_hash: engine.library_hash }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Conditions {
    thermal: String,
    memory: String,
    power: String,
    low_power_mode: String,
}

impl From<&v1::Conditions> for Conditions {
    fn from(conditions: &v1::Conditions) -> Self {
        Self {
            thermal: word(conditions.thermal().as_str_name(), "THERMAL_"),
            memory: word(conditions.memory().as_str_name(), "MEMORY_"),
            power: word(conditions.power().as_str_name(), "POWER_"),
            low_power_mode: word(conditions.low_power_mode().as_str_name(), "LOW_POWER_MODE_"),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Lines {
    primary_ms_per_row: f64,
    secondary_ms_per_row: f64,
    overhead_ms: f64,
    stock_ms_per_row: f64,
}

impl From<&v1::Lines> for Lines {
    fn from(lines: &v1::Lines) -> Self {
        Self {
            primary_ms_per_row: lines.primary_ms_per_row,
            secondary_ms_per_row: lines.secondary_ms_per_row,
            overhead_ms: lines.overhead_ms,
            stock_ms_per_row: lines.stock_ms_per_row,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Interval {
    low: f64,
    value: f64,
    high: f64,
}

impl From<&v1::Interval> for Interval {
    fn from(interval: &v1::Interval) -> Self {
        Self { low: interval.low, value: interval.value, high: interval.high }
    }
}

/// An estimate of a shape.
#[derive(Debug, Serialize)]
pub(crate) struct Estimate {
    shape: Shape,
    ratio: f64,
    primary_rows: u32,
    secondary_rows: u32,
    stock_ms: f64,
    split_ms: f64,
    speed_up: Option<Interval>,
    lines: Option<Lines>,
    kept_samples: u32,
    dropped_samples: u32,
    relative_error: Option<f64>,
    measured_at: String,
    provenance: String,
    stale_reason: Option<String>,
    conditions: Option<Conditions>,
    chip_key: String,
    pair_label: Option<&'static str>,
    engine: Option<Engine>,
}

impl From<&v1::Estimate> for Estimate {
    fn from(estimate: &v1::Estimate) -> Self {
        let shape = estimate.shape.clone().unwrap_or_default();
        Self {
            ratio: estimate.ratio,
            primary_rows: shape.rows.saturating_sub(estimate.secondary_rows),
            secondary_rows: estimate.secondary_rows,
            shape: (&shape).into(),
            stock_ms: estimate.stock_ms,
            split_ms: estimate.split_ms,
            speed_up: estimate.speed_up.as_ref().map(Into::into),
            lines: estimate.lines.as_ref().map(Into::into),
            kept_samples: estimate.kept_samples,
            dropped_samples: estimate.dropped_samples,
            relative_error: estimate.relative_error,
            measured_at: time(estimate.measured_at_unix_ms),
            provenance: word(estimate.provenance().as_str_name(), "PROVENANCE_"),
            stale_reason: filled(&estimate.stale_reason),
            conditions: estimate.conditions.as_ref().map(Into::into),
            chip_key: estimate.chip_key.clone(),
            pair_label: words::pair_label(&estimate.chip_key),
            engine: estimate.engine.as_ref().map(Into::into),
        }
    }
}

/// The state of a part of the daemon.
#[derive(Debug, Serialize)]
pub(crate) struct Part {
    health: String,
    detail: Option<String>,
}

impl From<&v1::PartStatus> for Part {
    fn from(part: &v1::PartStatus) -> Self {
        Self { health: word(part.health().as_str_name(), "HEALTH_"), detail: filled(&part.detail) }
    }
}

/// An enum's word in snake_case, without the prefix that protocol buffers ask for.
pub(crate) fn word(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase()
}

/// `null` where the wire has an empty string.
pub(crate) fn filled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// The same for a moment that never was.
pub(crate) fn some_time(unix_ms: u64) -> Option<String> {
    (unix_ms != 0).then(|| time(unix_ms))
}

/// RFC 3339, UTC.
pub(crate) fn time(unix_ms: u64) -> String {
    i64::try_from(unix_ms)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .map_or_else(|| unix_ms.to_string(), |time| time.to_string())
}
