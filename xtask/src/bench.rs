//! `cargo xtask bench`: builds what is measured, and runs the benchmark program.

use std::process::Command;

use anyhow::Result;

use crate::python::{self, Profile};
use crate::{process, programs, setup, workspace};

/// Builds the programs in release and runs `fusion-bench` with `arguments`.
///
/// # Errors
/// If a build or the benchmark fails. A missed figure is no failure: it is printed.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let root = workspace::root()?;
    // The group 'ttft' runs MLX-LM.
    if arguments.is_empty() || arguments.iter().any(|argument| argument == "ttft") {
        setup::python_deps(false)?;
        python::install(Profile::Release)?;
    }
    programs::released_with(&["fusion-bench"])?;
    let mut example = Command::new(workspace::cargo());
    example.current_dir(&root).args(["build", "--release", "--locked"]);
    example.args(["--package", "fusion-split", "--example", "prefill"]);
    process::show(&mut example, "building the block example")?;
    let mut bench = Command::new(workspace::cargo());
    bench.current_dir(&root).args([
        "run",
        "--release",
        "--locked",
        "--quiet",
        "--package",
        "fusion-bench",
        "--",
    ]);
    process::show(bench.args(arguments), "measuring")
}
