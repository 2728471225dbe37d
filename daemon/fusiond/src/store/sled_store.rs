//! The real store: record files and an index in sled.

use std::path::Path;

use fusion_calibrations::record::{Record, RecordError};

use super::error::StoreError;
use super::export;
use super::files::{RecordFiles, file_name};
use super::index::{Change, Entry, Index};
use super::key::{CalibrationKey, Scope};
use super::lock::StoreLock;
use super::manifest::{IndexState, Manifest};
use super::open::{Differences, Opened, Options, Recovered, Site, create_directories, name_of};
use super::paths::{Paths, directory_bytes};
use super::report::{Exported, Health, Rebuilt, Trimmed, VerifyReport};
use super::retention;
use super::steps::Steps;
use super::{CalibrationStore, Identity, Revision, Stored};

/// Calibrations on the disk. See the [module](super) for what is kept where and what an acknowledgement means.
pub struct SledStore {
    paths: Paths,
    files: RecordFiles,
    steps: Steps,
    /// `None` after a failure of the environment: opened anew by the next write.
    index: Option<Index>,
    state: IndexState,
    /// The largest revision that was ever used, also by a commit that failed.
    used: Revision,
    identity: Option<Identity>,
    /// Whether a trimming was interrupted, so that old records or their samples may be left in one of the two places.
    untrimmed: bool,
    /// Why nothing is written any more.
    stopped: Option<String>,
    _lock: StoreLock,
}

impl SledStore {
    /// Opens the store of a state directory, repairing what the last process left behind.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process has it open, [`StoreError::ReadOnly`] or [`StoreError::Full`] if it can't
    /// be written. Damage is no error: see [`Opened::health`].
    pub fn open(state: &Path) -> Result<Opened, StoreError> {
        Self::open_with(Options { state: state.to_owned(), probe: None })
    }

