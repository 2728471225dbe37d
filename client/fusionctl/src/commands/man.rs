//! `fusionctl man`: the manual, from the definition that parses the command line.

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;

use crate::arguments::Arguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

/// Writes a page for every command into `directory`, which is made if it isn't there.
pub(super) fn run(directory: &Path, output: Output) -> Result<(), Failure> {
    let written = fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory));
    written.map_err(|error| {
        Failure::ended(Exit::Io, format!("cannot write the manual into '{}': {error}", directory.display()))
    })?;
    output.tell(&format!("the manual is in {}; man -l shows a page", directory.display()));
    Ok(())
}
