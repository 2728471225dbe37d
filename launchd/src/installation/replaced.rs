//! What an installation leaves behind of an earlier one: files that nobody needs go, what was measured stays and is told.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Installation, Kept, Observed, Source, Step};
use crate::Record;
use crate::files::{plain, same_directory, unfinished};
use crate::manager::ManagerKind;
use crate::places::{PROGRAMS, Places, definition_names, socket_files};

/// The files that earlier installations needed, and `wanted` doesn't.
pub(super) fn files(wanted: &Installation, kind: ManagerKind, observed: &Observed) -> Vec<PathBuf> {
    let Some(before) = &observed.record else { return Vec::new() };
    let needed = needed(wanted, kind);
    let mut files = before.replaced.clone();
    if !wanted.is_installed(before) {
        let stale = before.placed_files().filter(|file| !needed.contains(&plain(file)));
        files.extend(stale.flat_map(|file| [unfinished(&file), file]));
    }
    if let Some(definitions) = &before.definitions {
        files.extend(definition_names(kind).iter().map(|name| definitions.join(name)));
    }
    // Whoever runs a daemon of a terminal there goes on.
    if !observed.earlier_daemon_of_a_terminal() {
        files.extend(before.other_socket(&wanted.places).iter().flat_map(socket_files));
    }
    files.retain(|file| !needed.contains(&plain(file)));
    files.sort();
    files.dedup();
    files
}

/// One file may be named in several ways.
fn needed(wanted: &Installation, kind: ManagerKind) -> BTreeSet<PathBuf> {
    let places = &wanted.places;
    let definitions = definition_names(kind).into_iter().map(|name| places.definitions.join(name));
    let sources = wanted.sources.iter().map(|source| source.to.clone());
    sources.chain(definitions).chain(socket_files(&places.socket)).map(|file| plain(&file)).collect()
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
    let mut states: Vec<PathBuf> = Vec::new();
    for state in before.left.iter().chain([&before.state]) {
        let known = |other: &PathBuf| same_directory(state, other);
        if state.exists() && !known(&places.state) && !states.iter().any(known) {
            states.push(state.clone());
        }
    }
    states
}

/// What stays of earlier installations although the one in `places` doesn't use it, to be told to a person.
pub fn left(places: &Places, before: Option<&Record>) -> Vec<Kept> {
    const WHY: &str = "what the earlier installation measured: 'fusionctl uninstall --purge' removes it";
    states(places, before).into_iter().map(|path| Kept { path, why: WHY }).collect()
}

impl Installation {
    /// Whether its programs are those that `before` has, where they lie: then what was put beside them stays.
    pub(super) fn is_installed(&self, before: &Record) -> bool {
        let programs = PROGRAMS.map(|name| self.places.programs.join(name));
        let mut own = self.sources.iter().filter(|source| programs.contains(&source.to));
        same_directory(&before.programs, &self.places.programs) && own.all(Source::in_place)
    }
}
