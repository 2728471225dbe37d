//! The index: three sled trees. This file alone names sled.
//!
//! | tree | key | value |
//! |---|---|---|
//! | `current` | calibration key | revision, big-endian |
//! | `history` | calibration key + revision | the record's bytes |
//! | `meta` | `format`, `state`, `identity` | see [`IndexState`] and [`StoredIdentity`] |
//!
//! sled 0.34.7 panics on damaged files, can lose flushed records without an error, and isn't maintained any more; so it is
//! only an index here. Every call is guarded against panics, and what it holds is compared with the manifest on opening.
//!
//! With its first write, or with opening what isn't empty, sled starts seven threads that wake once a second each, for ever:
//! about 7 wake-ups a second (measured). They are a static of the process (`threadpool.rs`, "immortal"), not the database's:
//! closing it doesn't end them, and nothing in its interface does. Only a child process that opens the index and goes away would.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fusion_calibrations::record::{Record, RecordError};
use sled::transaction::{ConflictableTransactionError, TransactionError, Transactional};

use super::error::{At, StoreError};
use super::key::{CalibrationKey, history_key, split_history_key};
use super::lock::PATIENCE;
use super::manifest::{FORMAT, IndexState, StoredIdentity};
use super::panics::caught;
use super::steps::{Step, Steps};
use super::{Identity, Revision};

/// sled's default of 1 GB is for servers; a few thousand records need far less.
const CACHE_BYTES: u64 = 16 << 20;
const FORMAT_KEY: &[u8] = b"format";
const STATE_KEY: &[u8] = b"state";
const IDENTITY_KEY: &[u8] = b"identity";

/// The open index.
pub(super) struct Index {
    directory: PathBuf,
    steps: Steps,
    database: sled::Db,
    current: sled::Tree,
    history: sled::Tree,
    meta: sled::Tree,
}

/// Why the index isn't open.
#[derive(Debug)]
pub(super) enum OpenError {
    /// Its files are damaged: set them aside.
    Damaged(String),
    /// The environment is in the way: the files are left alone.
    Store(StoreError),
}

/// One change of the index.
pub(super) enum Change<'a> {
    /// A new record, or other bytes for a known one.
    Put { key: Vec<u8>, revision: Revision, bytes: &'a [u8] },
    /// Takes an old record out. Never the current one.
    Remove { key: Vec<u8>, revision: Revision },
}

/// One entry of the history.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) revision: Revision,
    pub(super) bytes: Vec<u8>,
}

/// Everything in the index, checked.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Every record, by key and revision.
    pub(super) entries: Vec<Entry>,
    /// Number of current records.
    pub(super) current: u64,
    /// What can't be read or doesn't belong together.
    pub(super) damage: Vec<String>,
    /// Records of a newer fusiond.
    pub(super) newer: u64,
}

/// Removes snapshots that a crash left unfinished. sled takes them for finished ones and refuses to open for ever
/// (spacejam/sled#1527); by construction the rename that would have made them valid never happened.
pub(super) fn remove_unfinished_snapshots(directory: &Path) -> Result<(), StoreError> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.at("reading", directory)?,
    };
    for entry in entries {
        let path = entry.at("reading", directory)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            tracing::info!("removing {}: left by a crash while writing it", path.display());
            std::fs::remove_file(&path).at("removing", &path)?;
        }
    }
    Ok(())
}

