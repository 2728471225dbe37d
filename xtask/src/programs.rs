//! The programs that an installation consists of, and having them built.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::{env, iter};

use anyhow::Result;

use crate::{process, workspace};

/// The packages that an installation consists of; each is a program of the same name.
pub(crate) const PROGRAMS: [&str; 3] = ["fusiond", "fusion-worker", "fusionctl"];

/// Builds the programs in release; where they lie.
///
/// # Errors
/// If something doesn't compile, as for all of these.
pub(crate) fn released() -> Result<PathBuf> {
    released_with(&[])
}

/// [`released`], with other packages beside them.
pub(crate) fn released_with(others: &[&str]) -> Result<PathBuf> {
    build(iter::once("--release").map(OsStr::new), others)?;
    Ok(target_folder()?.join("release"))
}

/// [`released`], for a target if one is named.
pub(crate) fn released_for(target: Option<&OsStr>) -> Result<PathBuf> {
    let Some(target) = target else { return released() };
    build([OsStr::new("--release"), OsStr::new("--target"), target], &[])?;
    Ok(target_folder()?.join(target).join("release"))
}

/// Builds the programs for development; where they lie.
pub(crate) fn developed() -> Result<PathBuf> {
    build(iter::empty(), &[])?;
    Ok(target_folder()?.join("debug"))
}

/// [`developed`], together with all tests: cargo chooses the dependencies' features by what is built at once, so that after `cargo test --workspace` any other choice of
/// packages would compile half of them again.
pub(crate) fn tested() -> Result<PathBuf> {
    let mut tests = Command::new(workspace::cargo());
    tests.current_dir(workspace::root()?).args(["test", "--quiet", "--locked", "--workspace", "--no-run"]);
    process::show(&mut tests, "building")?;
    Ok(target_folder()?.join("debug"))
}

fn build<'a>(arguments: impl IntoIterator<Item = &'a OsStr>, others: &[&str]) -> Result<()> {
    let mut cargo = Command::new(workspace::cargo());
    cargo.current_dir(workspace::root()?).args(["build", "--locked"]).args(arguments);
    cargo.args(PROGRAMS.iter().chain(others).flat_map(|package| ["--package", package]));
    process::show(&mut cargo, "building")
}

/// Where cargo puts what it builds.
fn target_folder() -> Result<PathBuf> {
    let root = workspace::root()?;
    Ok(env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target)))
}
