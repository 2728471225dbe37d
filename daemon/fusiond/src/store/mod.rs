//! Keeping calibrations.
//!
//! ```text
//! <state>/calibrations/*.fcal     one record file per committed calibration: the truth
//! <state>/store/                  the index (sled): can be rebuilt from the record files
//! <state>/store-manifest.json     what the index must hold, so that a silent loss is noticed
//! <state>/store.lock              held by the one process that has the store open
//! <state>/store.corrupt-<utc>/    an index that was set aside; fusiond never deletes one
//! ```
//!
//! **What an acknowledgement means.** [`CalibrationStore::commit`] returns after the record file, then the index, then the
//! manifest are on the disk, in this order. A record that was acknowledged survives the end of the process at any moment; one
//! that wasn't may be there or not, but never in part. After the first step the record is safe: on opening, record files
//! that the index lacks are taken in.
//!
//! **Damage.** An index that can't be opened, that panics, or that holds less than the manifest says is set aside and built
//! anew from the record files, and [`Opened::health`] says so. A damaged record file and a record of a newer fusiond
//! are left as they are and counted.
//!
//! **Threads.** The store is synchronous. [`StoreHandle`] runs it on one thread of its own and is what async code uses.

mod error;
mod export;
mod faulty;
mod files;
mod handle;
mod index;
mod key;
mod lock;
mod manifest;
mod memory;
mod open;
mod panics;
mod paths;
mod report;
mod retention;
mod sled_store;
mod steps;

use std::fmt;
use std::path::Path;

use fusion_calibrations::chip::Chip;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::record::Record;

pub use error::StoreError;
pub use faulty::{Fault, FaultyStore};
pub use handle::StoreHandle;
pub use key::{CalibrationKey, Scope};
pub use memory::MemoryStore;
pub use open::{Opened, Options, read_record_files};
pub use report::{Exported, Health, Rebuilt, SetAside, Trimmed, VerifyReport};
pub use retention::{HISTORY_PER_KEY, SAMPLES_PER_KEY};
pub use sled_store::SledStore;
pub use steps::{Probe, Step};

/// The number of a commit: 1 for the first, growing for ever. Numbers of failed commits are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A record and the commit that made it current.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// The commit.
    pub revision: Revision,
    /// The record.
    pub record: Record,
}

/// The chip and engine that the last worker reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The hardware.
    pub chip: Chip,
    /// The code.
    pub engine: Engine,
}

/// Where calibrations are kept. [`SledStore`] is the real one; [`MemoryStore`] stands in for it in tests and where nothing may be written.
///
/// The last commit of a key is its current record: which of two beliefs is better is the planner's decision, not the store's.
pub trait CalibrationStore: Send {
    /// Keeps a record. Durable when it returns; after an error it may be kept or not. Applies the retention limits to the
    /// record's key.
    ///
    /// # Errors
    /// [`StoreError::Unstorable`] for a record that has no bytes; otherwise what the disk or the index said.
    fn commit(&mut self, record: &Record) -> Result<Revision, StoreError>;

    /// The current record of every key in the scope, in the order of the keys. Records of a newer fusiond are left out; [`Opened`] and
    /// [`VerifyReport`] count them.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] or [`StoreError::Corrupt`], never a part of the answer.
    fn latest(&self, scope: Scope<'_>) -> Result<Vec<Stored>, StoreError>;

    /// All records kept for one key, oldest first.
    ///
    /// # Errors
    /// As [`Self::latest`].
    fn history(&self, key: &CalibrationKey) -> Result<Vec<Stored>, StoreError>;

    /// The last commit; 0 before the first.
    fn revision(&self) -> Revision;

    /// The identity kept last; without one, that of the newest record.
    ///
    /// # Errors
    /// As [`Self::latest`].
    fn last_identity(&self) -> Result<Option<Identity>, StoreError>;

    /// Keeps the identity that a worker reported. Durable when it returns; the same one again costs nothing.
    ///
    /// # Errors
    /// What the disk or the index said.
    fn set_identity(&mut self, identity: &Identity) -> Result<(), StoreError>;

    /// Applies the retention limits to every key.
    ///
    /// # Errors
    /// What the disk or the index said.
    fn trim(&mut self) -> Result<Trimmed, StoreError>;

    /// Reads everything and compares the index with the record files. Changes nothing.
    ///
    /// # Errors
    /// What the disk said; damage is part of the report, not an error.
    fn verify(&self) -> Result<VerifyReport, StoreError>;

    /// Sets the index aside and builds it anew from the record files. Records that only the index has are written to files
    /// before.
    ///
    /// # Errors
    /// What the disk said.
    fn rebuild(&mut self) -> Result<Rebuilt, StoreError>;

    /// Writes all current records into the new directory `to`: `calibrations.jsonl`, one JSON object with named units per line, and
    /// the bytes of each as a `.fcal` file.
    ///
    /// # Errors
    /// [`StoreError::ExportExists`], or what the disk said.
    fn export(&self, to: &Path) -> Result<Exported, StoreError>;
}