impl Index {
    /// Opens the index or creates it.
    pub(super) fn open(directory: &Path, steps: &Steps) -> Result<Self, OpenError> {
        let begun = Instant::now();
        loop {
            let attempt = caught(|| Self::open_once(directory, steps.clone())).map_err(OpenError::Damaged)?;
            match attempt {
                Err(sled::Error::Io(error)) if is_locked(&error) => {
                    // Our own lock is held, so this is a predecessor whose lock outlives it by milliseconds.
                    if begun.elapsed() >= PATIENCE {
                        let path = directory.join("db");
                        return Err(OpenError::Store(StoreError::Locked { path, pid: None }));
                    }
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                Err(sled::Error::Io(error)) if !is_damage(&error) => {
                    return Err(match StoreError::from_io("opening", directory, error) {
                        StoreError::Io { source, .. } => OpenError::Damaged(source.to_string()),
                        environment => OpenError::Store(environment),
                    });
                }
                Err(error) => return Err(OpenError::Damaged(error.to_string())),
                Ok(index) => return Ok(index),
            }
        }
    }

    fn open_once(directory: &Path, steps: Steps) -> Result<Self, sled::Error> {
        let database = sled::Config::new()
            .path(directory)
            .cache_capacity(CACHE_BYTES)
            // Every commit flushes by itself; sled's flusher syncs on every tick, also when there is nothing to write.
            .flush_every_ms(None)
            .open()?;
        Ok(Self {
            directory: directory.to_owned(),
            steps,
            current: database.open_tree("current")?,
            history: database.open_tree("history")?,
            meta: database.open_tree("meta")?,
            database,
        })
    }

    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, sled::Error>) -> Result<T, StoreError> {
        match caught(work) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(sled::Error::Io(error))) if is_damage(&error) => Err(self.corrupt(error.to_string())),
            Ok(Err(sled::Error::Io(error))) => Err(StoreError::from_io("writing", &self.directory, error)),
            Ok(Err(error)) => Err(self.corrupt(error.to_string())),
            Err(panic) => Err(self.corrupt(panic)),
        }
    }

    fn corrupt(&self, reason: String) -> StoreError {
        StoreError::Corrupt { path: self.directory.clone(), reason }
    }

    /// The layout of the index; `None` in a new one.
    pub(super) fn format(&self) -> Result<Option<u32>, StoreError> {
        let value = self.guarded(|| self.meta.get(FORMAT_KEY))?;
        value
            .map(|bytes| {
                let bytes: [u8; 4] = bytes
                    .as_ref()
                    .try_into()
                    .map_err(|_| self.corrupt("its format is unreadable".to_owned()))?;
                Ok(u32::from_be_bytes(bytes))
            })
            .transpose()
    }

    /// What the index says of itself; `None` in a new one.
    pub(super) fn state(&self) -> Result<Option<IndexState>, StoreError> {
        let value = self.guarded(|| self.meta.get(STATE_KEY))?;
        value
            .map(|bytes| {
                state_from(&bytes).ok_or_else(|| self.corrupt("its own count is unreadable".to_owned()))
            })
            .transpose()
    }

    /// The identity that was kept last.
    pub(super) fn identity(&self) -> Result<Option<Identity>, StoreError> {
        let value = self.guarded(|| self.meta.get(IDENTITY_KEY))?;
        Ok(value
            .and_then(|bytes| serde_json::from_slice::<StoredIdentity>(&bytes).ok())
            .and_then(StoredIdentity::read))
    }

    /// Makes all changes and the new state durable, in one transaction.
    pub(super) fn apply(&self, changes: &[Change<'_>], state: IndexState) -> Result<(), StoreError> {
        self.durably(|| self.transact(changes, state))
    }

    /// Makes the identity and the new state durable, in one transaction.
    pub(super) fn put_identity(&self, identity: &Identity, state: IndexState) -> Result<(), StoreError> {
        let text = serde_json::to_vec(&StoredIdentity::from(identity))
            .map_err(std::io::Error::other)
            .at("writing", &self.directory)?;
        self.durably(|| {
            let mut batch = sled::Batch::default();
            batch.insert(FORMAT_KEY, &FORMAT.to_be_bytes());
            batch.insert(STATE_KEY, state_bytes(state));
            batch.insert(IDENTITY_KEY, text);
            self.meta.apply_batch(batch)
        })
    }

    fn durably(&self, change: impl FnOnce() -> Result<(), sled::Error>) -> Result<(), StoreError> {
        let pass = |step| self.steps.pass(step).at("writing", &self.directory);
        pass(Step::IndexBegun)?;
        self.guarded(change)?;
        pass(Step::IndexChanged)?;
        self.flush()?;
        pass(Step::IndexDurable)
    }

    fn transact(&self, changes: &[Change<'_>], state: IndexState) -> Result<(), sled::Error> {
        let done = (&self.current, &self.history, &self.meta).transaction(|(current, history, meta)| {
            for change in changes {
                match change {
                    Change::Put { key, revision, bytes } => {
                        history.insert(history_key(key, *revision), *bytes)?;
                        let known = current.get(key)?.and_then(|value| revision_from(&value));
                        if known.is_none_or(|known| known < *revision) {
                            current.insert(key.as_slice(), &revision.0.to_be_bytes())?;
                        }
                    }
                    Change::Remove { key, revision } => {
                        history.remove(history_key(key, *revision))?;
                    }
                }
            }
            meta.insert(FORMAT_KEY, &FORMAT.to_be_bytes())?;
            meta.insert(STATE_KEY, state_bytes(state))?;
            Ok::<(), ConflictableTransactionError<()>>(())
        });
        match done {
            // Nothing here aborts.
            Ok(()) | Err(TransactionError::Abort(())) => Ok(()),
            Err(TransactionError::Storage(error)) => Err(error),
        }
    }

    /// On Linux sled 0.34 only asks for writing (`sync_file_range`), which reaches neither a disk's cache nor the file's
    /// metadata. On macOS its flush is complete, and a second one with nothing to write is cheap.
    fn flush(&self) -> Result<(), StoreError> {
        self.guarded(|| self.database.flush())?;
        let file = self.directory.join("db");
        std::fs::File::open(&file).and_then(|opened| opened.sync_all()).at("writing", &file)
    }

    /// The records of one key, oldest first.
    pub(super) fn history(&self, key: &[u8]) -> Result<Vec<Entry>, StoreError> {
        self.scan(key)
    }

    /// Every record whose key begins with `prefix`, by key and revision.
    pub(super) fn scan(&self, prefix: &[u8]) -> Result<Vec<Entry>, StoreError> {
        self.guarded(|| {
            let mut entries = Vec::new();
            for item in self.history.scan_prefix(prefix) {
                let (key, bytes) = item?;
                if let Some((key, revision)) = split_history_key(&key) {
                    entries.push(Entry { key: key.to_vec(), revision, bytes: bytes.to_vec() });
                }
            }
            Ok(entries)
        })
    }

    /// The current record of every key that begins with `prefix`, by key.
    pub(super) fn latest(&self, prefix: &[u8]) -> Result<Vec<Entry>, StoreError> {
        self.guarded(|| {
            let mut entries = Vec::new();
            for item in self.current.scan_prefix(prefix) {
                let (key, value) = item?;
                let missing = || sled::Error::ReportableBug("a current record is missing".to_owned());
                let revision = revision_from(&value).ok_or_else(missing)?;
                let bytes = self.history.get(history_key(&key, revision))?.ok_or_else(missing)?;
                entries.push(Entry { key: key.to_vec(), revision, bytes: bytes.to_vec() });
            }
            Ok(entries)
        })
    }

    /// Reads and checks everything.
    pub(super) fn contents(&self) -> Result<Contents, StoreError> {
        let entries = self.scan(&[])?;
        let mut contents = Contents { entries, ..Contents::default() };
        for entry in &contents.entries {
            match checked(entry) {
                Ok(()) => {}
                Err(RecordError::Newer { .. } | RecordError::Kind { .. }) => contents.newer += 1,
                Err(error) => contents.damage.push(format!("entry {}: {error}", entry.revision)),
            }
        }
        self.check_pointers(&mut contents)?;
        Ok(contents)
    }

    fn check_pointers(&self, contents: &mut Contents) -> Result<(), StoreError> {
        let mut newest = std::collections::BTreeMap::new();
        for entry in &contents.entries {
            newest.insert(entry.key.as_slice(), entry.revision);
        }
        let pointers = self.guarded(|| self.current.iter().collect::<Result<Vec<_>, _>>())?;
        contents.current = pointers.len() as u64;
        let agree = pointers.len() == newest.len()
            && pointers.iter().all(|(key, value)| {
                newest.get(key.as_ref()).copied() == revision_from(value) && revision_from(value).is_some()
            });
        if !agree {
            contents.damage.push("the list of current records doesn't fit the history".to_owned());
        }
        Ok(())
    }

    /// Whether sled found anything when it opened the directory.
    pub(super) fn was_recovered(&self) -> bool {
        self.database.was_recovered()
    }
}

/// Whether an entry's value is a record, and the one that its key names.
pub(super) fn checked(entry: &Entry) -> Result<(), RecordError> {
    let record = Record::decode(&entry.bytes)?;
    if CalibrationKey::of(&record).to_bytes() == entry.key {
        Ok(())
    } else {
        Err(RecordError::Body { reason: "it is stored under another calibration's key".to_owned() })
    }
}

/// Whether a failure to read comes from what is in the files: sled reads past the end of a file that was cut short.
fn is_damage(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData)
}

