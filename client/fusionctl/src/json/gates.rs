//! `fusionctl.gates.list/1`, `fusionctl.gates.show/1`, `fusionctl.gates.reset/1`, `fusionctl.gates.lock/1` and
//! `fusionctl.gates.unlock/1`.

use fusion_calibrations::gate::{Arm, ArmState};
use fusion_client::{Forgotten, GateLock, GateRegion, GateScope, KnownGates, RowRange, v1};
use serde::Serialize;

use super::shared::{Conditions, time};
use crate::render::{gate_reason, words};

#[derive(Debug, Serialize)]
pub(crate) struct List {
    gates: Vec<Gate>,
    locks: Vec<Lock>,
}

/// A workload, or its calls of about so many rows.
#[derive(Debug, Serialize)]
pub(crate) struct Show {
    workload: String,
    rows: Option<Rows>,
    #[serde(flatten)]
    known: List,
}

#[derive(Debug, Serialize)]
struct Rows {
    first: u32,
    last: u32,
}

#[derive(Debug, Serialize)]
struct Gate {
    workload: String,
    rows: Rows,
    middle_rows: u32,
    conditions: Conditions,
    standing: String,
    locked: Option<String>,
    why: String,
    changes: u32,
    arms: Vec<ArmNumbers>,
    chip_key: String,
    pair_label: Option<&'static str>,
    engine_key: String,
}

#[derive(Debug, Serialize)]
struct ArmNumbers {
    arm: String,
    ms: Option<f64>,
    ms_per_row: Option<f64>,
    spread: Option<f64>,
    counted: u32,
    observations: u64,
    explored: u32,
    failures: u32,
    retry_at: Option<String>,
    observed_at: Option<String>,
}

#[derive(Debug, Serialize)]
struct Lock {
    workload: String,
    rows: Option<Rows>,
    arm: String,
}

/// What a reset did, or that a person said no.
#[derive(Debug, Serialize)]
pub(crate) struct Reset {
    workload: String,
    rows: Option<Rows>,
    reset: bool,
    regions: u32,
    clients: u32,
}

/// A decision.
#[derive(Debug, Serialize)]
pub(crate) struct Locked {
    workload: String,
    rows: Option<Rows>,
    arm: String,
    clients: u32,
}

/// A decision that was taken back.
#[derive(Debug, Serialize)]
pub(crate) struct Unlocked {
    workload: String,
    rows: Option<Rows>,
    removed: Vec<Lock>,
    clients: u32,
}

impl From<&KnownGates> for List {
    fn from(known: &KnownGates) -> Self {
        Self {
            gates: known.regions.iter().map(|region| Gate::new(region, known.lock_of(region))).collect(),
            locks: known.locks.iter().map(Into::into).collect(),
        }
    }
}

impl Show {
    pub(crate) fn new(scope: &GateScope, known: &KnownGates) -> Self {
        let (workload, rows) = of(scope);
        Self { workload, rows, known: known.into() }
    }
}

impl Reset {
    pub(crate) fn new(scope: &GateScope, forgotten: Option<Forgotten>) -> Self {
        let (workload, rows) = of(scope);
        let counts = forgotten.map_or((0, 0), |counts| (counts.regions, counts.clients));
        Self { workload, rows, reset: forgotten.is_some(), regions: counts.0, clients: counts.1 }
    }
}

impl Locked {
    pub(crate) fn new(scope: &GateScope, arm: Arm, clients: u32) -> Self {
        let (workload, rows) = of(scope);
        Self { workload, rows, arm: arm.to_string(), clients }
    }
}

impl Unlocked {
    pub(crate) fn new(scope: &GateScope, removed: &[GateLock], clients: u32) -> Self {
        let (workload, rows) = of(scope);
        Self { workload, rows, removed: removed.iter().map(Into::into).collect(), clients }
    }
}

fn of(scope: &GateScope) -> (String, Option<Rows>) {
    (scope.workload.to_string(), scope.rows.map(Into::into))
}

impl From<RowRange> for Rows {
    fn from(rows: RowRange) -> Self {
        Self { first: rows.first(), last: rows.last() }
    }
}

impl From<&GateLock> for Lock {
    fn from(lock: &GateLock) -> Self {
        Self { workload: lock.workload.clone(), rows: lock.rows.map(Into::into), arm: lock.arm.to_string() }
    }
}

impl Gate {
    fn new(region: &GateRegion, lock: Option<&GateLock>) -> Self {
        let standing = region.state.standing;
        Self {
            workload: region.state.key.workload.clone(),
            rows: region.rows.into(),
            middle_rows: region.rows.middle(),
            conditions: (&v1::Conditions::from(region.state.key.conditions)).into(),
            standing: standing.arm.to_string(),
            locked: lock.map(|lock| lock.arm.to_string()),
            why: gate_reason::why(region, lock),
            changes: standing.changes,
            arms: Arm::ALL.into_iter().map(|arm| ArmNumbers::new(arm, region)).collect(),
            chip_key: region.chip_key.clone(),
            pair_label: words::pair_label(&region.chip_key),
            engine_key: region.engine_key.clone(),
        }
    }
}

impl ArmNumbers {
    fn new(arm: Arm, region: &GateRegion) -> Self {
        let ArmState { level, observations, explored, failures, retry_at_ms, updated_at_ms, .. } =
            *region.arm(arm);
        Self {
            arm: arm.to_string(),
            ms: region.middle_ms(arm).map(six_digits),
            ms_per_row: level.map(|level| six_digits(level.ms(1))),
            spread: level.map(|level| six_digits(level.deviation)),
            counted: level.map_or(0, |level| level.count),
            observations,
            explored,
            failures,
            retry_at: words::unix_ms(retry_at_ms).map(time),
            observed_at: words::unix_ms(updated_at_ms).map(time),
        }
    }
}

/// More digits are noise, and differ between machines' mathematical libraries.
fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
