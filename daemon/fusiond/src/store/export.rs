//! Current calibrations in a form that people and other programs read.

use std::path::Path;

use fusion_calibrations::record::Record;
use serde_json::{Value, json};

use super::Stored;
use super::error::{At, StoreError};
use super::files::{file_name, write_durably};
use super::key::CalibrationKey;
use super::paths::{create_private, sync_directory};
use super::report::Exported;
use super::steps::Steps;

/// Version of the lines of `calibrations.jsonl`.
const SCHEMA: u32 = 1;

/// Writes the records into the new directory `to`, which appears complete or not at all.
pub(super) fn write(to: &Path, stored: &[Stored]) -> Result<Exported, StoreError> {
    if to.symlink_metadata().is_ok() {
        return Err(StoreError::ExportExists { path: to.to_owned() });
    }
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = to.with_file_name(format!(".{name}.unfinished-{}", std::process::id()));
    let written =
        fill(&unfinished, stored).and_then(|()| std::fs::rename(&unfinished, to).at("renaming", &unfinished));
    if let Err(error) = written {
        let _ = std::fs::remove_dir_all(&unfinished);
        return Err(error);
    }
    if let Some(parent) = to.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        sync_directory(parent).at("writing", parent)?;
    }
    Ok(Exported { directory: to.to_owned(), records: stored.len() as u64 })
}

fn fill(directory: &Path, stored: &[Stored]) -> Result<(), StoreError> {
    create_private(directory)?;
    let mut lines = String::new();
    for Stored { revision, record } in stored {
        let name = file_name(&CalibrationKey::of(record), *revision);
        let bytes = record.encode().map_err(StoreError::Unstorable)?;
        write_durably(&directory.join(&name), &bytes, &Steps::default())?;
        lines.push_str(&line(revision.0, record, &name).to_string());
        lines.push('\n');
    }
    write_durably(&directory.join("calibrations.jsonl"), lines.as_bytes(), &Steps::default())
}

/// One record as JSON, every number with its unit in its name.
fn line(revision: u64, record: &Record, file: &str) -> Value {
    let Record { chip, engine, estimate, samples, written_by } = record;
    let layer = estimate.shape.layer();
    let conditions = estimate.conditions;
    json!({
        "schema": SCHEMA,
        "revision": revision,
        "file": file,
        "chip": {
            "key": chip.key(),
            "brand": chip.brand,
            "gpu_cores": chip.gpu_cores,
            "memory_gib": chip.memory_gib,
            "model_identifier": chip.model_identifier,
            "cooling": chip.cooling.to_string(),
            "pair": chip.pair.to_string(),
            "label": chip.pair.label(),
        },
        "engine": {
            "key": engine.key(),
            "os_build": engine.os_build,
            "mlx_version": engine.mlx_version,
            "library_hash": engine.library_hash,
        },
        "shape": {
            "rows": estimate.shape.rows(),
            "inputs": layer.inputs(),
            "outputs": layer.outputs(),
            "format": layer.format().to_string(),
            "layout": layer.layout().to_string(),
        },
        "conditions": {
            "thermal": conditions.thermal.to_string(),
            "memory": conditions.memory.to_string(),
            "power": conditions.power.to_string(),
            "low_power_mode": conditions.low_power_mode.to_string(),
        },
        "lines": estimate.lines.map(|lines| json!({
            "primary_ms_per_row": lines.primary_ms_per_row,
            "secondary_ms_per_row": lines.secondary_ms_per_row,
            "overhead_ms": lines.overhead_ms,
            "stock_ms_per_row": lines.stock_ms_per_row,
        })),
        "ratio": estimate.ratio.get(),
        "secondary_rows": estimate.secondary_rows,
        "stock_ms": estimate.stock_ms,
        "split_ms": estimate.split_ms,
        "speed_up": {
            "low": estimate.speed_up.low,
            "value": estimate.speed_up.value,
            "high": estimate.speed_up.high,
        },
        "kept_samples": estimate.kept_samples,
        "dropped_samples": estimate.dropped_samples,
        "raw_samples": samples.len(),
        "relative_error": estimate.relative_error,
        "measured_at_unix_ms": estimate.measured_at_unix_ms,
        "provenance": estimate.provenance.to_string(),
        "written_by": written_by,
    })
}
