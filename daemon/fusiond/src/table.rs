//! What is served: every record in memory, and who the worker is.
//!
//! The table is read by every call and written by the job that commits; the store is not read again after the start.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, RwLock};

use fusion_calibrations::chip::Chip;
use fusion_calibrations::chips;
use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::lookup::{self, Answer, Candidate, Query};
use fusion_calibrations::record::Record;
use fusion_calibrations::shape::Shape;

use crate::store::{CalibrationKey, Scope};

/// Who measures: the worker's machine and code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The hardware and its two units.
    pub chip: Chip,
    /// The code.
    pub engine: Engine,
    /// The units in words.
    pub units: String,
}

/// Every current record.
#[derive(Debug, Default)]
pub struct Table {
    records: RwLock<BTreeMap<Vec<u8>, Arc<Record>>>,
}

/// How many records there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// All.
    pub all: u64,
    /// Those of one chip and engine.
    pub current: u64,
    /// Those of the chip, but another engine: served, and marked stale.
    pub stale: u64,
}

impl Table {
    /// A table of these records.
    pub fn new(records: impl IntoIterator<Item = Record>) -> Self {
        let table = Self::default();
        for record in records {
            table.insert(record);
        }
        table
    }

    /// Adds a record, or replaces that of the same key.
    pub fn insert(&self, record: Record) {
        let key = CalibrationKey::of(&record).to_bytes();
        self.write().insert(key, Arc::new(record));
    }

    /// Replaces everything.
    pub fn replace(&self, records: impl IntoIterator<Item = Record>) {
        let fresh =
            records.into_iter().map(|record| (CalibrationKey::of(&record).to_bytes(), Arc::new(record)));
        *self.write() = fresh.collect();
    }

    /// The record of this very shape, chip and engine under these conditions.
    pub fn exact(&self, identity: &Identity, shape: Shape, conditions: Conditions) -> Option<Arc<Record>> {
        let (chip, engine) = (identity.chip.key(), identity.engine.key());
        self.read().get(&CalibrationKey { chip, engine, shape, conditions }.to_bytes()).cloned()
    }

    /// Every record of a chip.
    pub fn of_chip(&self, chip: &Chip) -> Vec<Arc<Record>> {
        let prefix = Scope::Chip(&chip.key()).to_bytes();
        let records = self.read();
        let from = records.range::<[u8], _>((Bound::Included(&prefix[..]), Bound::Unbounded));
        from.take_while(|(key, _)| key.starts_with(&prefix)).map(|(_, record)| Arc::clone(record)).collect()
    }

    /// At most `limit` records behind the key `after` in the order of keys, and the key to go on behind, if there are more.
    pub fn page(&self, after: Option<&[u8]>, limit: usize) -> (Vec<Arc<Record>>, Option<Vec<u8>>) {
        let records = self.read();
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = records.range::<[u8], _>((start, Bound::Unbounded));
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let last = page.last().map(|(key, _)| (*key).clone());
        let next = if rest.next().is_some() { last } else { None };
        (page.into_iter().map(|(_, record)| Arc::clone(record)).collect(), next)
    }

    /// How many records there are, seen from one identity.
    pub fn counts(&self, identity: Option<&Identity>) -> Counts {
        let records = self.read();
        let of = |engine: bool| {
            let Some(identity) = identity else { return 0 };
            let same = |record: &Record| (record.engine == identity.engine) == engine;
            records.values().filter(|record| record.chip == identity.chip && same(record)).count() as u64
        };
        Counts { all: records.len() as u64, current: of(true), stale: of(false) }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<Vec<u8>, Arc<Record>>> {
        self.records.read().expect("no holder of this lock panics")
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<Vec<u8>, Arc<Record>>> {
        self.records.write().expect("no holder of this lock panics")
    }
}

/// Answers for `shape` from `records`, all of one chip, with the shipped prior of that chip behind them.
pub fn answer<'a>(
    records: &'a [Arc<Record>],
    chip: &Chip,
    engine: &Engine,
    shape: Shape,
    conditions: Conditions,
) -> Answer<'a> {
    let candidates: Vec<Candidate<'a>> = records.iter().map(|record| candidate(record)).collect();
    let prior = chips::prior_for(chip).and_then(|prior| prior.lines(shape.layer(), chip.gpu_cores));
    lookup::answer(&Query { shape, chip, engine, conditions }, &candidates, prior, &chips::row_rule(chip))
}

fn candidate(record: &Record) -> Candidate<'_> {
    Candidate { chip: &record.chip, engine: &record.engine, estimate: &record.estimate, stale: None }
}
