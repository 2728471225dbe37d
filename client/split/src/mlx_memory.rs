//! MLX's allocator, which is one per process.

use crate::error::{Doing as _, SplitError};

/// Limits what MLX allocates in this process, its cache of freed buffers included. MLX keeps to it where it can; it is no
/// guarantee.
///
/// # Errors
/// [`SplitError::Mlx`] if MLX refuses.
pub fn limit_mlx_memory(bytes: u64) -> Result<(), SplitError> {
    let limit = usize::try_from(bytes).unwrap_or(usize::MAX);
    mlx_rs::memory::set_memory_limit(limit).doing("limiting MLX's memory")?;
    mlx_rs::memory::set_cache_limit(limit / 4).doing("limiting MLX's cache").map(drop)
}

/// Gives the buffers that MLX keeps for reuse back to the system.
///
/// # Errors
/// [`SplitError::Mlx`] if MLX fails.
pub fn release_memory() -> Result<(), SplitError> {
    mlx_rs::memory::clear_cache().doing("releasing MLX's cache")
}

/// Bytes that MLX has in use, its cache not included.
///
/// # Errors
/// [`SplitError::Mlx`] if MLX does not tell.
pub fn active_memory_bytes() -> Result<u64, SplitError> {
    mlx_rs::memory::active_memory().doing("asking for MLX's memory").map(|bytes| bytes as u64)
}
