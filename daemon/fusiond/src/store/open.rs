//! Opening the store, whatever the last process left behind.

use std::path::{Path, PathBuf};

use fusion_calibrations::record::RecordError;

use super::error::{At, StoreError};
use super::files::{Listing, RecordFiles, file_name};
use super::index::{Change, Contents, Entry, Index, OpenError, remove_unfinished_snapshots};
use super::key::CalibrationKey;
use super::manifest::{FORMAT, Found, IndexState, Manifest};
use super::panics::caught;
use super::paths::{Paths, copy_directory, create_private, directory_bytes};
use super::report::Health;
use super::sled_store::SledStore;
use super::steps::{Probe, Steps};
use super::{Identity, Revision, Stored};

/// An index above this isn't copied before it is opened after a crash: the record files hold everything anyway.
const LARGEST_COPY_BYTES: u64 = 256 << 20;
/// Records put into the index by one transaction while rebuilding.
const BATCH: usize = 64;

/// How to open the store.
#[derive(Clone, Default)]
pub struct Options {
    /// The state directory; created, for this user only, if it is missing.
    pub state: PathBuf,
    /// Called at every step of every write. For tests.
    pub probe: Option<Probe>,
}

/// An open store, and how it was found.
pub struct Opened {
    /// The store.
    pub store: SledStore,
    /// Whether something was wrong.
    pub health: Health,
    /// Record files without an entry that were taken into the index: written by a process that was killed before it could acknowledge.
    pub adopted: u64,
    /// Record files that were written anew from the index.
    pub restored_files: u64,
    /// Records of a newer fusiond: kept, neither served nor changed.
    pub newer_records: u64,
    /// Record files that can't be read: kept, left out.
    pub damaged_files: u64,
}

/// The state of an index that may be used.
pub(super) struct Recovered {
    pub(super) index: Index,
    pub(super) state: IndexState,
    /// The largest revision that was ever used.
    pub(super) used: Revision,
    pub(super) identity: Option<Identity>,
    pub(super) health: Health,
    pub(super) found: Differences,
    /// Whether it was closed in order and nothing had to be repaired.
    pub(super) clean: bool,
}

/// What was different between index and record files.
#[derive(Debug, Default)]
pub(super) struct Differences {
    pub(super) adopted: u64,
    pub(super) restored: u64,
    pub(super) newer: u64,
    pub(super) damaged: Vec<String>,
}

/// Everything that recovery works on.
pub(super) struct Site<'a> {
    pub(super) paths: &'a Paths,
    pub(super) files: &'a RecordFiles,
    pub(super) steps: &'a Steps,
}