    /// As [`Self::open`], with a probe.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(options: Options) -> Result<Opened, StoreError> {
        let paths = Paths { state: options.state };
        let steps = Steps(options.probe);
        create_directories(&paths)?;
        let lock = StoreLock::acquire(&paths.lock())?;
        let files = RecordFiles::new(paths.calibrations(), steps.clone());
        let recovered = Site { paths: &paths, files: &files, steps: &steps }.recover()?;
        let mut store = Self {
            paths,
            files,
            steps,
            index: None,
            state: IndexState::default(),
            used: Revision(0),
            identity: None,
            untrimmed: false,
            stopped: None,
            _lock: lock,
        };
        let (health, found) = store.install(recovered)?;
        Ok(Opened {
            store,
            health,
            adopted: found.adopted,
            restored_files: found.restored,
            newer_records: found.newer,
            damaged_files: found.damaged.len() as u64,
        })
    }

    /// Takes over a recovered index.
    fn install(&mut self, recovered: Recovered) -> Result<(Health, Differences), StoreError> {
        let Recovered { index, state, used, identity, health, found, clean } = recovered;
        self.index = Some(index);
        self.state = state;
        self.used = used;
        self.identity = identity;
        if !clean {
            if let Some(identity) = self.identity.clone() {
                self.keep_identity(&identity)?;
            }
            self.untrimmed = true;
            self.trim_all()?;
        }
        self.write_manifest(false)?;
        Ok((health, found))
    }

    fn site(&self) -> Site<'_> {
        Site { paths: &self.paths, files: &self.files, steps: &self.steps }
    }

    fn index(&self) -> Result<&Index, StoreError> {
        let closed =
            || StoreError::Stopped { reason: "the index was closed after a failed write".to_owned() };
        self.index.as_ref().ok_or_else(closed)
    }

    /// Makes sure that writing is possible, opening the index anew after a failure of the environment: sled refuses everything
    /// once a write has failed, also when there is room again.
    fn ready(&mut self) -> Result<(), StoreError> {
        if let Some(reason) = &self.stopped {
            return Err(StoreError::Stopped { reason: reason.clone() });
        }
        if self.index.is_none() {
            let recovered = self.site().recover()?;
            let (health, _) = self.install(recovered)?;
            tracing::info!("opened the store again after a failed write: {health:?}");
        }
        Ok(())
    }

    /// Notes a failure of the index: damage stops all writing, anything else closes the index until the next write.
    fn after_index<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &result {
            tracing::error!("{error}");
            if matches!(error, StoreError::Corrupt { .. }) {
                self.stopped = Some(error.to_string());
            }
            // Dropping it flushes, which can panic on a broken disk.
            let index = self.index.take();
            let _ = super::panics::caught(move || drop(index));
        }
        result
    }

    fn change(&mut self, changes: &[Change<'_>], state: IndexState) -> Result<(), StoreError> {
        let result = self.index()?.apply(changes, state);
        self.after_index(result)?;
        self.state = state;
        Ok(())
    }

    fn next_state(&self) -> IndexState {
        IndexState { generation: self.state.generation + 1, ..self.state }
    }

    fn write_manifest(&self, clean: bool) -> Result<(), StoreError> {
        let manifest = Manifest { clean, ..Manifest::new(self.state, self.identity.as_ref()) };
        manifest.write(&self.paths.manifest(), &self.steps)
    }

    fn keep_identity(&mut self, identity: &Identity) -> Result<(), StoreError> {
        let state = self.next_state();
        let result = self.index()?.put_identity(identity, state);
        self.after_index(result)?;
        self.state = state;
        self.identity = Some(identity.clone());
        Ok(())
    }

    fn trim_all(&mut self) -> Result<Trimmed, StoreError> {
        let mut entries = self.index()?.scan(&[])?;
        let mut total = Trimmed::default();
        while let Some(first) = entries.first() {
            let key = first.key.clone();
            let end = entries.iter().position(|entry| entry.key != key).unwrap_or(entries.len());
            let history: Vec<Entry> = entries.drain(..end).collect();
            let trimmed = self.trim_history(history)?;
            total.removed += trimmed.removed;
            total.stripped += trimmed.stripped;
        }
        self.untrimmed = false;
        Ok(total)
    }

    /// Applies the limits after a commit to a key.
    fn trim_key(&mut self, key: &[u8]) -> Result<(), StoreError> {
        if self.untrimmed {
            return self.trim_all().map(|_| ());
        }
        self.untrimmed = true;
        let history = self.index()?.history(key)?;
        self.trim_history(history)?;
        self.untrimmed = false;
        Ok(())
    }

    /// Applies the limits to the records of one key, given oldest first. Files go first: what is left of an interrupted
    /// trimming is an entry without a file, which the next opening restores and trims again.
    fn trim_history(&mut self, history: Vec<Entry>) -> Result<Trimmed, StoreError> {
        // Records of a newer fusiond are neither counted nor touched.
        let mut readable: Vec<(Entry, Record)> = Vec::with_capacity(history.len());
        for entry in history {
            if let Ok(record) = Record::decode(&entry.bytes) {
                readable.push((entry, record));
            }
        }
        let (remove, strip) = retention::plan(readable.len());
        let mut changes = Vec::new();
        let mut trimmed = Trimmed::default();
        let mut stripped = Vec::new();
        for (position, (entry, mut record)) in readable.into_iter().take(remove + strip).enumerate() {
            let name = name_of(&entry);
            let Entry { key, revision, .. } = entry;
            if position < remove {
                self.files.remove(&name)?;
                changes.push(Change::Remove { key, revision });
                trimmed.removed += 1;
            } else if !record.samples.is_empty() {
                record.samples.clear();
                let bytes = record.encode().map_err(StoreError::Unstorable)?;
                self.files.write(&name, &bytes)?;
                stripped.push((key, revision, bytes));
                trimmed.stripped += 1;
            }
        }
        let puts = stripped.iter().map(|(key, revision, bytes)| Change::Put {
            key: key.clone(),
            revision: *revision,
            bytes,
        });
        changes.extend(puts);
        if changes.is_empty() {
            return Ok(trimmed);
        }
        let state = IndexState { records: self.state.records - trimmed.removed, ..self.next_state() };
        self.change(&changes, state)?;
        self.write_manifest(false)?;
        Ok(trimmed)
    }

    fn stored(&self, entries: Vec<Entry>) -> Result<Vec<Stored>, StoreError> {
        let mut stored = Vec::with_capacity(entries.len());
        for entry in entries {
            match Record::decode(&entry.bytes) {
                Ok(record) => stored.push(Stored { revision: entry.revision, record }),
                Err(RecordError::Newer { .. } | RecordError::Kind { .. }) => {}
                Err(source) => {
                    let place = format!("record {} in {}", entry.revision, self.paths.index().display());
                    return Err(StoreError::Damaged { place, source });
                }
            }
        }
        Ok(stored)
    }

    /// Writes down that everything was closed in order, so that the next opening needs no copy.
    fn close(&mut self) -> Result<(), StoreError> {
        if self.stopped.is_some() {
            return Ok(());
        }
        let Some(index) = self.index.take() else { return Ok(()) };
        match super::panics::caught(move || drop(index)) {
            Ok(()) => self.write_manifest(!self.untrimmed),
            Err(reason) => Err(StoreError::Corrupt { path: self.paths.index(), reason }),
        }
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!("closing the store: {error}");
        }
    }
}

