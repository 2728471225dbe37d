//! `cargo xtask setup`: everything a build needs that cargo does not fetch.
//!
//! On Linux that is MLX itself (see `xtask/mlx-linux/README.md`). On macOS `mlx-sys` builds MLX, so only its tools
//! are checked for.

mod cargo_config;
mod linux;
mod macos;
mod pins;
mod pip;
mod prerequisites;
mod progress;
mod stamp;

use std::fs;

use anyhow::{Context, Result, bail};

use crate::workspace;
use progress::Progress;
use stamp::Stamp;

/// Prepares MLX for this machine; `force` starts over.
///
/// # Errors
/// With the remedy, if a prerequisite is missing; with the tool's own words, if a step fails.
pub(crate) fn run(force: bool) -> Result<()> {
    match std::env::consts::OS {
        "linux" => linux::run(&workspace::root()?, force),
        "macos" => macos::run(),
        other => bail!("fusiond needs MLX, which runs on macOS (Apple silicon) and Linux; this is {other}"),
    }
}

/// Installs the pinned test packages into `.python/`; `force` starts over.
///
/// # Errors
/// If Python or pip is missing, or a package cannot be had.
pub(crate) fn python_deps(force: bool) -> Result<()> {
    let root = workspace::root()?;
    let (list, folder) = (root.join("xtask/python/requirements-test.txt"), root.join(".python"));
    let text = fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let _alone = stamp::lock(&folder)?;
    // A package with compiled parts fits one Python only.
    let python = pip::python_version().unwrap_or_default();
    let stamp = Stamp::new().text(&text).text(&python).text(&folder.to_string_lossy());
    if !force && stamp.matches(&folder) {
        return Ok(());
    }
    prerequisites::report(prerequisites::python())?;
    let progress = Progress::start();
    progress.step("installing Python packages for the tests into .python/");
    stamp::clear(&folder)?;
    pip::pip_install_into(&folder.join("site"), &pip::requirements(&text), pip::Dependencies::Follow)?;
    stamp.write(&folder)?;
    progress.step("done");
    Ok(())
}