impl Site<'_> {
    /// Opens the index, or sets it aside and builds it anew, and takes in what it lacks.
    pub(super) fn recover(&self) -> Result<Recovered, StoreError> {
        self.remove_unfinished()?;
        let (manifest, complaint) = match Manifest::read(&self.paths.manifest())? {
            Found::Nothing => (None, None),
            Found::Manifest(manifest) => (Some(*manifest), None),
            Found::Newer { format } => {
                let reason = format!(
                    "the store was written by a newer fusiond (layout {format}, this one knows {FORMAT})"
                );
                (None, Some(reason))
            }
            Found::Unreadable { reason } => {
                tracing::warn!("ignoring {}: {reason}", self.paths.manifest().display());
                (None, None)
            }
        };
        let existed = self.paths.index().exists();
        let clean = manifest.as_ref().is_some_and(|manifest| manifest.clean);
        let copy = if existed && !clean { self.copy_aside() } else { None };
        let opened = match complaint {
            Some(reason) => Err(OpenError::Damaged(reason)),
            None => self.open_index(manifest.as_ref(), existed),
        };
        let mut recovered = match opened {
            Ok((index, contents)) => self.reconcile(index, &contents, manifest.as_ref())?,
            Err(OpenError::Store(error)) => return Err(error),
            Err(OpenError::Damaged(reason)) => {
                tracing::error!("the index of the store is unusable ({reason}): rebuilding it");
                let quarantined = if existed { Some(self.quarantine(copy.as_deref())?) } else { None };
                return self.rebuild(manifest.as_ref(), reason, quarantined);
            }
        };
        recovered.clean = clean && recovered.health == Health::Healthy && recovered.found.restored == 0;
        if let Some(copy) = copy {
            // It was made by this or an interrupted opening, and the index it is a copy of turned out to be sound.
            std::fs::remove_dir_all(&copy).at("removing", &copy)?;
        }
        Ok(recovered)
    }

    fn remove_unfinished(&self) -> Result<(), StoreError> {
        self.files.remove_unfinished()?;
        remove_unfinished_snapshots(&self.paths.index())
    }

    /// Keeps the bytes as the crash left them: sled's own recovery cuts damaged files short. A copy of an interrupted opening is
    /// closer to the crash than the files are now, so it stays. Failing is no reason not to open.
    fn copy_aside(&self) -> Option<PathBuf> {
        let state = &self.paths.state;
        let earlier = std::fs::read_dir(state).ok()?.filter_map(Result::ok).map(|entry| entry.path());
        let mut kept = None;
        for path in earlier {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("store.copying-") {
                let _ = std::fs::remove_dir_all(&path);
            } else if name.starts_with("store.unclean-") {
                kept = Some(path);
            }
        }
        if kept.is_some() {
            return kept;
        }
        let index = self.paths.index();
        if directory_bytes(&index).ok()? > LARGEST_COPY_BYTES {
            return None;
        }
        let (copying, copy) = (self.paths.aside("copying"), self.paths.aside("unclean"));
        match copy_directory(&index, &copying).and_then(|()| std::fs::rename(&copying, &copy)) {
            Ok(()) => Some(copy),
            Err(error) => {
                tracing::warn!("opening {} without a copy of it: {error}", index.display());
                let _ = std::fs::remove_dir_all(&copying);
                None
            }
        }
    }

    /// Opens the index and holds it against the manifest.
    fn open_index(&self, manifest: Option<&Manifest>, existed: bool) -> Result<(Index, Contents), OpenError> {
        let expected = manifest.map(|manifest| manifest.state).unwrap_or_default();
        if !existed && expected.records > 0 {
            return Err(OpenError::Damaged(format!(
                "it is missing, {} records should be in it",
                expected.records
            )));
        }
        let index = Index::open(&self.paths.index(), self.steps)?;
        let checked = check(&index, expected).map_err(|error| match error {
            CheckError::Store(StoreError::Corrupt { reason, .. }) | CheckError::Damaged(reason) => {
                OpenError::Damaged(reason)
            }
            CheckError::Store(StoreError::Io { source, .. }) => OpenError::Damaged(source.to_string()),
            CheckError::Store(error) => OpenError::Store(error),
        });
        let contents = match checked {
            Ok(contents) => contents,
            Err(error) => {
                // Closing flushes, which can panic on what was just found damaged.
                let _ = caught(move || drop(index));
                return Err(error);
            }
        };
        Ok((index, contents))
    }

    /// Sets the index aside. With a copy from before it was opened, that copy is what a person should look at first.
    fn quarantine(&self, copy: Option<&Path>) -> Result<PathBuf, StoreError> {
        let index = self.paths.index();
        let target = self.paths.aside("corrupt");
        let opened =
            copy.map_or_else(|| target.clone(), |_| target.with_extension(opened_extension(&target)));
        std::fs::rename(&index, &opened).at("renaming", &index)?;
        if let Some(copy) = copy {
            std::fs::rename(copy, &target).at("renaming", copy)?;
        }
        let manifest = self.paths.manifest();
        if manifest.exists() {
            // The next manifest replaces it, and it may be of a newer fusiond.
            let kept = target.join("store-manifest.json");
            std::fs::copy(&manifest, &kept).at("writing", &kept)?;
        }
        Ok(target)
    }

    /// Takes record files that the index lacks into it, and writes files that are missing.
    fn reconcile(
        &self,
        index: Index,
        contents: &Contents,
        manifest: Option<&Manifest>,
    ) -> Result<Recovered, StoreError> {
        let listing = self.files.list()?;
        let mut state = index.state()?.unwrap_or_default();
        let acknowledged =
            state.last().max(manifest.map(|manifest| manifest.state.last()).unwrap_or_default());
        let known: std::collections::BTreeSet<Revision> =
            contents.entries.iter().map(|entry| entry.revision).collect();
        let missing = listing.files.iter().filter(|(revision, _)| !known.contains(revision));
        let (entries, mut found) = self.read_files(missing)?;
        found.newer += contents.newer;
        found.adopted = entries.len() as u64;
        let overdue = entries.iter().filter(|entry| entry.revision <= acknowledged).count() as u64;
        if !entries.is_empty() {
            state.records += found.adopted;
            state.last_revision =
                entries.iter().map(|entry| entry.revision).max().unwrap_or_default().max(state.last()).0;
            state.generation += 1;
            put_all(&index, &entries, state)?;
        }
        found.restored = self.restore_files(&contents.entries, &listing)?;
        let health = if overdue == 0 {
            Health::Healthy
        } else {
            Health::Degraded {
                reason: format!("the index lacked {overdue} records that have record files"),
                quarantined: None,
                rebuilt: overdue,
            }
        };
        let identity = match index.identity()? {
            Some(identity) => Some(identity),
            None => kept_identity(manifest),
        };
        let used = last_used(&listing, state.last().max(acknowledged));
        Ok(Recovered { index, state, used, identity, health, found, clean: false })
    }

    /// Writes the record file of every entry that has none.
    pub(super) fn restore_files(&self, entries: &[Entry], listing: &Listing) -> Result<u64, StoreError> {
        let mut restored = 0;
        for entry in entries.iter().filter(|entry| !listing.files.contains_key(&entry.revision)) {
            self.files.write(&name_of(entry), &entry.bytes)?;
            restored += 1;
        }
        Ok(restored)
    }

    /// Builds a new index from the record files.
    pub(super) fn rebuild(
        &self,
        manifest: Option<&Manifest>,
        reason: String,
        quarantined: Option<PathBuf>,
    ) -> Result<Recovered, StoreError> {
        let expected = manifest.map(|manifest| manifest.state).unwrap_or_default();
        let listing = self.files.list()?;
        let (entries, found) = self.read_files(listing.files.iter())?;
        let index = Index::open(&self.paths.index(), self.steps).map_err(|error| match error {
            OpenError::Store(error) => error,
            OpenError::Damaged(reason) => StoreError::Corrupt { path: self.paths.index(), reason },
        })?;
        let newest = entries.iter().map(|entry| entry.revision).max().unwrap_or_default();
        let state = IndexState {
            generation: expected.generation + 1,
            last_revision: newest.max(expected.last()).0,
            records: entries.len() as u64,
        };
        put_all(&index, &entries, state)?;
        let identity = kept_identity(manifest);
        let health = Health::Degraded { reason, quarantined, rebuilt: state.records };
        let used = last_used(&listing, state.last());
        Ok(Recovered { index, state, used, identity, health, found, clean: false })
    }

    fn read_files<'b>(
        &self,
        files: impl Iterator<Item = (&'b Revision, &'b String)>,
    ) -> Result<(Vec<Entry>, Differences), StoreError> {
        let (mut entries, mut found) = (Vec::new(), Differences::default());
        for (revision, name) in files {
            match self.files.read(name)? {
                (bytes, Ok(record)) => {
                    let key = CalibrationKey::of(&record).to_bytes();
                    entries.push(Entry { key, revision: *revision, bytes });
                }
                (_, Err(RecordError::Newer { .. } | RecordError::Kind { .. })) => found.newer += 1,
                (_, Err(error)) => {
                    tracing::warn!("leaving out the record file {name}: {error}");
                    found.damaged.push(format!("{name}: {error}"));
                }
            }
        }
        Ok((entries, found))
    }
}

