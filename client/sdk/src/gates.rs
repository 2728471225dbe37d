//! What the daemon knows of gates, as types that hold only what can be.

use std::fmt;
use std::str::FromStr;

use fusion_calibrations::gate::{Arm, ArmState, Bucket, RegionState};
use fusion_proto::{MAX_WORKLOAD_BYTES, WireError, bucket, v1};

/// The name of a workload: 1 to 200 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadName(String);

/// A name that no workload has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a workload's name has 1 to {MAX_WORKLOAD_BYTES} bytes, this one has {bytes}")]
pub struct WorkloadNameError {
    /// Its length.
    pub bytes: usize,
}

impl FromStr for WorkloadName {
    type Err = WorkloadNameError;

    fn from_str(text: &str) -> Result<Self, WorkloadNameError> {
        match text.len() {
            1..=MAX_WORKLOAD_BYTES => Ok(Self(text.to_owned())),
            bytes => Err(WorkloadNameError { bytes }),
        }
    }
}

impl WorkloadName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rows that share a region: the first and the last row count of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowRange {
    first: u32,
    last: u32,
}

impl RowRange {
    /// The range that a number of rows is in; 0 rows are in the range of 1.
    pub fn around(rows: u32) -> Self {
        let bucket = Bucket::of(rows);
        let next = bucket.index().checked_add(1).and_then(Bucket::from_index);
        Self {
            first: bucket.first_rows(),
            last: next.map_or(u32::MAX, |next| next.first_rows().saturating_sub(1)),
        }
    }

    /// The range of a bucket's number; below 4 rows some numbers hold no rows.
    fn numbered(number: u32) -> Result<Self, WireError> {
        let impossible = || WireError::impossible("bucket", &number);
        let known = bucket(number).ok_or_else(impossible)?;
        if Bucket::of(known.first_rows()) != known {
            return Err(impossible());
        }
        Ok(Self::around(known.first_rows()))
    }

    /// The smallest row count.
    pub fn first(self) -> u32 {
        self.first
    }

    /// The largest row count.
    pub fn last(self) -> u32 {
        self.last
    }

    /// A row count to state times for.
    pub fn middle(self) -> u32 {
        self.first.midpoint(self.last)
    }
}

impl fmt::Display for RowRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (1, 1) => f.write_str("1 row"),
            (first, last) if first == last => write!(f, "{first} rows"),
            (first, last) => write!(f, "{first} to {last} rows"),
        }
    }
}

/// Which calls a decision is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateScope {
    /// The workload.
    pub workload: WorkloadName,
    /// About how many rows; `None` for all.
    pub rows: Option<RowRange>,
}

impl GateScope {
    /// Whether a region's calls are meant.
    pub fn holds(&self, region: &GateRegion) -> bool {
        self.workload.as_str() == region.state.key.workload
            && self.rows.is_none_or(|rows| rows == region.rows)
    }

    pub(crate) fn wire_rows(&self) -> Option<u32> {
        self.rows.map(RowRange::first)
    }
}

/// One region under one set of conditions, as all processes know it together.
#[derive(Debug, Clone, PartialEq)]
pub struct GateRegion {
    /// The key of the chip that it was learned on.
    pub chip_key: String,
    /// The key of the engine that the calls were made with.
    pub engine_key: String,
    /// Its rows.
    pub rows: RowRange,
    /// What is known.
    pub state: RegionState,
}

impl GateRegion {
    /// What is known of an arm.
    pub fn arm(&self, arm: Arm) -> &ArmState {
        &self.state.arms[usize::from(arm.code())]
    }

    /// What a call of [`RowRange::middle`] rows takes by this arm, in ms; `None` if unknown.
    pub fn middle_ms(&self, arm: Arm) -> Option<f64> {
        self.arm(arm).level.map(|level| level.ms(self.rows.middle()))
    }
}

/// A person's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateLock {
    /// The workload.
    pub workload: String,
    /// About how many rows; `None` for all that no other lock names.
    pub rows: Option<RowRange>,
    /// The arm that runs.
    pub arm: Arm,
}

impl GateLock {
    fn holds(&self, region: &GateRegion) -> bool {
        self.workload == region.state.key.workload && self.rows.is_none_or(|rows| rows == region.rows)
    }
}

/// Everything that is known of gates.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KnownGates {
    /// By chip and engine, then in the order of workload, rows and conditions.
    pub regions: Vec<GateRegion>,
    /// What a person decided.
    pub locks: Vec<GateLock>,
}

impl KnownGates {
    /// The lock that decides for a region: one that names its rows before one for all rows.
    pub fn lock_of(&self, region: &GateRegion) -> Option<&GateLock> {
        self.locks.iter().filter(|lock| lock.holds(region)).max_by_key(|lock| lock.rows.is_some())
    }
}

/// What a reset did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten {
    /// Regions that the daemon held something of.
    pub regions: u32,
    /// Attached processes that are told.
    pub clients: u32,
}

impl TryFrom<&v1::ListGatesReply> for KnownGates {
    type Error = WireError;

    fn try_from(wire: &v1::ListGatesReply) -> Result<Self, WireError> {
        let regions = wire.states.iter().flat_map(|state| state.regions.iter().map(|one| region(state, one)));
        Ok(Self {
            regions: regions.collect::<Result<_, _>>()?,
            locks: wire.locks.iter().map(lock).collect::<Result<_, _>>()?,
        })
    }
}

