//! What a gate knows, as plain data: kept by the daemon between processes, and merged from all of them.
//!
//! # How states are merged
//! [`GateState::merge`] is the join of a lattice: commutative, associative and idempotent, so it doesn't matter in which order, by which
//! route or how often reports arrive. Per (workload, bucket, conditions):
//! * an arm's level is taken whole from the side with the later `epoch` (the machine changed), then with more observations, then the newer one. A process starts
//!   from the kept state and counts on, so more observations contain the fewer;
//!   of two processes that started from the same state, the busier one's level is kept and the other's is dropped, never averaged;
//! * `explored` is the larger one: the first calls of an arm are free once a machine, not once a process;
//! * the standing arm is taken from the side that changed it more often; if both changed it equally often, the stock arm wins.

use crate::conditions::Conditions;

use super::arm::Arm;
use super::bucket::Bucket;
use super::level::Level;

/// Everything a gate knows that outlives it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GateState {
    /// The key of the engine that the calls were made with: [`crate::engine::Engine::key`].
    pub engine: String,
    /// In the order of their keys, each key once.
    pub regions: Vec<RegionState>,
}

/// What identifies a region's state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionKey {
    /// Workload name.
    pub workload: String,
    /// Row bucket.
    pub bucket: Bucket,
    /// The state of the machine.
    pub conditions: Conditions,
}

/// One region under one set of conditions.
#[derive(Debug, Clone, PartialEq)]
pub struct RegionState {
    /// What it is about.
    pub key: RegionKey,
    /// What is known of each arm, by [`Arm::code`].
    pub arms: [ArmState; 3],
    /// The arm that stands.
    pub standing: Standing,
}

/// The arm that stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The arm.
    pub arm: Arm,
    /// How often that was decided by measurement, in all processes.
    pub changes: u32,
}

/// What is known of one arm.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ArmState {
    /// How often the machine changed under it.
    pub epoch: u32,
    /// Calls ever observed.
    pub observations: u64,
    /// Exploring calls ever made.
    pub explored: u32,
    /// Refutations in a row.
    pub failures: u32,
    /// When it may be tried again, in ms since 1970 (UTC).
    pub retry_at_ms: f64,
    /// When it was last observed, in ms since 1970 (UTC).
    pub updated_at_ms: f64,
    /// Its level.
    pub level: Option<Level>,
}

/// Two states of different engines don't mix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a gate state of engine {theirs} can't be merged into one of {ours}: keep them apart, by engine")]
pub struct MergeError {
    /// The engine of the state that was to be changed.
    pub ours: String,
    /// The engine of the other one.
    pub theirs: String,
}

impl GateState {
    /// Takes in what another process knows.
    ///
    /// # Errors
    /// [`MergeError`] if it was gathered with another engine.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        if self.engine != other.engine {
            return Err(MergeError { ours: self.engine.clone(), theirs: other.engine.clone() });
        }
        for theirs in &other.regions {
            match self.regions.binary_search_by(|ours| ours.key.cmp(&theirs.key)) {
                Ok(at) => self.regions[at].merge(theirs),
                Err(at) => self.regions.insert(at, theirs.clone()),
            }
        }
        Ok(())
    }
}

impl RegionState {
    /// [`GateState::merge`] of one region; the keys must be equal.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.arms.iter_mut().zip(&other.arms) {
            *ours = ours.merged(theirs);
        }
        self.standing = self.standing.merged(other.standing);
    }
}

impl Standing {
    fn merged(self, other: Self) -> Self {
        // Codes grow towards plain stock.
        let rank = |standing: &Self| (standing.changes, standing.arm);
        if rank(&other) > rank(&self) { other } else { self }
    }
}

impl ArmState {
    fn merged(&self, other: &Self) -> Self {
        let winner = if other.rank() > self.rank() { other } else { self };
        Self { explored: self.explored.max(other.explored), ..*winner }
    }

    /// Totally ordered: equal ranks are equal in everything but `explored`.
    fn rank(&self) -> [u64; 8] {
        let level = self.level.map_or([0; 3], |level| {
            [ordered(level.value), ordered(level.deviation), u64::from(level.count) + 1]
        });
        [
            u64::from(self.epoch),
            self.observations,
            ordered(self.updated_at_ms),
            u64::from(self.failures),
            ordered(self.retry_at_ms),
            level[2],
            level[0],
            level[1],
        ]
    }
}

/// Bits in the order of [`f64::total_cmp`].
fn ordered(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 0 { bits | (1 << 63) } else { !bits }
}
