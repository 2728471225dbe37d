//! What installing takes: the difference between what is wanted and what is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::{Installation, Observed, Source, Step, replaced};
use crate::definition::{Definition, definitions};
use crate::error::ServiceError;
use crate::manager::{ManagerKind, ManagerState};
use crate::{Record, Start};

/// The steps to `wanted`; none if all is as it should be. Reads files, changes nothing.
///
/// The record comes first, so that whatever a crash leaves is known to be ours. The daemon's program comes after the other ones, the manager after all
/// files. What an earlier installation needed and this one doesn't goes after that, and last the record says that all is as it should be.
///
/// # Errors
/// [`ServiceError::UnusablePath`], [`ServiceError::PropertyList`] and [`ServiceError::Io`].
pub fn plan(
    wanted: &Installation,
    kind: ManagerKind,
    observed: &Observed,
) -> Result<Vec<Step>, ServiceError> {
    let places = &wanted.places;
    let definitions = definitions(kind, wanted.start, places)?;
    // systemd's units are the same for both; what is enabled of them isn't.
    let texts: String = definitions.iter().map(|file| file.text.as_str()).collect();
    let registered = format!("starts {}\n{texts}", wanted.start);
    let known = observed.record.as_ref().and_then(|record| record.registered.clone());
    let (during, after) = records(wanted, kind, observed, &registered);

    let mut steps = missing_directory(&places.own);
    if observed.record.as_ref() != Some(&during) {
        steps.push(Step::KeepRecord { path: places.record(), record: Box::new(during.clone()) });
    }
    steps.extend(wanted.directories().iter().skip(1).flat_map(|directory| missing_directory(directory)));
    let outdated = wanted.outdated()?.into_iter().cloned();
    steps.extend(outdated.map(|Source { from, to }| Step::PlaceProgram { from, to }));
    if observed.daemon_of_a_terminal() {
        steps.push(Step::EndDaemon(places.socket.clone()));
    }
    let written = definitions.iter().filter(|file| !is_written(file)).cloned().map(Step::WriteDefinition);
    steps.extend(written);
    let registers = known.as_ref() != Some(&registered) || observed.manager == ManagerState::NotLoaded;
    if registers {
        let definitions = definitions.clone();
        steps.push(Step::Register { manager: kind, definitions, start: wanted.start });
    } else if wanted.start == Start::AtLogin && !matches!(observed.manager, ManagerState::Running { .. }) {
        steps.push(Step::Start { manager: kind, definitions });
    }
    steps.extend(replaced::steps(&during, wanted));
    if during != after {
        steps.push(Step::KeepRecord { path: places.record(), record: Box::new(after) });
    }
    Ok(steps)
}

/// What is written down before anything is done, and once all of it is.
fn records(
    wanted: &Installation,
    kind: ManagerKind,
    observed: &Observed,
    registered: &str,
) -> (Record, Record) {
    let places = &wanted.places;
    let before = observed.record.as_ref();
    let mut during = Record::new(kind, wanted.start, places);
    during.registered = before.and_then(|before| before.registered.clone());
    during.made = made(wanted, before);
    during.placed = own(wanted, before);
    during.replaced = replaced::files(wanted, kind, observed);
    during.left = replaced::states(places, before);
    let after = Record { registered: Some(registered.to_owned()), replaced: Vec::new(), ..during.clone() };
    (during, after)
}

/// The directories that uninstalling removes once they are empty: those that weren't there before. Our own goes in any case.
fn made(wanted: &Installation, before: Option<&Record>) -> Vec<PathBuf> {
    let mut made = before.map(|before| before.made.clone()).unwrap_or_default();
    let all = wanted.directories().into_iter().skip(1).chain([wanted.places.configuration.clone()]);
    let missing = all.flat_map(|directory| missing_with_ancestors(&directory));
    for directory in missing.filter(|directory| *directory != wanted.places.own) {
        if !made.contains(&directory) {
            made.push(directory);
        }
    }
    made
}

/// The names of what is ours to remove: what is copied, and what an earlier run copied to where it is used now.
fn own(wanted: &Installation, before: Option<&Record>) -> Vec<String> {
    let earlier: BTreeSet<PathBuf> = before.into_iter().flat_map(Record::placed_files).collect();
    let ours = wanted.sources.iter().filter(|source| !source.in_place() || earlier.contains(&source.to));
    let mut ours: BTreeSet<PathBuf> = ours.map(|source| source.to.clone()).collect();
    if before.is_some_and(|before| wanted.is_installed(before)) {
        ours.extend(earlier);
    }
    let programs = &wanted.places.programs;
    ours.iter()
        .map(|file| file.strip_prefix(programs).unwrap_or(file).to_string_lossy().into_owned())
        .collect()
}

/// The directories that aren't there on the way to `directory`, itself included, the outermost first.
fn missing_with_ancestors(directory: &Path) -> Vec<PathBuf> {
    let missing = directory.ancestors().take_while(|ancestor| !ancestor.exists());
    let mut missing: Vec<_> = missing.map(Path::to_owned).collect();
    missing.reverse();
    missing
}

fn missing_directory(directory: &Path) -> Vec<Step> {
    if directory.is_dir() { Vec::new() } else { vec![Step::MakeDirectory(directory.to_owned())] }
}

fn is_written(file: &Definition) -> bool {
    fs::read_to_string(&file.path).is_ok_and(|text| text == file.text)
}
