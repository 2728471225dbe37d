//! A decoder block through MLX's compiler.

use std::fmt;

use mlx_rs::{
    Array, Stream,
    error::{Exception, Result as MlxResult},
    transforms::compile::compile,
    with_stream,
};

use crate::error::{Doing as _, SplitError};

use super::{
    Geometry,
    block::{Block, Stock},
};

type Function = Box<dyn FnMut(&[Array]) -> MlxResult<Vec<Array>>>;

/// One compiled function for all blocks of a model: their shapes are equal, and their weights are arguments, since a compiled
/// function must not capture arrays. MLX traces it once for each number of rows and length of the cache, and keeps the traces.
pub(super) struct CompiledBlock(Function);

impl fmt::Debug for CompiledBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompiledBlock")
    }
}

impl CompiledBlock {
    pub(super) fn new(geometry: &Geometry, primary: &Stream) -> Self {
        let (geometry, primary) = (geometry.clone(), primary.clone());
        let function = move |arrays: &[Array]| -> MlxResult<Vec<Array>> {
            with_stream(&primary, || forward(&geometry, arrays)).map_err(SplitError::into_mlx)
        };
        Self(Box::new(compile::<_, &[Array], Vec<Array>, Exception>(function, false)))
    }

    /// As [`Block::forward`].
    pub(super) fn run(
        &mut self,
        block: &Block,
        hidden: &Array,
        offset: &Array,
        past: Option<(&Array, &Array)>,
    ) -> Result<(Array, Array, Array), SplitError> {
        let past = past.into_iter().flat_map(|(keys, values)| [keys, values]);
        // The block's arrays come before the past, of which there may be none.
        let arrays: Vec<Array> =
            [hidden, offset].into_iter().chain(block.arrays()).chain(past).cloned().collect();
        let results = (self.0)(&arrays).doing("building a compiled block")?;
        <[Array; 3]>::try_from(results)
            .map(|[hidden, keys, values]| (hidden, keys, values))
            .map_err(|_| Exception::custom("a compiled block returned other results"))
            .doing("building a compiled block")
    }
}

fn forward(geometry: &Geometry, arrays: &[Array]) -> Result<Vec<Array>, SplitError> {
    let mut arrays = arrays.iter().cloned();
    let too_few = || SplitError::Weights { reason: "a compiled block has more arguments".to_owned() };
    let (hidden, offset) = arrays.next().zip(arrays.next()).ok_or_else(too_few)?;
    let block = Block::from_arrays(geometry, &mut arrays)?;
    let past = arrays.next().zip(arrays.next());
    let past = past.as_ref().map(|(keys, values)| (keys, values));
    let (hidden, keys, values) = block.forward(geometry, &hidden, &offset, past, &mut Stock)?;
    Ok(vec![hidden, keys, values])
}
