//! The first thing a person does: `make run` in a fresh clone, and again.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use fusion_calibrations::stats::Interval;

use crate::figure::{Figure, Limit};

pub(crate) fn measure() -> Result<Vec<Figure>> {
    let directory = tempfile::tempdir()?;
    let clone = directory.path().join("clone");
    let cloned =
        Command::new("git").args(["clone", "--quiet", "."]).arg(&clone).status().context("starting git")?;
    if !cloned.success() {
        bail!("cloning this checkout failed");
    }
    let times = [run(directory.path(), &clone), run(directory.path(), &clone)];
    let _ = command(directory.path(), &clone, "./target/release/fusionctl").arg("stop").status();
    let [first, second] = times;
    Ok(vec![
        Figure::new(
            "'make run' from a clean clone",
            Interval::exact(first?),
            "s",
            Limit::AtMost(360.0),
            1,
            None,
        ),
        Figure::new("'make run' again", Interval::exact(second?), "s", Limit::AtMost(10.0), 1, None),
    ])
}

/// A command in the clone, with a socket and a state of its own.
fn command(directory: &Path, clone: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(clone)
        .env("FUSION_SOCKET", directory.join("fusiond.sock"))
        .env("FUSION_STATE_DIR", directory.join("state"))
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_MANIFEST_DIR")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

fn run(directory: &Path, clone: &Path) -> Result<f64> {
    let start = Instant::now();
    let status = command(directory, clone, "make").arg("run").status().context("starting make")?;
    if !status.success() {
        bail!("'make run' failed ({status}); its messages are above");
    }
    Ok(start.elapsed().as_secs_f64())
}
