//! What the store says of itself.

use std::path::PathBuf;

use super::Revision;

/// How the store was found when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Everything that was acknowledged is there.
    Healthy,
    /// Something was wrong; it was repaired from the record files.
    Degraded {
        /// What was wrong.
        reason: String,
        /// Where the damaged index is now; `None` if there was none to keep.
        quarantined: Option<PathBuf>,
        /// Records that were taken from record files.
        rebuilt: u64,
    },
}

/// A directory that was set aside. fusiond never deletes one: that is up to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The directory.
    pub path: PathBuf,
    /// Bytes of its files.
    pub bytes: u64,
}

/// The result of comparing the index with the record files, reading every byte of both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Calibrations that are current.
    pub current: u64,
    /// Records in the history, the current ones among them.
    pub records: u64,
    /// Record files.
    pub files: u64,
    /// The newest revision.
    pub last_revision: Revision,
    /// Entries of the index whose key or value can't be read or don't belong together, each with the reason.
    pub damaged_entries: Vec<String>,
    /// Record files that can't be read or differ from the index, each with the reason.
    pub damaged_files: Vec<String>,
    /// Record files without an entry in the index.
    pub files_without_entry: Vec<String>,
    /// Entries of the index without a record file.
    pub entries_without_file: Vec<Revision>,
    /// Records of a newer fusiond, in the index or in files. They are kept as they are.
    pub newer: u64,
    /// Other files in the directory of record files.
    pub foreign_files: Vec<String>,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Bytes of the record files.
    pub files_bytes: u64,
    /// Directories that were set aside, with their sizes.
    pub set_aside: Vec<SetAside>,
}

impl VerifyReport {
    /// Whether index and record files agree and all of it can be read. Records of a newer fusiond are no fault.
    pub fn is_sound(&self) -> bool {
        self.damaged_entries.is_empty()
            && self.damaged_files.is_empty()
            && self.files_without_entry.is_empty()
            && self.entries_without_file.is_empty()
    }
}

/// What building the index anew did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Records that are in the new index.
    pub records: u64,
    /// Record files that were written anew from the old index.
    pub restored_files: u64,
    /// Record files that can't be read, each with the reason. Those that the old index had are written anew, the damaged
    /// one next to it as `.damaged`.
    pub damaged_files: Vec<String>,
    /// Record files of a newer fusiond, kept as they are and left out.
    pub newer: u64,
    /// Where the old index is now.
    pub set_aside: Option<PathBuf>,
}

/// What an export wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The new directory.
    pub directory: PathBuf,
    /// Current calibrations in it.
    pub records: u64,
}

/// What the retention limits removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Records removed, their files with them.
    pub removed: u64,
    /// Records that lost their raw samples.
    pub stripped: u64,
}
