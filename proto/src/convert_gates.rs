//! Gate states on the wire. What can't be read is left out: a gate that knows less runs stock.

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::gate::{Arm, ArmState, Bucket, GateState, Level, RegionKey, RegionState, Standing};

use crate::{MAX_GATE_REGIONS, MAX_WORKLOAD_BYTES, WireError, v1};

impl From<Arm> for v1::Arm {
    fn from(arm: Arm) -> Self {
        match arm {
            Arm::Split => Self::Split,
            Arm::Compiled => Self::Compiled,
            Arm::Eager => Self::Eager,
        }
    }
}

impl v1::Arm {
    /// The arm; `None` for a word that this version doesn't know.
    pub fn known(self) -> Option<Arm> {
        match self {
            Self::Unspecified => None,
            Self::Split => Some(Arm::Split),
            Self::Compiled => Some(Arm::Compiled),
            Self::Eager => Some(Arm::Eager),
        }
    }
}

/// The bucket with a number from the wire; `None` if there is none.
pub fn bucket(number: u32) -> Option<Bucket> {
    u8::try_from(number).ok().and_then(Bucket::from_index)
}

impl From<Level> for v1::GateLevel {
    fn from(level: Level) -> Self {
        Self { log_ms_per_row: level.value, deviation: level.deviation, count: level.count }
    }
}

/// A level that can be one; `None` otherwise.
fn level(wire: &v1::GateLevel) -> Option<Level> {
    let v1::GateLevel { log_ms_per_row: value, deviation, count } = *wire;
    let sound = value.is_finite() && deviation.is_finite() && deviation > 0.0 && count > 0;
    sound.then_some(Level { value, deviation, count })
}

fn arm_to_wire(arm: Arm, state: &ArmState) -> v1::GateArm {
    v1::GateArm {
        arm: v1::Arm::from(arm).into(),
        epoch: state.epoch,
        observations: state.observations,
        explored: state.explored,
        failures: state.failures,
        retry_at_ms: state.retry_at_ms,
        updated_at_ms: state.updated_at_ms,
        level: state.level.map(Into::into),
    }
}

/// A time in ms; what is no time is long ago.
pub fn time(ms: f64) -> f64 {
    if ms.is_nan() { 0.0 } else { ms }
}

impl From<&v1::GateArm> for ArmState {
    fn from(wire: &v1::GateArm) -> Self {
        Self {
            epoch: wire.epoch,
            observations: wire.observations,
            explored: wire.explored,
            failures: wire.failures,
            retry_at_ms: time(wire.retry_at_ms),
            updated_at_ms: time(wire.updated_at_ms),
            level: wire.level.as_ref().and_then(level),
        }
    }
}

impl From<&RegionState> for v1::GateRegion {
    fn from(region: &RegionState) -> Self {
        let arms = Arm::ALL.into_iter().zip(&region.arms).map(|(arm, state)| arm_to_wire(arm, state));
        Self {
            workload: region.key.workload.clone(),
            bucket: region.key.bucket.index().into(),
            conditions: Some(region.key.conditions.into()),
            standing: v1::Arm::from(region.standing.arm).into(),
            changes: region.standing.changes,
            arms: arms.collect(),
        }
    }
}

impl TryFrom<&v1::GateRegion> for RegionState {
    type Error = WireError;

    fn try_from(wire: &v1::GateRegion) -> Result<Self, WireError> {
        if wire.workload.is_empty() {
            return Err(WireError::Missing { field: "workload" });
        }
        if wire.workload.len() > MAX_WORKLOAD_BYTES {
            return Err(WireError::impossible(
                "workload",
                &format_args!("a name of {} bytes", wire.workload.len()),
            ));
        }
        let key = RegionKey {
            workload: wire.workload.clone(),
            bucket: bucket(wire.bucket).ok_or_else(|| WireError::impossible("bucket", &wire.bucket))?,
            conditions: wire.conditions.as_ref().map(Conditions::from).unwrap_or_default(),
        };
        let standing =
            wire.standing().known().ok_or_else(|| WireError::impossible("standing", &wire.standing))?;
        let mut arms = [ArmState::default(); 3];
        for state in &wire.arms {
            if let Some(arm) = state.arm().known() {
                arms[usize::from(arm.code())] = state.into();
            }
        }
        Ok(Self { key, arms, standing: Standing { arm: standing, changes: wire.changes } })
    }
}

