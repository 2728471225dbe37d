//! Where things are. Every generated path is git-ignored and outside `target/`, so that `cargo clean` breaks nothing.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

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