impl CalibrationStore for SledStore {
    fn commit(&mut self, record: &Record) -> Result<Revision, StoreError> {
        self.ready()?;
        let bytes = record.encode().map_err(StoreError::Unstorable)?;
        let key = CalibrationKey::of(record);
        let revision = Revision(self.used.0 + 1);
        self.used = revision;
        let name = file_name(&key, revision);
        let key = key.to_bytes();
        let state =
            IndexState { last_revision: revision.0, records: self.state.records + 1, ..self.next_state() };
        let put = Change::Put { key: key.clone(), revision, bytes: &bytes };
        let kept = self.files.write(&name, &bytes).and_then(|()| self.change(&[put], state));
        if let Err(error) = kept {
            // Best effort: a file that stays is taken in when the store is opened next.
            let _ = self.files.remove(&name);
            return Err(error);
        }
        if let Err(error) = self.write_manifest(false) {
            self.untrimmed = true;
            return Err(error);
        }
        if let Err(error) = self.trim_key(&key) {
            // The record itself is durable.
            tracing::warn!("old records of {revision} stay for now: {error}");
        }
        Ok(revision)
    }

    fn latest(&self, scope: Scope<'_>) -> Result<Vec<Stored>, StoreError> {
        self.stored(self.index()?.latest(&scope.to_bytes())?)
    }

    fn history(&self, key: &CalibrationKey) -> Result<Vec<Stored>, StoreError> {
        self.stored(self.index()?.history(&key.to_bytes())?)
    }

    fn revision(&self) -> Revision {
        self.state.last()
    }

    fn last_identity(&self) -> Result<Option<Identity>, StoreError> {
        if self.identity.is_some() {
            return Ok(self.identity.clone());
        }
        let newest = self.latest(Scope::All)?.into_iter().max_by_key(|stored| stored.revision);
        Ok(newest.map(|stored| Identity { chip: stored.record.chip, engine: stored.record.engine }))
    }

    fn set_identity(&mut self, identity: &Identity) -> Result<(), StoreError> {
        if self.identity.as_ref() == Some(identity) {
            return Ok(());
        }
        self.ready()?;
        self.keep_identity(identity)?;
        self.write_manifest(false)
    }

    fn trim(&mut self) -> Result<Trimmed, StoreError> {
        self.ready()?;
        self.trim_all()
    }

    fn verify(&self) -> Result<VerifyReport, StoreError> {
        let mut report = VerifyReport {
            last_revision: self.state.last(),
            index_bytes: bytes_of(&self.paths.index())?,
            files_bytes: bytes_of(&self.paths.calibrations())?,
            set_aside: self.paths.set_aside()?,
            ..VerifyReport::default()
        };
        let contents = self.index().and_then(Index::contents).unwrap_or_else(|error| {
            report.damaged_entries.push(error.to_string());
            super::index::Contents::default()
        });
        report.current = contents.current;
        report.records = contents.entries.len() as u64;
        report.newer = contents.newer;
        report.damaged_entries.extend(contents.damage);
        compare(&contents.entries, &self.files, &mut report)?;
        Ok(report)
    }