/// The regions that can be read, in the order of their keys, each key once: the first of its kind, and at most [`MAX_GATE_REGIONS`].
pub fn regions(wire: &[v1::GateRegion]) -> Vec<RegionState> {
    let readable = wire.iter().take(MAX_GATE_REGIONS).filter_map(|region| region.try_into().ok());
    let mut regions: Vec<RegionState> = readable.collect();
    regions.sort_by(|a, b| a.key.cmp(&b.key));
    regions.dedup_by(|a, b| a.key == b.key);
    regions
}

/// A state for the wire; `chip_key` is empty in a client's report.
pub fn gate_state<'a>(
    chip_key: &str,
    engine_key: &str,
    regions: impl IntoIterator<Item = &'a RegionState>,
) -> v1::GateState {
    v1::GateState {
        chip_key: chip_key.to_owned(),
        engine_key: engine_key.to_owned(),
        regions: regions.into_iter().map(Into::into).collect(),
    }
}

impl From<&v1::GateState> for GateState {
    fn from(wire: &v1::GateState) -> Self {
        Self { engine: wire.engine_key.clone(), regions: regions(&wire.regions) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> RegionState {
        let level = Some(Level { value: -4.25, deviation: 0.015, count: 16 });
        let arm = |epoch: u32, level| ArmState {
            epoch,
            observations: 7 + u64::from(epoch),
            explored: 3,
            failures: 1,
            retry_at_ms: f64::NEG_INFINITY,
            updated_at_ms: 1.8e12,
            level,
        };
        RegionState {
            key: RegionKey {
                workload: "llama prefill".to_owned(),
                bucket: Bucket::of(2048),
                conditions: Conditions::default(),
            },
            arms: [arm(1, level), arm(2, None), arm(3, level)],
            standing: Standing { arm: Arm::Split, changes: 5 },
        }
    }

    #[test]
    fn states_survive_the_wire() {
        let mut other = region();
        other.key.bucket = Bucket::of(512);
        let state = GateState { engine: "an engine".to_owned(), regions: vec![other, region()] };
        let wire = gate_state("a chip", &state.engine, &state.regions);
        assert_eq!((wire.chip_key.as_str(), GateState::from(&wire)), ("a chip", state));
    }

    #[test]
    fn what_a_newer_peer_says_is_left_out() {
        let good = v1::GateRegion::from(&region());
        let unreadable = [
            v1::GateRegion { bucket: 128, ..good.clone() },
            v1::GateRegion { bucket: u32::MAX, ..good.clone() },
            v1::GateRegion { standing: 9, ..good.clone() },
            v1::GateRegion { workload: String::new(), ..good.clone() },
            v1::GateRegion { workload: "x".repeat(MAX_WORKLOAD_BYTES + 1), ..good.clone() },
        ];
        assert_eq!(regions(&unreadable), []);
        assert_eq!(regions(&[good.clone(), good.clone()]), [region()]);
        let mut newer = good;
        newer.arms[0].arm = 17;
        newer.arms[1].retry_at_ms = f64::NAN;
        newer.arms[2].level = Some(v1::GateLevel { log_ms_per_row: f64::NAN, deviation: 1.0, count: 1 });
        let read = RegionState::try_from(&newer).unwrap();
        assert_eq!(read.arms[0], ArmState::default());
        assert_eq!((read.arms[1].retry_at_ms, read.arms[2].level), (0.0, None));
    }
}
