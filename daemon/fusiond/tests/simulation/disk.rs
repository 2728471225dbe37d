//! What survives the daemon: its store, and two small files.
//!
//! The store is the in-memory one, with its crash semantics: what was acknowledged is there after a crash, what wasn't may be there or not. Both outcomes
//! occur here, by chance.

use std::collections::BTreeMap;

use fusion_calibrations::record::Record;
use fusion_proto::v1;
use fusiond::planner::PlannerState;
use fusiond::store::{
    CalibrationKey, CalibrationStore, Fault, FaultyStore, MemoryStore, Revision, Scope, StoreError, Stored,
};

/// The disk.
#[derive(Default)]
pub struct Disk {
    store: MemoryStore,
    planner: Option<String>,
    gates: Option<v1::Snapshot>,
    /// Whether every write fails.
    pub full: bool,
    acknowledged: BTreeMap<Vec<u8>, (Revision, Record)>,
}

impl Disk {
    /// Keeps a record. With a fault the caller dies before it hears of it.
    pub fn commit(&mut self, record: &Record, dies: Option<Fault>) -> Result<(), StoreError> {
        let fault = if self.full { Some(Fault::Before) } else { dies };
        let revision = match fault {
            None => self.store.commit(record)?,
            // Every operation fails: before or after its effect.
            Some(fault) => FaultyStore::new(self.store.clone(), 1, fault).commit(record)?,
        };
        self.acknowledged.insert(CalibrationKey::of(record).to_bytes(), (revision, record.clone()));
        Ok(())
    }

    /// Every current record, as a daemon reads them when it starts.
    pub fn read(&self) -> Vec<Record> {
        self.latest().into_iter().map(|stored| stored.record).collect()
    }

    /// What was acknowledged and isn't there any more, in words.
    pub fn lost(&self) -> Vec<String> {
        let found: BTreeMap<Vec<u8>, Stored> = self
            .latest()
            .into_iter()
            .map(|stored| (CalibrationKey::of(&stored.record).to_bytes(), stored))
            .collect();
        self.acknowledged
            .iter()
            .filter(|(key, (revision, record))| match found.get(*key) {
                Some(stored) if stored.revision == *revision => stored.record != *record,
                Some(stored) => stored.revision < *revision,
                None => true,
            })
            .map(|(_, (revision, record))| {
                format!("revision {revision} of {} was acknowledged and is lost", record.estimate.shape)
            })
            .collect()
    }

    /// Replaces the planner's file; false if the disk is full: then the old one stands.
    pub fn keep_planner(&mut self, state: &PlannerState) -> bool {
        if !self.full {
            self.planner = Some(serde_json::to_string(state).unwrap());
        }
        !self.full
    }

    /// The planner's file.
    pub fn planner(&self) -> Option<PlannerState> {
        self.planner.as_ref().map(|text| serde_json::from_str(text).unwrap())
    }

    /// Replaces the snapshot of the gates, if there is room.
    pub fn keep_gates(&mut self, snapshot: v1::Snapshot) {
        if !self.full {
            self.gates = Some(snapshot);
        }
    }

    /// The snapshot of the gates.
    pub fn gates(&self) -> Option<&v1::Snapshot> {
        self.gates.as_ref()
    }

    fn latest(&self) -> Vec<Stored> {
        self.store.latest(Scope::All).unwrap()
    }
}