    fn rebuild(&mut self) -> Result<Rebuilt, StoreError> {
        let contents = self.index().and_then(Index::contents).unwrap_or_default();
        let mut rebuilt = Rebuilt::default();
        let listing = self.files.list()?;
        for entry in &contents.entries {
            rebuilt.restored_files += u64::from(self.repair_file(entry, listing.files.get(&entry.revision))?);
        }
        let manifest = Manifest::new(self.state, self.identity.as_ref());
        let index = self.index.take();
        let _ = super::panics::caught(move || drop(index));
        let (directory, aside) = (self.paths.index(), self.paths.aside("replaced"));
        if directory.exists() {
            std::fs::rename(&directory, &aside)
                .map_err(|error| StoreError::from_io("renaming", &directory, error))?;
            rebuilt.set_aside = Some(aside);
        }
        let recovered = self.site().rebuild(Some(&manifest), "asked for".to_owned(), None)?;
        self.stopped = None;
        let (_, found) = self.install(recovered)?;
        rebuilt.records = self.state.records;
        rebuilt.newer = found.newer;
        rebuilt.damaged_files = found.damaged;
        Ok(rebuilt)
    }

    fn export(&self, to: &Path) -> Result<Exported, StoreError> {
        export::write(to, &self.latest(Scope::All)?)
    }
}

impl SledStore {
    /// Writes the record file of a good entry anew if it is missing or damaged.
    fn repair_file(&self, entry: &Entry, name: Option<&String>) -> Result<bool, StoreError> {
        if super::index::checked(entry).is_err() {
            return Ok(false);
        }
        if let Some(name) = name {
            if matches!(
                self.files.read(name)?,
                (_, Ok(_) | Err(RecordError::Newer { .. } | RecordError::Kind { .. }))
            ) {
                return Ok(false);
            }
            self.files.set_aside(name)?;
        }
        self.files.write(&name_of(entry), &entry.bytes)?;
        Ok(true)
    }
}

fn bytes_of(directory: &Path) -> Result<u64, StoreError> {
    directory_bytes(directory).map_err(|error| StoreError::from_io("measuring", directory, error))
}

/// Holds the entries of the index against the record files.
fn compare(entries: &[Entry], files: &RecordFiles, report: &mut VerifyReport) -> Result<(), StoreError> {
    let mut listing = files.list()?;
    report.files = listing.files.len() as u64;
    report.foreign_files = std::mem::take(&mut listing.foreign);
    for entry in entries {
        let Some(name) = listing.files.remove(&entry.revision) else {
            report.entries_without_file.push(entry.revision);
            continue;
        };
        match files.read(&name)? {
            (bytes, _) if bytes == entry.bytes => {}
            (_, Ok(_)) => report.damaged_files.push(format!("{name}: it differs from the index")),
            (_, Err(error)) => report.damaged_files.push(format!("{name}: {error}")),
        }
    }
    for (_, name) in listing.files {
        match files.read(&name)?.1 {
            Ok(_) => report.files_without_entry.push(name),
            Err(RecordError::Newer { .. } | RecordError::Kind { .. }) => report.newer += 1,
            Err(error) => report.damaged_files.push(format!("{name}: {error}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_while_running_stops_all_writing_until_the_index_is_rebuilt() {
        let golden = include_bytes!("../../../../calibrations/data/golden/calibration-v1.fcal");
        let record = Record::decode(golden).unwrap();
        let state = tempfile::TempDir::new().unwrap();
        let mut store = SledStore::open(state.path()).unwrap().store;
        store.commit(&record).unwrap();
        let damage = StoreError::Corrupt { path: state.path().to_owned(), reason: "a bad page".to_owned() };
        store.after_index::<()>(Err(damage)).unwrap_err();

        let error = store.commit(&record).unwrap_err();
        assert!(matches!(&error, StoreError::Stopped { reason } if reason.contains("a bad page")), "{error}");
        assert!(
            store
                .set_identity(&Identity { chip: record.chip.clone(), engine: record.engine.clone() })
                .is_err()
        );
        assert!(store.latest(Scope::All).is_err());
        assert!(!store.verify().unwrap().is_sound());

        assert_eq!(store.rebuild().unwrap().records, 1);
        assert_eq!(store.commit(&record).unwrap(), Revision(2));
        drop(store);
        assert_eq!(SledStore::open(state.path()).unwrap().health, Health::Healthy);
    }
}
