//! Numbers to answer with: plausible, made up, and the same every time.

use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_client::v1;

/// 2026-01-02 03:04:05 UTC, in ms.
pub const THEN: u64 = 1_767_323_045_000;

/// A chip whose pair is labelled.
pub fn chip() -> v1::Chip {
    v1::Chip {
        key: "acme-turbo.nogpu.16gib.board-1.unknown.development".to_owned(),
        brand: "Acme Turbo".to_owned(),
        gpu_cores: None,
        memory_gib: 16,
        model_identifier: "Board 1".to_owned(),
        cooling: "unknown".to_owned(),
        pair: "development".to_owned(),
        pair_label: "development pair: two CPU streams stand in for GPU and CPU".to_owned(),
    }
}

/// An engine.
pub fn engine() -> v1::Engine {
    v1::Engine {
        os_build: "debian-12 6.1.0".to_owned(),
        mlx_version: "0.32.2".to_owned(),
        library_hash: "1a2b3c4d".to_owned(),
    }
}

/// A cool machine on mains, as far as sensors say.
pub fn conditions() -> v1::Conditions {
    v1::Conditions {
        thermal: v1::Thermal::Nominal.into(),
        memory: v1::Memory::Normal.into(),
        power: v1::Power::Ac.into(),
        low_power_mode: v1::LowPowerMode::Unknown.into(),
    }
}

/// What is believed of a shape: a split gains where the layer is not small.
pub fn estimate(shape: &v1::Shape) -> v1::Estimate {
    let layer = shape.layer.clone().unwrap();
    let stock_ms_per_row = f64::from(layer.inputs) * f64::from(layer.outputs) * 2e-8;
    let stock_ms = f64::from(shape.rows) * stock_ms_per_row;
    let splits = layer.inputs * layer.outputs > 200_000;
    let speed_up = if splits {
        v1::Interval { low: 1.71, value: 1.76, high: 1.82 }
    } else {
        v1::Interval { low: 0.89, value: 0.97, high: 1.04 }
    };
    v1::Estimate {
        shape: Some(shape.clone()),
        conditions: Some(conditions()),
        lines: Some(v1::Lines {
            primary_ms_per_row: stock_ms_per_row * 1.05,
            secondary_ms_per_row: stock_ms_per_row * 1.25,
            overhead_ms: 0.05,
            stock_ms_per_row,
        }),
        ratio: if splits { 0.4375 } else { 0.0 },
        secondary_rows: if splits { shape.rows * 7 / 16 } else { 0 },
        stock_ms,
        split_ms: if splits { stock_ms / 1.76 } else { stock_ms },
        speed_up: Some(speed_up),
        kept_samples: 26,
        dropped_samples: 2,
        relative_error: Some(3.1e-7),
        measured_at_unix_ms: THEN,
        provenance: v1::Provenance::Measured.into(),
        stale_reason: String::new(),
        chip_key: chip().key,
        engine: Some(engine()),
    }
}

/// A shape of f32 weights.
pub fn shape(text: &str) -> Shape {
    Shape::parse(text, WeightFormat::F32, Layout::default()).unwrap()
}

/// Three estimates, the last of them stale.
pub fn estimates() -> Vec<v1::Estimate> {
    let mut all: Vec<_> =
        ["512x896x896", "512x896x128", "512x896x4864"].map(|text| estimate(&shape(text).into())).into();
    all[2].stale_reason = "measured with another OS build or MLX library".to_owned();
    all
}

/// Two samples that count and one that doesn't.
pub fn samples() -> Vec<v1::Sample> {
    let stock = v1::Sample { secondary_rows: 0, total_ms: 8.22, ..Default::default() };
    let split = v1::Sample {
        secondary_rows: 224,
        total_ms: 4.67,
        primary_finish_ms: Some(4.61),
        secondary_finish_ms: Some(4.44),
        secondary_waited_first: true,
        dropped_reason: String::new(),
    };
    let dropped = v1::Sample { dropped_reason: "disturbed by another process".to_owned(), ..split.clone() };
    vec![stock, split, dropped]
}
