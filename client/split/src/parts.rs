//! The two parts of a split, at work: the one code path that measuring and inference share.

use std::time::Instant;

use fusion_calibrations::sample::{FinishTimes, Unit};
use mlx_rs::{Array, Dtype, ops, transforms, with_stream};

use crate::{
    Units,
    error::{Doing as _, SplitError},
    product::ms_since,
};

/// Both parts of a split, submitted.
#[derive(Debug)]
pub(crate) struct Parts {
    primary: Array,
    secondary: Array,
}

impl Parts {
    /// Builds and submits each part on its own unit and by its own `async_eval`: one of both would hide the earlier finish.
    pub(crate) fn submit(
        units: &Units,
        primary: impl FnOnce() -> Result<Array, SplitError>,
        secondary: impl FnOnce() -> Result<Array, SplitError>,
    ) -> Result<Self, SplitError> {
        let primary = submit(with_stream(units.primary(), primary)?)?;
        let secondary = submit(with_stream(units.secondary(), secondary)?)?;
        Ok(Self { primary, secondary })
    }

    /// Waits for `first`, then for the other.
    pub(crate) fn wait(&self, start: Instant, first: Unit) -> Result<FinishTimes, SplitError> {
        let (earlier, later) = match first {
            Unit::Primary => (&self.primary, &self.secondary),
            Unit::Secondary => (&self.secondary, &self.primary),
        };
        wait(earlier)?;
        let earlier_ms = ms_since(start);
        wait(later)?;
        let later_ms = ms_since(start);
        let (primary_ms, secondary_ms) = match first {
            Unit::Primary => (earlier_ms, later_ms),
            Unit::Secondary => (later_ms, earlier_ms),
        };
        Ok(FinishTimes { primary_ms, secondary_ms, first_waited: first })
    }

    /// The result, submitted right behind the parts: nobody has to be woken between the last part and the joining.
    pub(crate) fn submit_join(&self, units: &Units) -> Result<Array, SplitError> {
        submit(self.join(units)?)
    }

    /// The lazy result: the secondary unit's rows first, joined on the primary unit.
    pub(crate) fn join(&self, units: &Units) -> Result<Array, SplitError> {
        with_stream(units.primary(), || join_rows(&self.secondary, &self.primary)).doing("joining the parts")
    }
}

/// Bytes of the widest numbers that MLX has.
const WIDEST_BYTES: usize = 8;

/// Rows `[m, N]` above rows `[n, N]`, lazily.
///
/// MLX's CPU copies number by number, so rows are joined as the widest numbers that fit: 16 MB of single precision in 1.5 ms instead of 3.1 (on an
/// Intel core with AVX-512), which is 3 % of the product 512 x 2048 x 8192 on two such cores.
fn join_rows(above: &Array, below: &Array) -> mlx_rs::error::Result<Array> {
    let (dtype, row_bytes) = (above.dtype(), above.dim(-1) as usize * above.item_size());
    if above.item_size() >= WIDEST_BYTES || !row_bytes.is_multiple_of(WIDEST_BYTES) {
        return ops::concatenate(&[above, below], 0);
    }
    let wide = |rows: &Array| rows.view_dtype(Dtype::Uint64);
    ops::concatenate(&[wide(above)?, wide(below)?], 0)?.view_dtype(dtype)
}

/// Sets a unit to work.
pub(crate) fn submit(array: Array) -> Result<Array, SplitError> {
    transforms::async_eval([&array]).doing("submitting a product")?;
    Ok(array)
}

pub(crate) fn wait(array: &Array) -> Result<(), SplitError> {
    array.eval().doing("computing a product")
}
