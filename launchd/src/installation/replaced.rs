//! What an installation leaves behind of an earlier one: files that nobody needs go, what was measured stays and is told.

use std::path::{Path, PathBuf};

use super::{Installation, Kept, Observed, Step};
use crate::Record;
use crate::files::unfinished;
use crate::manager::ManagerKind;
use crate::places::{Places, definition_names, socket_files};

/// The files that earlier installations needed, and `wanted` doesn't.
pub(super) fn files(wanted: &Installation, kind: ManagerKind, observed: &Observed) -> Vec<PathBuf> {
    let Some(before) = &observed.record else { return Vec::new() };
    let needed = needed(wanted, kind);
    let mut files = before.replaced.clone();
    if !wanted.is_installed(before) {
        let stale = before.placed_files().filter(|file| !needed.contains(file));
        files.extend(stale.flat_map(|file| [unfinished(&file), file]));
    }
    if let Some(definitions) = &before.definitions {
        files.extend(definition_names(kind).iter().map(|name| definitions.join(name)));
    }
    // Whoever runs a daemon of a terminal there goes on.
    if !observed.earlier_daemon_of_a_terminal() {
        files.extend(before.other_socket(&wanted.places).iter().flat_map(socket_files));
    }
    files.retain(|file| !needed.contains(file));
    files.sort();
    files.dedup();
    files
}

fn needed(wanted: &Installation, kind: ManagerKind) -> Vec<PathBuf> {
    let places = &wanted.places;
    let definitions = definition_names(kind).into_iter().map(|name| places.definitions.join(name));
    let sources = wanted.sources.iter().map(|source| source.to.clone());
    sources.chain(definitions).chain(socket_files(&places.socket)).collect()
}

/// The steps that remove what `during` says is replaced, and the directories that were made for it.
pub(super) fn steps(during: &Record, wanted: &Installation) -> Vec<Step> {
    let there = during.replaced.iter().filter(|file| file.symlink_metadata().is_ok());
    let mut steps: Vec<_> = there.cloned().map(Step::RemoveFile).collect();
    let needed = wanted.directories();
    let is_needed = |directory: &Path| needed.iter().any(|needed| needed.starts_with(directory));
    let emptied = |directory: &Path| during.replaced.iter().any(|file| file.starts_with(directory));
    let mut made: Vec<_> = during.made.iter().filter(|directory| directory.is_dir()).collect();
    made.retain(|directory| emptied(directory) && !is_needed(directory));
    made.sort_by_key(|directory| std::cmp::Reverse(directory.components().count()));
    steps.extend(made.into_iter().cloned().map(Step::RemoveEmptyDirectory));
    steps
}

/// The state directories of earlier installations that are still there, other than that of `places`.
pub(super) fn states(places: &Places, before: Option<&Record>) -> Vec<PathBuf> {
    let Some(before) = before else { return Vec::new() };
    let mut states = before.left.clone();
    states.push(before.state.clone());
    states.retain(|state| *state != places.state && state.exists());
    states.dedup();
    states
}

/// What stays of the installation that `before` tells of although the one in `places` doesn't use it, to be told to a person.
pub fn left(places: &Places, before: Option<&Record>) -> Vec<Kept> {
    const WHY: &str = "what the earlier installation measured: 'fusionctl uninstall --purge' removes it";
    let state = before.map(|before| before.state.clone());
    let state = state.filter(|state| *state != places.state && state.exists());
    state.into_iter().map(|path| Kept { path, why: WHY }).collect()
}

impl Installation {
    /// Whether it is installed from where `before` has it: then it brings nothing, and what lies there stays.
    pub(super) fn is_installed(&self, before: &Record) -> bool {
        before.programs == self.places.programs && self.placed().next().is_none()
    }
}
