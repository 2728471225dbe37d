//! Numbers to answer with: plausible, made up, and the same every time.

use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_client::v1;

/// 2026-01-02 03:04:05 UTC, in ms.
pub const THEN: u64 = 1_767_323_045_000;

/// What it exports: two calibrations of an M4 Pro.
pub const BUNDLE: &[u8] = include_bytes!("../../../../calibrations/data/golden/bundle-v1.fcals");

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

/// Files that hold, and one thing in them that can't be split.
pub fn configuration() -> v1::ConfigurationStatus {
    v1::ConfigurationStatus {
        directory: "/home/acme/.config/fusion".to_owned(),
        state: Some(v1::PartStatus { health: v1::Health::Ok.into(), detail: String::new() }),
        wanted_shapes: 5,
        skipped: vec![
            "models/mixture: 60 routed experts: they run through gather_mm, each with a few rows".to_owned(),
        ],
        read_at_unix_ms: THEN,
    }
}

/// A planner that waits for credit.
pub fn planner() -> v1::PlannerStatus {
    v1::PlannerStatus {
        decision: "not now: the duty budget has 0.4 s, and 512x896x4864 takes up to 0.6 s; next look at 2026-01-02 03:04:25 UTC"
            .to_owned(),
        verdict: v1::PlannerVerdict::NoCredit.into(),
        because: "the duty budget has 0.4 s, and 512x896x4864 takes up to 0.6 s".to_owned(),
        next_shape: "512x896x4864 f32 nk".to_owned(),
        looks_again_at_unix_ms: THEN + 20_000,
        credit_ms: 400.0,
        duty: 0.01,
        wanted: 5,
        stale: vec![v1::StaleShape {
            shape: "512x896x4864 f32 nk".to_owned(),
            reason: "these conditions were never seen".to_owned(),
        }],
        troubles: vec![v1::Trouble {
            subject: "512x896x896 f32 nk".to_owned(),
            reason: "the worker was ended by signal 9".to_owned(),
            times: 2,
            retry_at_unix_ms: THEN + 600_000,
        }],
        paused: false,
        paused_until_unix_ms: 0,
    }
}

/// When a pause of so many seconds ends.
pub fn paused_until(seconds: u64) -> u64 {
    if seconds == 0 { 0 } else { THEN + 1000 * seconds }
}

/// A quiet machine.
pub fn readings() -> v1::Readings {
    v1::Readings {
        source: "this machine".to_owned(),
        available_memory_bytes: Some(6 << 30),
        cpu_pressure: Some(0.02),
        ..Default::default()
    }
}

/// So many calibrations of a shape, the newest first, each a day older than the one before. Every third was made on a hot machine, and the
/// older half with an older MLX.
pub fn history(shape: &v1::Shape, past: usize) -> Vec<v1::Estimate> {
    const DAY: u64 = 24 * 3600 * 1000;
    let hot = v1::Conditions {
        thermal: v1::Thermal::Heavy.into(),
        power: v1::Power::Battery.into(),
        ..conditions()
    };
    (0..past)
        .map(|days| {
            let newest = estimate(shape);
            let old = days > past / 2;
            let engine =
                if old { v1::Engine { mlx_version: "0.31.0".to_owned(), ..engine() } } else { engine() };
            v1::Estimate {
                measured_at_unix_ms: newest.measured_at_unix_ms - days as u64 * DAY,
                ratio: newest.ratio - 0.02 * (days % 4) as f64,
                conditions: Some(if days % 3 == 2 { hot } else { conditions() }),
                engine: Some(engine),
                ..newest
            }
        })
        .collect()
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

/// Where the lines of [`estimate`] meet: 1.05 / (1.05 + 1.25).
pub const BALANCE: f64 = 1.05 / 2.3;

/// The lines of an estimate, evaluated.
pub fn predicted(estimate: &v1::Estimate) -> Vec<v1::Predicted> {
    let rows = estimate.shape.as_ref().unwrap().rows;
    let lines = estimate.lines.unwrap();
    let balance = (BALANCE * f64::from(rows)).round() as u32;
    [0, rows / 4, rows * 7 / 16, balance, rows]
        .map(|secondary_rows| v1::Predicted {
            secondary_rows,
            primary_ms: lines.primary_ms_per_row * f64::from(rows - secondary_rows) + lines.overhead_ms,
            secondary_ms: lines.secondary_ms_per_row * f64::from(secondary_rows) + lines.overhead_ms,
        })
        .to_vec()
}

/// Stock, a slower split, a cliff that was never measured, the choice, and one that was seen only once.
pub fn points(estimate: &v1::Estimate) -> Vec<v1::MeasuredPoint> {
    let rows = estimate.shape.as_ref().unwrap().rows;
    let lines = estimate.lines.unwrap();
    let interval = |ms: f64| Some(v1::Interval { low: ms * 0.98, value: ms, high: ms * 1.02 });
    let split = |secondary_rows: u32, fate: v1::Fate, reason: &str| {
        let primary_ms = lines.primary_ms_per_row * f64::from(rows - secondary_rows);
        let secondary_ms = lines.secondary_ms_per_row * f64::from(secondary_rows);
        let ms = primary_ms.max(secondary_ms) + lines.overhead_ms;
        v1::MeasuredPoint {
            secondary_rows,
            total_ms: interval(ms),
            fastest_ms: Some(ms * 0.99),
            slowest_ms: Some(ms * 1.01),
            counted: 3,
            not_counted: 1,
            primary_ms: Some(primary_ms),
            secondary_ms: Some(secondary_ms),
            fate: fate.into(),
            reason: reason.to_owned(),
        }
    };
    let without_calls = |secondary_rows, not_counted, fate: v1::Fate, reason: &str| v1::MeasuredPoint {
        secondary_rows,
        not_counted,
        fate: fate.into(),
        reason: reason.to_owned(),
        ..Default::default()
    };
    let stock = v1::MeasuredPoint {
        primary_ms: None,
        secondary_ms: None,
        total_ms: interval(estimate.stock_ms),
        fastest_ms: Some(estimate.stock_ms * 0.99),
        slowest_ms: Some(estimate.stock_ms * 1.01),
        counted: 3,
        not_counted: 1,
        ..without_calls(0, 1, v1::Fate::Stock, "stock")
    };
    vec![
        stock,
        split(rows / 4, v1::Fate::Slower, "slower than the choice"),
        without_calls(rows * 3 / 8, 0, v1::Fate::Cliff, "a known cliff"),
        split(rows * 7 / 16, v1::Fate::Chosen, "chosen"),
        without_calls(rows / 2, 1, v1::Fate::Unjudged, "none of its calls counts"),
    ]
}

/// Why calls don't count.
pub fn not_counted() -> Vec<v1::NotCounted> {
    let calls = |reason: &str, calls| v1::NotCounted { reason: reason.to_owned(), calls };
    vec![calls("another process held the core", 1), calls("first call after a change of arm", 3)]
}

/// A shipped cliff and a discovered one.
pub fn cliffs() -> Vec<v1::KnownCliff> {
    let cliff = |secondary_rows, found_by: &str, discovered| v1::KnownCliff {
        secondary_rows,
        minimum_inputs: 896,
        found_by: found_by.to_owned(),
        discovered,
    };
    vec![cliff(192, "shipped with fusiond", false), cliff(300, "the calibration of 512x896x896 f32 nk", true)]
}
