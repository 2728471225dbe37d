//! What uninstalling takes.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use fusion_proto::state::{is_ours, log_directory};

use super::{Observed, Step, program_names};
use crate::Record;
use crate::files::unfinished;
use crate::manager::{ManagerKind, ManagerState};
use crate::places::{Places, definition_names, socket_files};

/// How much goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All but what was measured and what the user wrote.
    Program,
    /// What was measured, too.
    Everything,
}

/// The steps to nothing; none if nothing is installed. Reads file names, changes nothing.
///
/// The record goes last: until then whatever a crash leaves is known to be ours.
pub fn plan(places: &Places, kind: ManagerKind, extent: Extent, observed: &Observed) -> Vec<Step> {
    let definitions: Vec<_> =
        definition_names(kind).iter().map(|name| places.definitions.join(name)).collect();
    let mut steps = Vec::new();
    if observed.manager != ManagerState::NotLoaded || definitions.iter().any(|path| path.exists()) {
        steps.push(Step::Unregister(kind));
    }
    if observed.daemon.is_some() && observed.daemon_of_a_terminal() {
        steps.push(Step::EndDaemon(places.socket.clone()));
    }
    let written = steps_for(definitions.iter().flat_map(|path| [path.clone(), unfinished(path)]));
    let forget = if steps.is_empty() && written.is_empty() { None } else { Some(Step::Forget(kind)) };
    steps.extend(written);
    steps.extend(forget);
    steps.extend(steps_for(programs(observed.record.as_ref())));
    steps.extend(steps_for(socket_files(&places.socket)));
    match extent {
        Extent::Program => steps.extend(logs(&places.logs())),
        Extent::Everything => {
            steps.extend(purge(&places.state));
            let earlier = earlier_states(observed.record.as_ref()).iter();
            steps.extend(earlier.filter(|state| !is_in_use(state)).flat_map(|state| purge(state)));
        }
    }
    steps.extend(directories(observed.record.as_ref()));
    steps.extend(steps_for([unfinished(&places.record()), places.record()]));
    if places.own.exists() {
        steps.push(Step::RemoveEmptyDirectory(places.own.clone()));
    }
    steps
}

/// The daemon's logs, and their directory once nothing else is in it.
fn logs(directory: &Path) -> Vec<Step> {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("fusiond."));
    let mut ours: Vec<PathBuf> = ours.map(|entry| entry.path()).filter(|path| !path.is_dir()).collect();
    ours.sort();
    let mut steps = steps_for(ours);
    if directory.exists() && !(steps.is_empty() && has_content(directory)) {
        steps.push(Step::RemoveEmptyDirectory(directory.to_owned()));
    }
    steps
}

/// What the daemon made in its state directory, and the directory once nothing else is in it.
fn purge(state: &Path) -> Vec<Step> {
    let mut steps = contents(state);
    if state.exists() && !(steps.is_empty() && has_content(state)) {
        steps.push(Step::RemoveState(state.to_owned()));
    }
    steps
}

/// What the daemon made in its state directory, as it is now.
pub(super) fn contents(state: &Path) -> Vec<Step> {
    let mut ours: Vec<PathBuf> = own_state(state).collect();
    ours.sort();
    let logs = logs(&log_directory(state)).into_iter();
    ours.into_iter().flat_map(steps_for_tree).chain(logs).collect()
}

/// Whether a daemon has the store of a state directory open.
fn is_in_use(state: &Path) -> bool {
    let lock = File::open(state.join("store.lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn own_state(state: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = state.read_dir().into_iter().flatten().flatten();
    entries.filter(|entry| is_ours(&entry.file_name().to_string_lossy())).map(|entry| entry.path())
}

/// The step that removes a file, or a directory with what is in it; a link goes alone.
fn steps_for_tree(path: PathBuf) -> Option<Step> {
    let found = path.symlink_metadata().ok()?;
    Some(if found.is_dir() { Step::RemoveTree(path) } else { Step::RemoveFile(path) })
}

/// What was put in place by us, whole or half, and what a killed run had yet to remove.
fn programs(record: Option<&Record>) -> Vec<PathBuf> {
    let Some(record) = record else { return Vec::new() };
    let placed = record.placed_files().flat_map(|path| [path.clone(), unfinished(&path)]);
    placed.chain(record.replaced.iter().cloned()).collect()
}

/// The state directories of earlier installations.
fn earlier_states(record: Option<&Record>) -> &[PathBuf] {
    record.map(|record| record.left.as_slice()).unwrap_or_default()
}

/// The directories that weren't there before, the innermost first.
fn directories(record: Option<&Record>) -> Vec<Step> {
    let made = record.map(|record| record.made.clone()).unwrap_or_default();
    let mut made: Vec<_> = made.into_iter().filter(|path| path.exists()).collect();
    made.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    made.into_iter().map(Step::RemoveEmptyDirectory).collect()
}

fn steps_for(paths: impl IntoIterator<Item = PathBuf>) -> Vec<Step> {
    // Not `exists`, which a link to nothing doesn't.
    paths.into_iter().filter(|path| path.symlink_metadata().is_ok()).map(Step::RemoveFile).collect()
}

/// Something that stays after uninstalling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Where it is.
    pub path: PathBuf,
    /// Why it stays.
    pub why: &'static str,
}

/// What is still there of all that had to do with the daemon, to be told to a person.
pub fn kept(places: &Places, record: Option<&Record>) -> Vec<Kept> {
    let keep = |path: &Path, why| Some(Kept { path: path.to_owned(), why }).filter(|_| has_content(path));
    let placed = record.map(|record| record.placed.clone()).unwrap_or_default();
    let programs = program_names().filter(|name| record.is_some() && !placed.iter().any(|own| own == name));
    let programs = programs.filter_map(|name| {
        let path = places.programs.join(name);
        path.is_file().then_some(Kept { path, why: "it was not put there by 'fusionctl install'" })
    });
    let states = std::iter::once(&places.state).chain(earlier_states(record));
    states
        .filter_map(|state| keep(state, why_state(state)))
        .chain(keep(&places.configuration, "your own files: remove them by hand if you don't need them"))
        .chain(programs)
        .collect()
}

fn why_state(state: &Path) -> &'static str {
    if is_in_use(state) {
        "a daemon uses it"
    } else if own_state(state).next().is_some() {
        "calibrations: 'fusionctl uninstall --purge' removes them"
    } else {
        "what is in it isn't the daemon's"
    }
}

/// Whether there is a file, or a directory that isn't empty.
fn has_content(path: &Path) -> bool {
    path.is_file() || path.read_dir().is_ok_and(|mut entries| entries.next().is_some())
}
