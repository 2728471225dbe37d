//! Where things are. Every generated path is git-ignored and outside `target/`, so that `cargo clean` breaks nothing.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::process;

/// The packages that an installation consists of; each is a program of the same name.
pub(crate) const PROGRAMS: [&str; 3] = ["fusiond", "fusion-worker", "fusionctl"];

/// The root of the checkout, absolute.
pub(crate) fn root() -> Result<PathBuf> {
    // Read at run time: a path compiled in would be wrong after the checkout has moved.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    let root = Path::new(&manifest).parent().context("xtask/ has no parent folder")?;
    Ok(root.to_path_buf())
}

/// The cargo that started us, so that a chosen toolchain stays chosen.
pub(crate) fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

/// Builds the programs for development, and says where they are.
///
/// Together with all tests: cargo chooses the dependencies' features by what is built at once, so that after `cargo test --workspace` any other choice of packages would
/// compile half of them again.
///
/// # Errors
/// If something doesn't compile.
pub(crate) fn build_programs() -> Result<PathBuf> {
    let root = root()?;
    let mut tests = Command::new(cargo());
    tests.current_dir(&root).args(["test", "--quiet", "--locked", "--workspace", "--no-run"]);
    process::show(&mut tests, "building the programs")?;
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
    Ok(target.join("debug"))
}
