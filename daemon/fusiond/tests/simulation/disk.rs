//! What survives the daemon: its store, and three small files.
//!
//! The store is the in-memory one, with its crash semantics: what was acknowledged is there after a crash, what wasn't may be there or not. Both outcomes
//! occur here, by chance.

use std::collections::BTreeMap;

use fusion_calibrations::record::Record;
use fusion_proto::v1;
use fusiond::planner::canary::References;
use fusiond::recalibration::Kept;
use fusiond::store::{
    CalibrationKey, CalibrationStore, Fault, FaultyStore, MemoryStore, Revision, Scope, StoreError, Stored,
};

/// The disk.
#[derive(Default)]
pub struct Disk {
    store: MemoryStore,
    kept: Option<String>,
    references: Option<String>,
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

    /// Replaces the file of the budget and the layers that were run lately; false if the disk is full: then the old one stands.
    pub fn keep(&mut self, text: String) -> bool {
        if !self.full {
            self.kept = Some(text);
        }
        !self.full
    }

    /// What that file says.
    pub fn kept(&self) -> Kept {
        self.kept.as_ref().map(|text| Kept::from_text(text).unwrap()).unwrap_or_default()
    }

    /// Replaces the canary's file, if there is room.
    pub fn keep_references(&mut self, references: &References) {
        if !self.full {
            self.references = Some(serde_json::to_string(references).unwrap());
        }
    }

    /// What that file says.
    pub fn references(&self) -> References {
        self.references.as_ref().map(|text| serde_json::from_str(text).unwrap()).unwrap_or_default()
    }

    /// Replaces the snapshot of the gates; false if the disk is full: then the old one stands.
    pub fn keep_gates(&mut self, snapshot: v1::Snapshot) -> bool {
        if !self.full {
            self.gates = Some(snapshot);
        }
        !self.full
    }

    /// The snapshot of the gates.
    pub fn gates(&self) -> Option<&v1::Snapshot> {
        self.gates.as_ref()
    }

    fn latest(&self) -> Vec<Stored> {
        self.store.latest(Scope::All).unwrap()
    }
}