fn opened_extension(target: &Path) -> String {
    let extension = target.extension().unwrap_or_default().to_string_lossy();
    format!("{extension}-after-opening")
}

/// Only the last transaction carries the real state: a rebuilding that is interrupted leaves an index that its manifest disowns.
fn put_all(index: &Index, entries: &[Entry], state: IndexState) -> Result<(), StoreError> {
    let before = index.state()?.unwrap_or_default();
    let mut batches = entries.chunks(BATCH).peekable();
    while let Some(batch) = batches.next() {
        let changes: Vec<Change<'_>> = batch
            .iter()
            .map(|entry| Change::Put {
                key: entry.key.clone(),
                revision: entry.revision,
                bytes: &entry.bytes,
            })
            .collect();
        index.apply(&changes, if batches.peek().is_some() { before } else { state })?;
    }
    if entries.is_empty() { index.apply(&[], state) } else { Ok(()) }
}

fn last_used(listing: &Listing, known: Revision) -> Revision {
    listing.files.keys().next_back().copied().unwrap_or_default().max(known)
}

fn kept_identity(manifest: Option<&Manifest>) -> Option<Identity> {
    manifest.and_then(|manifest| manifest.identity.clone()).and_then(super::manifest::StoredIdentity::read)
}

/// The name of an entry's record file, also where the key is a newer fusiond's.
pub(super) fn name_of(entry: &Entry) -> String {
    CalibrationKey::from_bytes(&entry.key).map_or_else(
        || format!("{:010}-unknown.{}", entry.revision.0, fusion_calibrations::record::FILE_EXTENSION),
        |key| file_name(&key, entry.revision),
    )
}

