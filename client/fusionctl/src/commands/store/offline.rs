//! Without a daemon: `fusiond store` does the work, so that only one program knows the store's format.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::arguments::Store;
use crate::commands::program;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

const PROGRAM: &str = "fusiond";

/// Becomes `fusiond store`, with its output and exit code; returns only if that fails.
pub(super) fn exec(command: &Store, output: Output) -> Failure {
    let Some(program) = program::find(PROGRAM) else {
        return Failure::ended(
            Exit::NotRunning,
            "fusiond is not running, and there is no 'fusiond' beside fusionctl or in PATH to open the store without it: start the daemon, or add it to PATH",
        );
    };
    let mut fusiond = Command::new(&program);
    fusiond.arg("store");
    match command {
        Store::Verify => fusiond.arg("verify"),
        Store::Rebuild { .. } => fusiond.arg("rebuild"),
        Store::Export { path } => fusiond.arg("export").arg(path),
    };
    if output.json {
        fusiond.arg("--json");
    }
    output.tell("fusiond is not running: opening the store without it");
    let error = fusiond.exec();
    Failure::ended(Exit::Internal, format!("cannot run {}: {error}; is it executable?", program.display()))
}
