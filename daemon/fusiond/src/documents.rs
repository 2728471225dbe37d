//! Manual and completions, from the definition that parses the command line: for those who pack a release.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::Failure;
use crate::arguments::Arguments;

/// sysexits' EX_CANTCREAT.
const NOT_CREATED: u8 = 73;

/// Writes the pages into `directory`.
pub(crate) fn man(directory: &Path) -> Result<ExitCode, Failure> {
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory));
    let failed =
        |error| (NOT_CREATED, format!("can't write the manual into '{}': {error}", directory.display()));
    written.map(|()| ExitCode::SUCCESS).map_err(failed)
}

/// Prints the script for `shell`.
pub(crate) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "fusiond", &mut script);
    // Whoever closed the pipe has seen enough.
    let _ = io::stdout().write_all(&script);
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_a_user_meets_has_a_page() {
        let place = tempfile::tempdir().unwrap();
        man(&place.path().join("man")).unwrap();
        let entries = std::fs::read_dir(place.path().join("man")).unwrap();
        let mut pages: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        pages.sort();
        let store = ["export", "rebuild", "verify"].map(|verb| format!("fusiond-store-{verb}.1"));
        let expected = [&store[..], &["fusiond-store.1".to_owned(), "fusiond.1".to_owned()]].concat();
        assert_eq!(pages, expected);
    }
}