fn region(state: &v1::GateState, wire: &v1::GateRegion) -> Result<GateRegion, WireError> {
    wire.arms.iter().try_for_each(possible)?;
    Ok(GateRegion {
        chip_key: state.chip_key.clone(),
        engine_key: state.engine_key.clone(),
        rows: RowRange::numbered(wire.bucket)?,
        state: wire.try_into()?,
    })
}

/// The conversion leaves out what can't be, since a gate that knows less runs stock; a person is told.
fn possible(wire: &v1::GateArm) -> Result<(), WireError> {
    for (field, ms) in [("retry_at_ms", wire.retry_at_ms), ("updated_at_ms", wire.updated_at_ms)] {
        if ms.is_nan() {
            return Err(WireError::impossible(field, &ms));
        }
    }
    match &wire.level {
        Some(level) if ArmState::from(wire).level.is_none() => {
            Err(WireError::impossible("level", &format_args!("{level:?}")))
        }
        _ => Ok(()),
    }
}

fn lock(wire: &v1::GateLock) -> Result<GateLock, WireError> {
    let arm = wire.arm().known();
    Ok(GateLock {
        workload: wire.workload.clone(),
        rows: wire.bucket.map(RowRange::numbered).transpose()?,
        arm: arm.ok_or_else(|| WireError::impossible("arm", &wire.arm))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_what_shares_a_region() {
        assert_eq!(RowRange::around(600).to_string(), "512 to 639 rows");
        assert_eq!(RowRange::around(0).to_string(), "1 row");
        assert_eq!(RowRange::around(5).to_string(), "5 rows");
        assert_eq!(RowRange::around(u32::MAX).last(), u32::MAX);
        assert_eq!(RowRange::around(512).middle(), 575);
        for rows in 1..5000 {
            let range = RowRange::around(rows);
            assert!((range.first()..=range.last()).contains(&rows), "{rows}: {range}");
            for edge in [range.first(), range.last()] {
                assert_eq!(Bucket::of(edge), Bucket::of(rows), "{rows}: {range}");
            }
        }
    }

    #[test]
    fn numbers_without_rows_are_no_range() {
        let known: Vec<u32> = (0..200).filter(|number| RowRange::numbered(*number).is_ok()).collect();
        assert_eq!((known[..4].to_vec(), known.last()), (vec![0, 4, 6, 8], Some(&127)));
    }

    #[test]
    fn names_have_a_length() {
        assert_eq!("a prefill".parse::<WorkloadName>().unwrap().as_str(), "a prefill");
        assert_eq!("".parse::<WorkloadName>().unwrap_err().bytes, 0);
        assert!("x".repeat(201).parse::<WorkloadName>().unwrap_err().to_string().contains("has 201"));
    }

    fn reply() -> v1::ListGatesReply {
        let level = v1::GateLevel { log_ms_per_row: -5.0, deviation: 0.015, count: 16 };
        let arm = v1::GateArm { arm: v1::Arm::Split.into(), level: Some(level), ..Default::default() };
        let region = v1::GateRegion {
            workload: "w".to_owned(),
            bucket: Bucket::of(512).index().into(),
            standing: v1::Arm::Split.into(),
            arms: vec![arm],
            ..Default::default()
        };
        let lock = |bucket, arm: v1::Arm| v1::GateLock { workload: "w".to_owned(), bucket, arm: arm.into() };
        v1::ListGatesReply {
            states: vec![v1::GateState { regions: vec![region], ..Default::default() }],
            locks: vec![
                lock(None, v1::Arm::Eager),
                lock(Some(Bucket::of(512).index().into()), v1::Arm::Split),
            ],
        }
    }

    #[test]
    fn the_lock_that_names_the_rows_decides() {
        let mut known = KnownGates::try_from(&reply()).unwrap();
        let region = known.regions[0].clone();
        assert!((region.middle_ms(Arm::Split).unwrap() - 575.0 * (-5f64).exp()).abs() < 1e-9);
        assert_eq!(region.middle_ms(Arm::Eager), None);
        assert_eq!(known.lock_of(&region).unwrap().arm, Arm::Split);
        known.locks.pop();
        assert_eq!(known.lock_of(&region).unwrap().arm, Arm::Eager);
        let scope =
            |rows: u32| GateScope { workload: "w".parse().unwrap(), rows: Some(RowRange::around(rows)) };
        assert!(scope(600).holds(&region) && !scope(64).holds(&region));
    }

    #[test]
    fn nonsense_is_named() {
        type Spoil = fn(&mut v1::ListGatesReply);
        let cases: [(Spoil, &str); 7] = [
            (|reply| reply.states[0].regions[0].workload.clear(), "'workload' is missing"),
            (|reply| reply.states[0].regions[0].bucket = 1, "'bucket' can't be 1"),
            (|reply| reply.states[0].regions[0].standing = 9, "'standing' can't be 9"),
            (|reply| reply.states[0].regions[0].arms[0].retry_at_ms = f64::NAN, "'retry_at_ms' can't be NaN"),
            (|reply| reply.states[0].regions[0].arms[0].level.as_mut().unwrap().deviation = -1.0, "'level'"),
            (|reply| reply.locks[0].arm = 0, "'arm' can't be 0"),
            (|reply| reply.locks[1].bucket = Some(128), "'bucket' can't be 128"),
        ];
        for (spoil, says) in cases {
            let mut wire = reply();
            spoil(&mut wire);
            let error = KnownGates::try_from(&wire).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
