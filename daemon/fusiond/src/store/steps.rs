//! The points of a write at which a test can stop it.

use std::io;
use std::sync::Arc;

/// A point of a write. Whatever stops it there, by an error or by killing the process, an acknowledged record survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Before a file's bytes are written next to their place.
    FileBegun,
    /// The bytes are on the disk, under a temporary name.
    FileWritten,
    /// The file has its name; its directory isn't synced yet.
    FileRenamed,
    /// The file is durable.
    FileDurable,
    /// Before the index changes.
    IndexBegun,
    /// sled took the change, nothing is flushed.
    IndexChanged,
    /// The change of the index is durable.
    IndexDurable,
    /// Before an old record file is removed.
    FileRemoval,
}

/// Called at every [`Step`]; an error stops the write there. For tests only.
pub type Probe = Arc<dyn Fn(Step) -> io::Result<()> + Send + Sync>;

/// A probe or none.
#[derive(Clone, Default)]
pub(super) struct Steps(pub(super) Option<Probe>);

impl Steps {
    pub(super) fn pass(&self, step: Step) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |probe| probe(step))
    }
}
