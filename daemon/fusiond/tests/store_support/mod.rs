//! Records and directories for the tests of the store.
#![allow(dead_code, unreachable_pub, reason = "every test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use fusion_calibrations::chip::{Chip, Cooling, Pair};
use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::estimate::{Estimate, Provenance};
use fusion_calibrations::ratio::Ratio;
use fusion_calibrations::record::Record;
use fusion_calibrations::sample::Sample;
use fusion_calibrations::shape::{Layer, Layout, WeightFormat};
use fusion_calibrations::stats::Interval;
use fusiond::store::{Opened, SledStore, Stored};

pub fn chip(brand: &str) -> Chip {
    Chip {
        brand: brand.to_owned(),
        gpu_cores: None,
        memory_gib: 16,
        model_identifier: "Test1,1".to_owned(),
        cooling: Cooling::Unknown,
        pair: Pair::Development,
    }
}

pub fn engine(build: &str) -> Engine {
    Engine {
        os_build: build.to_owned(),
        mlx_version: "0.32.2".to_owned(),
        library_hash: "00c0ffee".to_owned(),
    }
}

/// A record of its own key for every `rows`, its number in `stock_ms`, with `samples` raw samples.
pub fn record_with(chip: Chip, engine: Engine, rows: u32, number: u64, samples: usize) -> Record {
    let layer = Layer::new(896, 4864, WeightFormat::F32, Layout::OutputsByInputs).unwrap();
    let sample = Sample { secondary_rows: 0, total_ms: 1.5, finish_times: None, dropped: None };
    Record {
        chip,
        engine,
        estimate: Estimate {
            shape: layer.with_rows(rows).unwrap(),
            conditions: Conditions::default(),
            lines: None,
            ratio: Ratio::new(0.25).unwrap(),
            secondary_rows: rows / 4,
            stock_ms: number as f64,
            split_ms: 1.0,
            speed_up: Interval { low: 1.0, value: 1.1, high: 1.2 },
            kept_samples: samples as u32,
            dropped_samples: 0,
            relative_error: None,
            measured_at_unix_ms: 1_790_000_000_000 + number,
            provenance: Provenance::Measured,
        },
        samples: vec![sample; samples],
        written_by: "0.1.0".to_owned(),
    }
}

pub fn record(rows: u32, number: u64) -> Record {
    record_with(chip("Test chip"), engine("1A1"), rows, number, 3)
}

/// The numbers of records, in their order.
pub fn numbers(stored: &[Stored]) -> Vec<u64> {
    stored.iter().map(|stored| stored.record.estimate.stock_ms as u64).collect()
}

/// A directory in memory where there is one: what survives the end of a process doesn't depend on the disk, and thousands of
/// syncs on a busy disk take minutes.
pub fn temporary() -> tempfile::TempDir {
    tempfile::TempDir::new_in("/dev/shm").or_else(|_| tempfile::TempDir::new()).unwrap()
}

pub fn open(state: &Path) -> Opened {
    SledStore::open(state).unwrap()
}

/// The paths of the record files, oldest first.
pub fn record_files(state: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(state.join("calibrations"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "fcal"))
        .collect();
    paths.sort();
    paths
}

/// The directories of `state` whose name begins with `prefix`.
pub fn directories(state: &Path, prefix: &str) -> Vec<PathBuf> {
    std::fs::read_dir(state)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix))
        .collect()
}

/// Copies a directory with everything below it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A sealed record of a later version, made from a real one: what an older fusiond finds after a downgrade.
pub fn newer_version(bytes: &[u8]) -> Vec<u8> {
    let mut newer = bytes.to_vec();
    newer[5] = 9;
    let crc = crc32([&newer[..12], &newer[16..]].concat().as_slice());
    newer[12..16].copy_from_slice(&crc.to_le_bytes());
    newer
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}
