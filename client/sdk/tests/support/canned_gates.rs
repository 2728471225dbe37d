//! Gates and clients to answer with.

use fusion_calibrations::gate::{Arm, Bucket};
use fusion_client::v1;

use super::canned::{self, THEN};

/// 2100-01-01 UTC, in ms: later than any run of a test.
const MUCH_LATER_MS: f64 = 4_102_444_800_000.0;

fn arm(arm: Arm, middle_ms: Option<(f64, u32)>, observations: u64) -> v1::GateArm {
    let level = middle_ms.map(|(ms, rows)| v1::GateLevel {
        log_ms_per_row: (ms / f64::from(rows)).ln(),
        deviation: 0.015,
        count: observations.min(16) as u32,
    });
    let known = observations > 0;
    v1::GateArm {
        arm: v1::Arm::from(arm).into(),
        observations,
        updated_at_ms: if known { THEN as f64 } else { 0.0 },
        level,
        ..Default::default()
    }
}

fn region(workload: &str, rows: u32, standing: Arm, changes: u32, arms: Vec<v1::GateArm>) -> v1::GateRegion {
    v1::GateRegion {
        workload: workload.to_owned(),
        bucket: Bucket::of(rows).index().into(),
        conditions: Some(canned::conditions()),
        standing: v1::Arm::from(standing).into(),
        changes,
        arms,
    }
}

fn number(rows: u32) -> u32 {
    Bucket::of(rows).index().into()
}

/// A split that stands, one that was refuted, and a compiled arm that is locked away; and a lock of what was never called.
pub fn gates() -> v1::ListGatesReply {
    let refuted = v1::GateArm {
        explored: 7,
        failures: 2,
        retry_at_ms: MUCH_LATER_MS,
        ..arm(Arm::Split, Some((1.21, 71)), 7)
    };
    let stands = v1::GateArm { explored: 9, ..arm(Arm::Split, Some((3.82, 575)), 40) };
    let regions = vec![
        region(
            "a block",
            64,
            Arm::Compiled,
            1,
            vec![arm(Arm::Compiled, Some((0.81, 71)), 30), arm(Arm::Eager, Some((0.84, 71)), 12)],
        ),
        region("a prefill", 64, Arm::Eager, 0, vec![refuted, arm(Arm::Eager, Some((0.97, 71)), 20)]),
        region("a prefill", 512, Arm::Split, 1, vec![stands, arm(Arm::Eager, Some((5.74, 575)), 22)]),
    ];
    let lock = |workload: &str, bucket, arm: Arm| v1::GateLock {
        workload: workload.to_owned(),
        bucket,
        arm: v1::Arm::from(arm).into(),
    };
    v1::ListGatesReply {
        states: vec![v1::GateState {
            chip_key: canned::chip().key,
            engine_key: "debian-12-6-1-0.mlx-0-32-2.1a2b3c4d".to_owned(),
            regions,
        }],
        locks: vec![lock("a block", None, Arm::Eager), lock("never called", Some(number(2048)), Arm::Split)],
    }
}

/// A server at work, and a notebook that lost a little with an engine of its own.
pub fn clients() -> Vec<v1::ClientStatus> {
    let of = |source: v1::Source, layers| v1::SourceCount { source: source.into(), layers };
    let server = v1::ClientStatus {
        number: 1,
        pid: 4711,
        name: "mlx_lm.server".to_owned(),
        version: "0.1.0".to_owned(),
        activity: v1::ActivityState::Busy.into(),
        layers: 3,
        unknown_layers: 1,
        sources: vec![of(v1::Source::Exact, 1), of(v1::Source::OtherRows, 1), of(v1::Source::None, 1)],
        observations: 57,
        attached_at_unix_ms: THEN,
        explores: true,
        saved_ms: 12_345.0,
        split_calls: 482,
        ..Default::default()
    };
    let notebook = v1::ClientStatus {
        number: 2,
        pid: 4712,
        name: "a notebook".to_owned(),
        version: "0.0.9".to_owned(),
        activity: v1::ActivityState::Idle.into(),
        layers: 1,
        sources: vec![of(v1::Source::OtherEngine, 1)],
        attached_at_unix_ms: THEN,
        other_engine: Some(v1::Engine { mlx_version: "0.31.0".to_owned(), ..canned::engine() }),
        saved_ms: -321.0,
        split_calls: 12,
        worker: "/usr/bin/python3 -m fusiond.worker".to_owned(),
        worker_trouble: "turned off: measure.client_workers is false in config.toml".to_owned(),
        ..Default::default()
    };
    vec![server, notebook]
}

/// The layers of one of [`clients`].
pub fn served(client: u64) -> Vec<v1::ServedLayer> {
    let layer = |text: &str, source: v1::Source, provenance: v1::Provenance| v1::ServedLayer {
        layer: v1::Shape::from(canned::shape(text)).layer,
        rows: 512,
        source: source.into(),
        provenance: provenance.into(),
        stale_reason: String::new(),
    };
    match client {
        1 => vec![
            layer("1x896x896", v1::Source::Exact, v1::Provenance::Measured),
            layer("1x896x4864", v1::Source::OtherRows, v1::Provenance::Observed),
            layer("1x4864x896", v1::Source::None, v1::Provenance::Unspecified),
        ],
        _ => vec![v1::ServedLayer {
            stale_reason: "measured with another OS build or MLX library".to_owned(),
            ..layer("1x896x896", v1::Source::OtherEngine, v1::Provenance::Measured)
        }],
    }
}

/// [`clients`] in numbers.
pub fn summary() -> v1::ClientsSummary {
    v1::ClientsSummary { attached: 2, busy: 1, exploring_pid: 4711, saved_ms: 12_024.0, split_calls: 494 }
}