enum CheckError {
    Damaged(String),
    Store(StoreError),
}

impl From<StoreError> for CheckError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Reads the whole index and holds it against what the manifest expects.
fn check(index: &Index, expected: IndexState) -> Result<Contents, CheckError> {
    if let Some(format) = index.format()?.filter(|format| *format > FORMAT) {
        return Err(CheckError::Damaged(format!(
            "it was written by a newer fusiond (layout {format}, this one knows {FORMAT})"
        )));
    }
    let state = index.state()?.unwrap_or_default();
    if state.generation < expected.generation {
        let found = if index.was_recovered() { "an older state" } else { "nothing" };
        return Err(CheckError::Damaged(format!(
            "it opened with {found} (change {} of {}, {} of {} records): acknowledged writes are missing from it",
            state.generation, expected.generation, state.records, expected.records
        )));
    }
    let contents = index.contents()?;
    if contents.entries.len() as u64 != state.records {
        return Err(CheckError::Damaged(format!(
            "it holds {} records and says that it has {}",
            contents.entries.len(),
            state.records
        )));
    }
    match contents.damage.as_slice() {
        [] => Ok(contents),
        [first, rest @ ..] => Err(CheckError::Damaged(format!("{first}, and {} more", rest.len()))),
    }
}

/// The current records of a state directory that may not be written, read from its record files alone.
///
/// # Errors
/// [`StoreError`] if the directory can't be read; files that are no records are left out.
pub fn read_record_files(state: &Path) -> Result<Vec<Stored>, StoreError> {
    let files = RecordFiles::new(Paths { state: state.to_owned() }.calibrations(), Steps::default());
    let mut current = std::collections::BTreeMap::new();
    for (revision, name) in files.list()?.files {
        if let (_, Ok(record)) = files.read(&name)? {
            current.insert(CalibrationKey::of(&record).to_bytes(), Stored { revision, record });
        }
    }
    Ok(current.into_values().collect())
}

/// Creates the directories of a store.
pub(super) fn create_directories(paths: &Paths) -> Result<(), StoreError> {
    create_private(&paths.state)?;
    create_private(&paths.calibrations())
}
