//! `fusionctl probe`: the worker beside us does it, since only the worker may load MLX.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::arguments::Probe;
use crate::commands::program;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

const PROGRAM: &str = "fusion-worker";

/// Becomes `fusion-worker --probe`, with its output and exit code; returns only if that fails.
pub(super) fn exec(arguments: &Probe, output: Output) -> Failure {
    let Some(program) = find() else {
        return Failure::ended(
            Exit::Config,
            "there is no 'fusion-worker' beside fusionctl or in PATH to probe with: install it there, or name it with FUSION_WORKER",
        );
    };
    let mut worker = Command::new(&program);
    worker.arg("--probe");
    if arguments.development {
        worker.args(["--pair", "development"]);
    }
    if output.json {
        worker.arg("--json");
    }
    if output.quiet {
        worker.arg("--quiet");
    }
    let error = worker.exec();
    Failure::ended(Exit::Config, format!("cannot run {}: {error}; is it executable?", program.display()))
}

/// The one that the daemon would start.
fn find() -> Option<PathBuf> {
    match env::var_os("FUSION_WORKER") {
        Some(named) if !named.is_empty() => Some(named.into()),
        _ => program::find(PROGRAM),
    }
}
