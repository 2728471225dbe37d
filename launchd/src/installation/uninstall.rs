//! What uninstalling takes.

use std::path::{Path, PathBuf};

use super::{Observed, Step, program_names};
use crate::Record;
use crate::files::unfinished;
use crate::manager::{ManagerKind, ManagerState};
use crate::places::{Places, definition_names};

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
    steps.extend(steps_for(programs(places, observed.record.as_ref())));
    steps.extend(steps_for([
        places.socket.as_path().to_owned(),
        places.socket.lock_file(),
        places.socket.failures_file(),
        unfinished(&places.socket.failures_file()),
    ]));
    // A state directory that was named holds the configuration, too.
    let users = Some(places.configuration.clone())
        .filter(|path| path.parent() == Some(&places.state) && path.exists());
    let (path, except) = match extent {
        Extent::Program => (places.logs(), None),
        Extent::Everything => (places.state.clone(), users),
    };
    if path.exists() {
        steps.push(Step::RemoveTree { path, except });
    }
    steps.extend(directories(observed.record.as_ref()));
    steps.extend(steps_for([unfinished(&places.record()), places.record()]));
    if places.own.exists() {
        steps.push(Step::RemoveEmptyDirectory(places.own.clone()));
    }
    steps
}

/// What was put in place by us, whole or half.
fn programs(places: &Places, record: Option<&Record>) -> Vec<PathBuf> {
    let placed = record.map(|record| record.placed.clone()).unwrap_or_default();
    placed
        .iter()
        .map(|name| places.programs.join(name))
        .flat_map(|path| [path.clone(), unfinished(&path)])
        .collect()
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
    keep(&places.state, "calibrations: 'fusionctl uninstall --purge' removes them")
        .into_iter()
        .chain(keep(&places.configuration, "your own files: remove them by hand if you don't need them"))
        .chain(programs)
        .collect()
}

/// Whether there is a file, or a directory that isn't empty.
fn has_content(path: &Path) -> bool {
    path.is_file() || path.read_dir().is_ok_and(|mut entries| entries.next().is_some())
}
