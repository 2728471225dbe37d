//! The engine: what picks the code that runs a product.

use std::fmt;

use crate::chip::slug;

/// What picks the code of a matrix product. Two engines on one chip may want different ratios, so the engine is part of
/// every key; a client and a worker may run different ones.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Engine {
    /// Build of the operating system: `kern.osversion` on macOS ("25G83"), the kernel release on Linux.
    pub os_build: String,
    /// MLX's own version, "0.32.2".
    pub mlx_version: String,
    /// Hash of the MLX library files in hexadecimal: nightlies share a version.
    pub library_hash: String,
}

impl Engine {
    /// The engine as one word of `[a-z0-9.+-]`, usable in file names and keys.
    pub fn key(&self) -> String {
        format!("{}.mlx-{}.{}", slug(&self.os_build), slug(&self.mlx_version), slug(&self.library_hash))
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MLX {} ({}) on {}", self.mlx_version, self.library_hash, self.os_build)
    }
}
