//! A store that fails when it is told to, for tests of what uses one.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use fusion_calibrations::record::Record;

use super::error::StoreError;
use super::key::{CalibrationKey, Scope};
use super::report::{Exported, Rebuilt, Trimmed, VerifyReport};
use super::{CalibrationStore, Identity, Revision, Stored};

/// Whether the failing operation has its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens.
    Before,
    /// It is done, but the caller sees an error: as when power fails before the acknowledgement.
    After,
}

/// Passes everything on to another store, but fails every `period`-th operation.
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    period: u64,
    fault: Fault,
    operations: AtomicU64,
}

impl<S: CalibrationStore> FaultyStore<S> {
    /// Fails the operations `period`, 2 · `period`, ...; none if `period` is 0.
    pub fn new(inner: S, period: u64, fault: Fault) -> Self {
        Self { inner, period, fault, operations: AtomicU64::new(0) }
    }

    /// Counts an operation; the error if it is one to fail.
    fn fault(&self) -> Option<StoreError> {
        let operation = self.operations.fetch_add(1, Ordering::Relaxed) + 1;
        (self.period > 0 && operation.is_multiple_of(self.period))
            .then_some(StoreError::Injected { operation })
    }

    fn reading<T>(&self, read: impl FnOnce(&S) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.fault().map_or_else(|| read(&self.inner), Err)
    }

    fn writing<T>(&mut self, write: impl FnOnce(&mut S) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match (self.fault(), self.fault) {
            (None, _) => write(&mut self.inner),
            (Some(error), Fault::Before) => Err(error),
            (Some(error), Fault::After) => write(&mut self.inner).and(Err(error)),
        }
    }
}

impl<S: CalibrationStore> CalibrationStore for FaultyStore<S> {
    fn commit(&mut self, record: &Record) -> Result<Revision, StoreError> {
        self.writing(|store| store.commit(record))
    }

    fn latest(&self, scope: Scope<'_>) -> Result<Vec<Stored>, StoreError> {
        self.reading(|store| store.latest(scope))
    }

    fn history(&self, key: &CalibrationKey) -> Result<Vec<Stored>, StoreError> {
        self.reading(|store| store.history(key))
    }

    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn last_identity(&self) -> Result<Option<Identity>, StoreError> {
        self.reading(CalibrationStore::last_identity)
    }

    fn set_identity(&mut self, identity: &Identity) -> Result<(), StoreError> {
        self.writing(|store| store.set_identity(identity))
    }

    fn trim(&mut self) -> Result<Trimmed, StoreError> {
        self.writing(CalibrationStore::trim)
    }

    fn verify(&self) -> Result<VerifyReport, StoreError> {
        self.reading(CalibrationStore::verify)
    }

    fn rebuild(&mut self) -> Result<Rebuilt, StoreError> {
        self.writing(CalibrationStore::rebuild)
    }

    fn export(&self, to: &Path) -> Result<Exported, StoreError> {
        self.reading(|store| store.export(to))
    }
}
