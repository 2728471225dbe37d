//! Record files: the truth that the index is rebuilt from.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fusion_calibrations::record::{FILE_EXTENSION, HEADER_BYTES, MAX_RECORD_BYTES, Record, RecordError};

use super::Revision;
use super::error::{At, StoreError};
use super::key::CalibrationKey;
use super::paths::sync_directory;
use super::steps::{Step, Steps};

/// The directory of record files.
pub(super) struct RecordFiles {
    directory: PathBuf,
    steps: Steps,
}

/// What is in the directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// File names by revision.
    pub(super) files: BTreeMap<Revision, String>,
    /// Names that are no record file's, or a second file of a revision.
    pub(super) foreign: Vec<String>,
}

/// The name of a record file: the revision, which alone makes it unique and a listing follow time, then what a person looks for.
pub(super) fn file_name(key: &CalibrationKey, revision: Revision) -> String {
    let (shape, layer) = (key.shape, key.shape.layer());
    let format = layer.format().to_string().replace('/', "g");
    let [thermal, memory, power, low] = key.conditions.to_key();
    let chip: String = key.chip.chars().take(96).collect();
    format!(
        "{:010}-{}x{}x{}-{format}-{}-{thermal}{memory}{power}{low}-{chip}.{FILE_EXTENSION}",
        revision.0,
        shape.rows(),
        layer.inputs(),
        layer.outputs(),
        layer.layout(),
    )
}

fn revision_of(name: &str) -> Option<Revision> {
    let stem = name.strip_suffix(FILE_EXTENSION)?.strip_suffix('.')?;
    stem.split_once('-')?.0.parse().ok().map(Revision)
}

impl RecordFiles {
    pub(super) fn new(directory: PathBuf, steps: Steps) -> Self {
        Self { directory, steps }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Removes what a killed writer left under a temporary name: it was never acknowledged.
    pub(super) fn remove_unfinished(&self) -> Result<(), StoreError> {
        for entry in std::fs::read_dir(&self.directory).at("reading", &self.directory)? {
            let path = entry.at("reading", &self.directory)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with('.') && name.ends_with(TEMPORARY) {
                std::fs::remove_file(&path).at("removing", &path)?;
            }
        }
        Ok(())
    }

    pub(super) fn list(&self) -> Result<Listing, StoreError> {
        let mut listing = Listing::default();
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory).at("reading", &self.directory)? {
            names.push(entry.at("reading", &self.directory)?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        for name in names {
            match revision_of(&name) {
                Some(revision) if !listing.files.contains_key(&revision) => {
                    listing.files.insert(revision, name);
                }
                _ => listing.foreign.push(name),
            }
        }
        Ok(listing)
    }

    /// The bytes of a file, and the record if they are one.
    pub(super) fn read(&self, name: &str) -> Result<(Vec<u8>, Result<Record, RecordError>), StoreError> {
        let path = self.path(name);
        let length = std::fs::metadata(&path).at("reading", &path)?.len();
        // Nothing that large was ever written by a store; reading it whole could exhaust memory.
        if length > 4 * MAX_RECORD_BYTES as u64 {
            return Ok((
                Vec::new(),
                Err(RecordError::TooLarge { bytes: usize::try_from(length).unwrap_or(usize::MAX) }),
            ));
        }
        let bytes = std::fs::read(&path).at("reading", &path)?;
        let record = Record::decode(&bytes);
        Ok((bytes, record))
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        debug_assert!(bytes.len() >= HEADER_BYTES);
        write_durably(&self.path(name), bytes, &self.steps)
    }

    /// Removes a file; it may be gone already.
    pub(super) fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name);
        self.steps.pass(Step::FileRemoval).at("removing", &path)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("removing", &path),
            _ => Ok(()),
        }
    }

    /// Gives a damaged file another name, so that nothing is overwritten.
    pub(super) fn set_aside(&self, name: &str) -> Result<(), StoreError> {
        let (from, to) = (self.path(name), self.path(&format!("{name}.damaged")));
        std::fs::rename(&from, to).at("renaming", &from)
    }
}

const TEMPORARY: &str = ".tmp";

/// Replaces a file as one step: a reader or a crash sees the old bytes or the new ones, and the new ones are durable on return.
pub(super) fn write_durably(path: &Path, bytes: &[u8], steps: &Steps) -> Result<(), StoreError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = directory.join(format!(".{name}{TEMPORARY}"));
    let written = (|| {
        steps.pass(Step::FileBegun)?;
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        steps.pass(Step::FileWritten)?;
        std::fs::rename(&temporary, path)?;
        steps.pass(Step::FileRenamed)?;
        sync_directory(directory)?;
        steps.pass(Step::FileDurable)
    })();
    if written.is_err() {
        // Best effort: what stays is removed when the store is opened next.
        let _ = std::fs::remove_file(&temporary);
    }
    written.at("writing", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_read_from_names() {
        assert_eq!(revision_of("0000000012-1x2x3-f32-nk-1111-chip.fcal"), Some(Revision(12)));
        assert_eq!(revision_of("0000000012-1x2x3.fcal.damaged"), None);
        assert_eq!(revision_of("notes.fcal"), None);
    }
}
