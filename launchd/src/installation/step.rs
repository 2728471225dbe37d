//! One step of a plan.

use std::fmt;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use fusion_proto::endpoint::SocketPath;
use fusion_proto::state::log_directory;

use crate::checkpoint::Checkpoints;
use crate::definition::Definition;
use crate::error::ServiceError;
use crate::manager::{Manager, ManagerKind};
use crate::{Record, Start, files, running};

/// One step: done twice it does no harm. Its text says what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Makes a directory, for its owner alone, and those that hold it.
    MakeDirectory(PathBuf),
    /// Writes down what is installed.
    KeepRecord {
        /// Where.
        path: PathBuf,
        /// What.
        record: Box<Record>,
    },
    /// Puts a program, or what belongs to one, where it is run from.
    PlaceProgram {
        /// Its source.
        from: PathBuf,
        /// Where it goes.
        to: PathBuf,
    },
    /// Ends a daemon that a terminal started.
    EndDaemon(SocketPath),
    /// Writes what the manager goes by.
    WriteDefinition(Definition),
    /// Makes the manager go by it.
    Register {
        /// Which manager.
        manager: ManagerKind,
        /// What it is given.
        definitions: Vec<Definition>,
        /// When the daemon starts.
        start: Start,
    },
    /// Runs the daemon now.
    Start {
        /// Which manager.
        manager: ManagerKind,
        /// What it goes by.
        definitions: Vec<Definition>,
    },
    /// Makes the manager let go.
    Unregister(ManagerKind),
    /// Lets the manager see that the definitions are gone.
    Forget(ManagerKind),
    /// Removes a file.
    RemoveFile(PathBuf),
    /// Removes a directory and all that is in it.
    RemoveTree(PathBuf),
    /// Removes a directory if nothing is in it.
    RemoveEmptyDirectory(PathBuf),
    /// Removes a state directory unless it holds what isn't the daemon's: also what that wrote while it was asked to end.
    RemoveState(PathBuf),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MakeDirectory(path) => write!(f, "make the directory {}", path.display()),
            Self::KeepRecord { path, .. } => write!(f, "write down what is installed in {}", path.display()),
            Self::PlaceProgram { from, to } => write!(f, "copy {} to {}", from.display(), to.display()),
            Self::EndDaemon(socket) => write!(f, "end the daemon that a terminal started on {socket}"),
            Self::WriteDefinition(file) => write!(f, "write {}", file.path.display()),
            Self::Register { manager, start, .. } => {
                write!(f, "register {} with {manager}, to start {start}", manager.service())
            }
            Self::Start { manager, .. } => write!(f, "start {} through {manager}", manager.service()),
            Self::Unregister(manager) => write!(f, "stop {} and take it from {manager}", manager.service()),
            Self::Forget(manager) => write!(f, "let {manager} forget {}", manager.service()),
            Self::RemoveFile(path) => write!(f, "remove {}", path.display()),
            Self::RemoveTree(path) => write!(f, "remove {} with all that is in it", path.display()),
            Self::RemoveEmptyDirectory(path) => write!(f, "remove {} if it is empty", path.display()),
            Self::RemoveState(path) => write!(f, "remove {} unless something else is in it", path.display()),
        }
    }
}

impl Step {
    pub(super) fn perform(&self, manager: &Manager, checkpoints: &Checkpoints) -> Result<(), ServiceError> {
        match self {
            Self::MakeDirectory(path) => make_directory(path)?,
            Self::KeepRecord { path, record } => record.write(path, checkpoints)?,
            Self::PlaceProgram { from, to } => files::place_program(from, to, checkpoints)?,
            Self::EndDaemon(socket) => {
                running::end(socket)?;
            }
            Self::WriteDefinition(file) => files::write(&file.path, &file.text, checkpoints)?,
            Self::Register { definitions, start, .. } => {
                manager.register(definitions, *start, checkpoints)?;
            }
            Self::Start { definitions, .. } => manager.start(definitions, checkpoints)?,
            Self::Unregister(_) => manager.unregister(checkpoints)?,
            Self::Forget(_) => manager.forget()?,
            // A daemon may have been started there since.
            Self::RemoveFile(path) if running::uses(path) => {}
            Self::RemoveFile(path) => files::remove(path)?,
            Self::RemoveTree(path) => remove_tree(path)?,
            Self::RemoveEmptyDirectory(path) => remove_if_empty(path)?,
            Self::RemoveState(path) => remove_state(path)?,
        }
        Ok(())
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| {
        io::Error::new(error.kind(), format!("can't make the directory '{}': {error}", path.display()))
    })
}

fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn remove_state(path: &Path) -> io::Result<()> {
    for step in super::uninstall::contents(path) {
        match step {
            Step::RemoveTree(path) => remove_tree(&path)?,
            Step::RemoveFile(path) => files::remove(&path)?,
            _ => {}
        }
    }
    remove_if_empty(&log_directory(path))?;
    remove_if_empty(path)
}

/// A link to a directory, and one that something is mounted on, are somebody's arrangement: they stay.
fn remove_if_empty(path: &Path) -> io::Result<()> {
    use io::ErrorKind::{DirectoryNotEmpty, NotADirectory, NotFound, ResourceBusy};

    match fs::remove_dir(path) {
        Err(error) if matches!(error.kind(), NotFound | DirectoryNotEmpty | NotADirectory | ResourceBusy) => {
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_goes_with_what_its_daemon_wrote_at_its_end() {
        let place = tempfile::tempdir().unwrap();
        let (state, shared) = (place.path().join("state"), place.path().join("shared"));
        for directory in [&state, &shared] {
            fs::create_dir_all(directory.join("store")).unwrap();
            fs::create_dir(directory.join("logs")).unwrap();
            for late in ["planner.json", "snapshot.fsnp", "logs/fusiond.log.1"] {
                fs::write(directory.join(late), "").unwrap();
            }
        }
        fs::write(shared.join("mine"), "").unwrap();
        remove_state(&state).unwrap();
        remove_state(&shared).unwrap();
        assert!(!state.exists());
        assert_eq!(fs::read_dir(&shared).unwrap().count(), 1);
        remove_state(&state).unwrap();
    }
}
