//! The cap on memory: a request that cannot fit is refused, and a mistake in that judgement ends this process, not the
//! machine.

use anyhow::{Context, Result};
use fusion_split::identity;

use crate::platform;

/// Applies the asked limit, and returns the bytes that operands and results may take.
///
/// # Errors
/// If the system refuses the limit.
pub(crate) fn limit(asked: Option<u64>) -> Result<u64> {
    if let Some(bytes) = asked {
        platform::limit_address_space(bytes).context("cannot limit the memory of this process")?;
        fusion_split::limit_mlx_memory(bytes)?;
        return Ok(bytes);
    }
    Ok(match identity::memory_bytes() {
        0 => u64::MAX,
        installed => installed,
    })
}
