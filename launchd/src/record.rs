//! What was installed: a file of ours that the next install and the uninstall go by.

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;
use fusion_proto::endpoint::SocketPath;
use serde::{Deserialize, Serialize};

use crate::Start;
use crate::checkpoint::Checkpoints;
use crate::files;
use crate::manager::ManagerKind;
use crate::places::Places;

/// The layout of [`Record`].
const VERSION: u32 = 1;

/// Why the record can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file can't be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file isn't one.
    #[error(
        "'{path}' is no record of an installation ({reason}): move it away, then run 'fusionctl install' again"
    )]
    Nonsense {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A newer fusionctl wrote it.
    #[error(
        "'{path}' was written by a newer fusionctl (layout {version}): use that one, it lies in the same installation's programs"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its layout.
        version: u32,
    },
}

/// What was installed, and what of it is ours to remove. Written before anything else is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub(crate) version: u32,
    /// Whose definitions.
    pub manager: ManagerKind,
    /// When the daemon starts.
    pub start: Start,
    /// Where the programs are run from.
    pub programs: PathBuf,
    /// Those that were put there by us, and what belongs to them: relative to `programs`, if it lies below.
    pub placed: Vec<String>,
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The daemon's state.
    pub state: PathBuf,
    /// The user's configuration.
    pub configuration: PathBuf,
    /// Where the definitions lie; absent in records of earlier versions.
    #[serde(default)]
    pub definitions: Option<PathBuf>,
    /// Files of earlier installations that nobody needs any more, and that are about to be removed.
    #[serde(default)]
    pub replaced: Vec<PathBuf>,
    /// State directories of earlier installations, with what was measured: only a person's word removes them.
    #[serde(default)]
    pub left: Vec<PathBuf>,
    /// Directories that weren't there before, each after the one that holds it.
    pub made: Vec<PathBuf>,
    /// What the manager was last given: when to start, and the definitions one after the other. launchd goes by a copy of
    /// its own, whatever the file says.
    pub registered: Option<String>,
}

impl Record {
    pub(crate) fn new(manager: ManagerKind, start: Start, places: &Places) -> Self {
        Self {
            version: VERSION,
            manager,
            start,
            programs: places.programs.clone(),
            placed: Vec::new(),
            socket: places.socket.as_path().to_owned(),
            state: places.state.clone(),
            configuration: places.configuration.clone(),
            definitions: Some(places.definitions.clone()),
            replaced: Vec::new(),
            left: Vec::new(),
            made: Vec::new(),
            registered: None,
        }
    }

    /// The files that were put in place by us.
    pub(crate) fn placed_files(&self) -> impl Iterator<Item = PathBuf> {
        self.placed.iter().map(|name| self.programs.join(name))
    }

    /// The socket, if it isn't that of `places`.
    pub(crate) fn other_socket(&self, places: &Places) -> Option<SocketPath> {
        SocketPath::new(&self.socket).ok().filter(|socket| *socket != places.socket)
    }

    /// What the file says; `None` if there is none.
    ///
    /// # Errors
    /// Every [`RecordError`].
    pub fn read(path: &Path) -> Result<Option<Self>, RecordError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let nonsense = |error: serde_json::Error| RecordError::Nonsense {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let Version { version } = serde_json::from_str(&text).map_err(nonsense)?;
        if version > VERSION {
            return Err(RecordError::Newer { path: path.to_owned(), version });
        }
        serde_json::from_str(&text).map(Some).map_err(nonsense)
    }

    pub(crate) fn write(&self, path: &Path, checkpoints: &Checkpoints) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        files::write(path, &format!("{text}\n"), checkpoints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_and_newer_records_are_refused_with_a_remedy() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("installation.json");
        assert_eq!(Record::read(&path).unwrap(), None);
        fs::write(&path, "{}").unwrap();
        assert!(matches!(Record::read(&path).unwrap_err(), RecordError::Nonsense { .. }));
        fs::write(&path, "{\"version\": 9, \"anything\": 1}").unwrap();
        assert!(matches!(Record::read(&path).unwrap_err(), RecordError::Newer { version: 9, .. }));
    }
}