fn is_locked(error: &std::io::Error) -> bool {
    error.to_string().contains("could not acquire lock")
}

fn revision_from(bytes: &[u8]) -> Option<Revision> {
    bytes.try_into().ok().map(|bytes| Revision(u64::from_be_bytes(bytes)))
}

fn state_bytes(state: IndexState) -> Vec<u8> {
    [state.generation, state.last_revision, state.records].into_iter().flat_map(u64::to_be_bytes).collect()
}

fn state_from(bytes: &[u8]) -> Option<IndexState> {
    let (words, rest) = bytes.as_chunks::<8>();
    let &[generation, last_revision, records] = words else { return None };
    let word = u64::from_be_bytes;
    rest.is_empty().then(|| IndexState {
        generation: word(generation),
        last_revision: word(last_revision),
        records: word(records),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_sled_are_sorted_by_what_to_do() {
        let directory = tempfile::TempDir::new().unwrap();
        let index = Index::open(&directory.path().join("store"), &Steps::default()).unwrap();
        let panicked = index.guarded::<()>(|| panic!("page cache")).unwrap_err();
        assert!(matches!(&panicked, StoreError::Corrupt { reason, .. } if reason == "page cache"));
        let corrupt = index.guarded::<()>(|| Err(sled::Error::Corruption { at: None, bt: () })).unwrap_err();
        assert!(matches!(corrupt, StoreError::Corrupt { .. }));
        let bug = index.guarded::<()>(|| Err(sled::Error::ReportableBug("b".to_owned()))).unwrap_err();
        assert!(matches!(bug, StoreError::Corrupt { .. }));
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let full = index.guarded::<()>(|| Err(sled::Error::Io(full))).unwrap_err();
        assert!(full.is_environment() && matches!(full, StoreError::Full { .. }));
    }

    #[test]
    fn an_entry_under_a_foreign_key_is_noticed() {
        let bytes = include_bytes!("../../../../calibrations/data/golden/calibration-v1.fcal").to_vec();
        let key = CalibrationKey::of(&Record::decode(&bytes).unwrap()).to_bytes();
        let entry = Entry { key: key.clone(), revision: Revision(1), bytes };
        assert_eq!(checked(&entry), Ok(()));
        let foreign = Entry { key: [b"x".as_slice(), &key].concat(), ..entry };
        assert!(checked(&foreign).unwrap_err().to_string().contains("another calibration's key"));
    }
}
