//! The inputs of a product.

use fusion_calibrations::shape::{Layer, Layout, Shape, WeightFormat};
use mlx_rs::{Array, Dtype, ops::indexing::IndexOp as _, random, transforms, with_stream};

use crate::{
    Units,
    error::{Doing as _, SplitError},
    weight::{Weight, activation_dtype},
};

const DOING: &str = "making synthetic operands";

/// Standard deviation of the synthetic numbers: that of trained weights, so that half precision neither overflows nor
/// flushes to zero.
const SCALE: f32 = 0.02;

/// Rows and weights of one shape, in memory and computed.
#[derive(Debug)]
pub struct Operands {
    shape: Shape,
    /// `[M, K]`: a view of the first rows of `tall`.
    rows: Array,
    /// Rows with ballast below them, as many as the secondary unit of the pair multiplies for all M.
    tall: Array,
    weight: Weight,
}

impl Operands {
    /// Random operands of `shape` for these units, the same for the same `seed`, materialised. They are uniform with standard
    /// deviation 0.02: what is timed does not depend on the distribution, and a normal one takes far longer to make.
    ///
    /// # Errors
    /// [`SplitError::FormatNotSupported`] for quantised weights in layout `kn`; [`SplitError::Mlx`] if they cannot be made,
    /// for want of memory say, or because MLX does not quantise such a shape.
    pub fn synthetic(units: &Units, shape: Shape, seed: u64) -> Result<Self, SplitError> {
        let layer = shape.layer();
        let (m, k) = (shape.rows(), layer.inputs() as i32);
        with_stream(units.primary(), || {
            let dtype = activation_dtype(layer.format());
            let tall = noise(&[units.worked_rows(m) as i32, k], dtype, seed)?;
            let rows = tall.index(0..m as i32);
            transforms::eval([&rows]).doing(DOING)?;
            Ok(Self { shape, rows, tall, weight: synthetic_weight(layer, seed.wrapping_add(1))? })
        })
    }

    /// What is multiplied.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The lazy product of some rows, which may reach into the ballast, on the stream in scope.
    pub(crate) fn product(&self, rows: std::ops::Range<u32>) -> Result<Array, SplitError> {
        let whole = rows == (0..self.shape.rows());
        // Stock cuts no rows, so the unsplit product doesn't pay for a cut either.
        let part = if whole { &self.rows } else { &self.tall.index(rows.start as i32..rows.end as i32) };
        self.weight.product(part)
    }
}

/// Random materialised weights of `layer`, made on the stream in scope.
pub(crate) fn synthetic_weight(layer: Layer, seed: u64) -> Result<Weight, SplitError> {
    let (k, n) = (layer.inputs() as i32, layer.outputs() as i32);
    let shape = match layer.layout() {
        Layout::OutputsByInputs => [n, k],
        Layout::InputsByOutputs => [k, n],
    };
    let numbers = noise(&shape, activation_dtype(layer.format()), seed)?;
    match (layer.format(), layer.layout()) {
        (WeightFormat::Affine { bits, group }, Layout::OutputsByInputs) => {
            let weight = Weight::quantised(&numbers, bits, group)?;
            transforms::eval(weight.arrays()).doing(DOING)?;
            Ok(weight)
        }
        // MLX quantises along K, which lies across memory here.
        (format @ WeightFormat::Affine { .. }, Layout::InputsByOutputs) => {
            Err(SplitError::FormatNotSupported { format })
        }
        (_, layout) => Weight::plain(numbers, layout),
    }
}

/// Random numbers, materialised, made on the stream in scope.
pub(crate) fn noise(shape: &[i32], dtype: Dtype, seed: u64) -> Result<Array, SplitError> {
    let key = random::key(seed).doing(DOING)?;
    // The standard deviation of a uniform distribution on [-a, a] is a / sqrt(3).
    let bound = SCALE * 3f32.sqrt();
    let numbers = random::uniform::<_, f32>(-bound, bound, shape, &key).doing(DOING)?;
    let numbers = numbers.as_dtype(dtype).doing(DOING)?;
    transforms::eval([&numbers]).doing(DOING)?;
    Ok(numbers)
}
