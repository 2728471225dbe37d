//! What installing takes: the difference between what is wanted and what is there.

use std::path::{Path, PathBuf};

use fs_err as fs;

use super::{Installation, Observed, Step};
use crate::definition::{Definition, definitions};
use crate::error::ServiceError;
use crate::manager::{ManagerKind, ManagerState};
use crate::places::Places;
use crate::{Record, Start};

/// The steps to `wanted`; none if all is as it should be. Reads files, changes nothing.
///
/// The record comes first, so that whatever a crash leaves is known to be ours. The daemon's program comes after the other ones, the manager after all
/// files, and last the record says that the manager has this very definition.
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
    let record = record(wanted, kind, observed, known.clone());

    let mut steps = missing_directory(&places.own);
    if observed.record.as_ref() != Some(&record) {
        steps.push(Step::KeepRecord { path: places.record(), record: Box::new(record.clone()) });
    }
    steps.extend(places.directories().iter().skip(1).flat_map(|directory| missing_directory(directory)));
    steps.extend(wanted.outdated()?.into_iter().map(|(from, to)| Step::PlaceProgram { from, to }));
    if observed.daemon_of_a_terminal() {
        steps.push(Step::EndDaemon(places.socket.clone()));
    }
    let written = definitions.iter().filter(|file| !is_written(file)).cloned().map(Step::WriteDefinition);
    steps.extend(written);
    if known.as_ref() != Some(&registered) || observed.manager == ManagerState::NotLoaded {
        let definitions = definitions.clone();
        steps.push(Step::Register { manager: kind, definitions, start: wanted.start });
    }
    if known.as_ref() != Some(&registered) {
        let record = Box::new(Record { registered: Some(registered), ..record });
        steps.push(Step::KeepRecord { path: places.record(), record });
    }
    let registers = steps.iter().any(|step| matches!(step, Step::Register { .. }));
    if wanted.start == Start::AtLogin && !registers && observed.manager == ManagerState::Waiting {
        steps.push(Step::Start { manager: kind, definitions });
    }
    steps.extend(left_elsewhere(observed, places));
    Ok(steps)
}

fn record(
    wanted: &Installation,
    kind: ManagerKind,
    observed: &Observed,
    registered: Option<String>,
) -> Record {
    let places = &wanted.places;
    let before = observed.record.as_ref();
    let mut record = Record { registered, ..Record::new(kind, wanted.start, places) };
    record.made = before.map(|before| before.made.clone()).unwrap_or_default();
    // Our own directory goes in any case, once it is empty.
    let all = places.directories().into_iter().skip(1).chain([places.configuration.clone()]);
    let missing = all.flat_map(|directory| missing_with_ancestors(&directory));
    for directory in missing.filter(|directory| *directory != places.own) {
        if !record.made.contains(&directory) {
            record.made.push(directory);
        }
    }
    let placed = before.filter(|before| before.programs == places.programs);
    record.placed = placed.map(|before| before.placed.clone()).unwrap_or_default();
    for source in wanted.sources.iter().filter(|source| !wanted.in_place(source)) {
        let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !record.placed.contains(&name) {
            record.placed.push(name);
        }
    }
    record
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

/// What an earlier installation put into another directory.
fn left_elsewhere(observed: &Observed, places: &Places) -> Vec<Step> {
    let elsewhere = observed.record.iter().filter(|record| record.programs != places.programs);
    elsewhere
        .flat_map(|record| record.placed.iter().map(|name| Step::RemoveFile(record.programs.join(name))))
        .collect()
}
