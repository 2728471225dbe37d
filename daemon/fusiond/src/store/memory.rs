//! A store without a disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fusion_calibrations::record::Record;

use super::error::StoreError;
use super::key::{CalibrationKey, Scope, history_key, split_history_key};
use super::report::{Exported, Rebuilt, Trimmed, VerifyReport};
use super::{CalibrationStore, Identity, Revision, Stored, export, retention};

/// Calibrations in memory, with the crash semantics of the real store: a clone is what is found after a crash. An acknowledged record is
/// there; one that [`super::FaultyStore`] failed is there or not, depending on where it failed.
///
/// For tests, and for a daemon whose state directory can't be written: it then serves what [`super::read_record_files`] finds.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    shared: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    history: BTreeMap<Vec<u8>, Record>,
    last: Revision,
    identity: Option<Identity>,
}

impl State {
    fn with_prefix(&self, prefix: &[u8]) -> impl Iterator<Item = (&[u8], Stored)> {
        let from_prefix = self.history.range(prefix.to_vec()..);
        let within = from_prefix.take_while({
            let prefix = prefix.to_vec();
            move |(key, _)| key.starts_with(&prefix)
        });
        within.filter_map(|(key, record)| {
            let (key, revision) = split_history_key(key)?;
            Some((key, Stored { revision, record: record.clone() }))
        })
    }

    fn latest(&self, prefix: &[u8]) -> BTreeMap<&[u8], Stored> {
        self.with_prefix(prefix).collect()
    }

    fn trim(&mut self, key: &[u8]) -> Trimmed {
        let revisions: Vec<Revision> = self.with_prefix(key).map(|(_, stored)| stored.revision).collect();
        let (remove, strip) = retention::plan(revisions.len());
        let mut trimmed = Trimmed::default();
        for (position, revision) in revisions.into_iter().take(remove + strip).enumerate() {
            let history_key = history_key(key, revision);
            if position < remove {
                self.history.remove(&history_key);
                trimmed.removed += 1;
            } else if let Some(record) =
                self.history.get_mut(&history_key).filter(|record| !record.samples.is_empty())
            {
                record.samples.clear();
                trimmed.stripped += 1;
            }
        }
        trimmed
    }
}

impl MemoryStore {
    /// A store that holds these records, as after committing them in the order of their revisions.
    pub fn with_records(records: Vec<Stored>) -> Self {
        let mut state = State::default();
        for Stored { revision, record } in records {
            state.last = state.last.max(revision);
            state.history.insert(history_key(&CalibrationKey::of(&record).to_bytes(), revision), record);
        }
        Self { shared: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything can panic.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CalibrationStore for MemoryStore {
    fn commit(&mut self, record: &Record) -> Result<Revision, StoreError> {
        record.encode().map_err(StoreError::Unstorable)?;
        let mut state = self.state();
        let revision = Revision(state.last.0 + 1);
        state.last = revision;
        let key = CalibrationKey::of(record).to_bytes();
        state.history.insert(history_key(&key, revision), record.clone());
        state.trim(&key);
        Ok(revision)
    }

    fn latest(&self, scope: Scope<'_>) -> Result<Vec<Stored>, StoreError> {
        Ok(self.state().latest(&scope.to_bytes()).into_values().collect())
    }

    fn history(&self, key: &CalibrationKey) -> Result<Vec<Stored>, StoreError> {
        Ok(self.state().with_prefix(&key.to_bytes()).map(|(_, stored)| stored).collect())
    }

    fn revision(&self) -> Revision {
        self.state().last
    }

    fn last_identity(&self) -> Result<Option<Identity>, StoreError> {
        let state = self.state();
        Ok(state.identity.clone().or_else(|| {
            let newest = state.latest(&[]).into_values().max_by_key(|stored| stored.revision)?;
            Some(Identity { chip: newest.record.chip, engine: newest.record.engine })
        }))
    }

    fn set_identity(&mut self, identity: &Identity) -> Result<(), StoreError> {
        self.state().identity = Some(identity.clone());
        Ok(())
    }

    fn trim(&mut self) -> Result<Trimmed, StoreError> {
        let mut state = self.state();
        let keys: Vec<Vec<u8>> = state.latest(&[]).into_keys().map(<[u8]>::to_vec).collect();
        let mut total = Trimmed::default();
        for key in keys {
            let trimmed = state.trim(&key);
            total.removed += trimmed.removed;
            total.stripped += trimmed.stripped;
        }
        Ok(total)
    }

    /// There are no files: only the counts are filled in.
    fn verify(&self) -> Result<VerifyReport, StoreError> {
        let state = self.state();
        Ok(VerifyReport {
            current: state.latest(&[]).len() as u64,
            records: state.history.len() as u64,
            last_revision: state.last,
            ..VerifyReport::default()
        })
    }

    /// There is no index to build: only the count is filled in.
    fn rebuild(&mut self) -> Result<Rebuilt, StoreError> {
        Ok(Rebuilt { records: self.state().history.len() as u64, ..Rebuilt::default() })
    }

    fn export(&self, to: &Path) -> Result<Exported, StoreError> {
        export::write(to, &self.latest(Scope::All)?)
    }
}
