//! What is served: every record in memory, and who the worker is.
//!
//! The table is read by every call and written by the job that commits; the store is not read again after the start. Cliffs that calibrations
//! discovered are read off the records' samples when a record comes in: the records stay the only place where they are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use fusion_calibrations::chip::Chip;
use fusion_calibrations::chips;
use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::estimate::Origin;
use fusion_calibrations::lookup::{self, Answer, Candidate, Query};
use fusion_calibrations::record::Record;
use fusion_calibrations::rows::{Cliff, RowRule};
use fusion_calibrations::search::points;
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
    entries: RwLock<BTreeMap<Vec<u8>, Entry>>,
    /// Whether what was measured here is kept, but not served: see [`Self::withhold`].
    withheld: AtomicBool,
}

/// A record, and the cliffs that its samples show: hardly ever any.
#[derive(Debug)]
struct Entry {
    record: Arc<Record>,
    cliffs: Vec<Cliff>,
}

impl Entry {
    fn keyed(record: Record) -> (Vec<u8>, Self) {
        let cliffs = points::cliffs(&record.samples, record.estimate.shape);
        (CalibrationKey::of(&record).to_bytes(), Self { record: Arc::new(record), cliffs })
    }
}

/// A cliff that a calibration discovered.
#[derive(Debug, Clone, PartialEq)]
pub struct LearntCliff {
    /// The cliff.
    pub cliff: Cliff,
    /// The calibration that shows it.
    pub record: Arc<Record>,
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
        table.replace(records);
        table
    }

    /// Adds a record, or replaces that of the same key, unless that is trusted more: what was measured while another machine's records came in
    /// stays.
    pub fn insert(&self, record: Record) {
        let (key, entry) = Entry::keyed(record);
        let mut entries = self.write();
        let trust = |entry: &Entry| entry.record.estimate.provenance;
        if entries.get(&key).is_none_or(|known| trust(known) <= trust(&entry)) {
            entries.insert(key, entry);
        }
    }

    /// Replaces everything.
    pub fn replace(&self, records: impl IntoIterator<Item = Record>) {
        let fresh = records.into_iter().map(Entry::keyed).collect();
        *self.write() = fresh;
    }

    /// The record of this very shape, chip and engine under these conditions.
    pub fn exact(&self, identity: &Identity, shape: Shape, conditions: Conditions) -> Option<Arc<Record>> {
        let (chip, engine) = (identity.chip.key(), identity.engine.key());
        let key = CalibrationKey { chip, engine, shape, conditions }.to_bytes();
        self.read().get(&key).map(|entry| Arc::clone(&entry.record))
    }

    /// Every chip that something is known of.
    pub fn chips(&self) -> BTreeSet<Chip> {
        self.read().values().map(|entry| entry.record.chip.clone()).collect()
    }

    /// Serves nothing that was measured on this machine, or all of it again. What is kept stays.
    pub fn withhold(&self, withheld: bool) {
        self.withheld.store(withheld, Ordering::Release);
    }

    /// Whether what was measured here isn't served.
    pub fn is_withheld(&self) -> bool {
        self.withheld.load(Ordering::Acquire)
    }

    /// The records of a chip that may answer a question.
    pub fn served(&self, chip: &Chip) -> Vec<Arc<Record>> {
        let mut records = self.of_chip(chip);
        if self.is_withheld() {
            records.retain(|record| record.estimate.provenance.origin() != Origin::Here);
        }
        records
    }

    /// Every record of a chip.
    pub fn of_chip(&self, chip: &Chip) -> Vec<Arc<Record>> {
        self.each_of_chip(chip, |entry, records: &mut Vec<_>| records.push(Arc::clone(&entry.record)))
    }

    /// The cliffs that calibrations of a chip discovered, each once.
    pub fn learnt_cliffs(&self, chip: &Chip) -> Vec<LearntCliff> {
        self.each_of_chip(chip, |entry, learnt: &mut Vec<LearntCliff>| {
            for &cliff in &entry.cliffs {
                if learnt.iter().all(|known| known.cliff != cliff) {
                    learnt.push(LearntCliff { cliff, record: Arc::clone(&entry.record) });
                }
            }
        })
    }

    /// How rows are shared on a chip: the shipped rule, and what calibrations learnt.
    pub fn row_rule(&self, chip: &Chip) -> RowRule {
        let mut rule = chips::row_rule(chip);
        rule.cliffs.extend(self.learnt_cliffs(chip).into_iter().map(|learnt| learnt.cliff));
        rule
    }

    fn each_of_chip<T: Default>(&self, chip: &Chip, mut with: impl FnMut(&Entry, &mut T)) -> T {
        let prefix = Scope::Chip(&chip.key()).to_bytes();
        let entries = self.read();
        let from = entries.range::<[u8], _>((Bound::Included(&prefix[..]), Bound::Unbounded));
        let mut result = T::default();
        from.take_while(|(key, _)| key.starts_with(&prefix)).for_each(|(_, entry)| with(entry, &mut result));
        result
    }

    /// At most `limit` records behind the key `after` in the order of keys, and the key to go on behind, if there are more.
    pub fn page(&self, after: Option<&[u8]>, limit: usize) -> (Vec<Arc<Record>>, Option<Vec<u8>>) {
        let entries = self.read();
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = entries.range::<[u8], _>((start, Bound::Unbounded));
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let last = page.last().map(|(key, _)| (*key).clone());
        let next = if rest.next().is_some() { last } else { None };
        (page.into_iter().map(|(_, entry)| Arc::clone(&entry.record)).collect(), next)
    }

    /// How many records there are, seen from one identity.
    pub fn counts(&self, identity: Option<&Identity>) -> Counts {
        let entries = self.read();
        let of = |engine: bool| {
            let Some(identity) = identity else { return 0 };
            let same = |record: &Record| (record.engine == identity.engine) == engine;
            let records = entries.values().map(|entry| &entry.record);
            records.filter(|record| record.chip == identity.chip && same(record)).count() as u64
        };
        Counts { all: entries.len() as u64, current: of(true), stale: of(false) }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<Vec<u8>, Entry>> {
        self.entries.read().expect("no holder of this lock panics")
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<Vec<u8>, Entry>> {
        self.entries.write().expect("no holder of this lock panics")
    }
}

/// Answers `query` from `records`, all of its chip, with the shipped prior of that chip behind them; `rule` is [`Table::row_rule`].
pub fn answer<'a>(records: &'a [Arc<Record>], query: &Query<'_>, rule: &RowRule) -> Answer<'a> {
    let candidates: Vec<Candidate<'a>> = records.iter().map(|record| candidate(record)).collect();
    let prior =
        chips::prior_for(query.chip).and_then(|prior| prior.lines(query.shape.layer(), query.chip.gpu_cores));
    lookup::answer(query, &candidates, prior, rule)
}

fn candidate(record: &Record) -> Candidate<'_> {
    Candidate { chip: &record.chip, engine: &record.engine, estimate: &record.estimate, stale: None }
}
