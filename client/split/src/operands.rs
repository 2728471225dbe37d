//! The inputs of a product.

use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use mlx_rs::{Array, Dtype, ops::indexing::IndexOp as _, random, transforms, with_stream};

use crate::{
    Units,
    error::{Doing as _, SplitError},
};

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
    /// As the shape's layout says: `[N, K]` or `[K, N]`.
    weights: Array,
}

impl Operands {
    /// Random operands of `shape` for these units, the same for the same `seed`, materialised. They are uniform with standard
    /// deviation 0.02: what is timed does not depend on the distribution, and a normal one takes far longer to make.
    ///
    /// # Errors
    /// [`SplitError::FormatNotSupported`] for quantised weights; [`SplitError::Mlx`] if they cannot be made, for want
    /// of memory say.
    pub fn synthetic(units: &Units, shape: Shape, seed: u64) -> Result<Self, SplitError> {
        let dtype = dtype(shape.layer().format())?;
        let layer = shape.layer();
        let (m, k, n) = (shape.rows(), layer.inputs() as i32, layer.outputs() as i32);
        let weights = match layer.layout() {
            Layout::OutputsByInputs => [n, k],
            Layout::InputsByOutputs => [k, n],
        };
        with_stream(units.primary(), || {
            let tall = noise(&[units.worked_rows(m) as i32, k], dtype, seed)?;
            let rows = tall.index(0..m as i32);
            transforms::eval([&rows]).doing("making synthetic operands")?;
            let weights = noise(&weights, dtype, seed.wrapping_add(1))?;
            Ok(Self { shape, rows, tall, weights })
        })
    }

    /// What is multiplied.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The lazy product of some rows, which may reach into the ballast, on the stream in scope.
    pub(crate) fn product(&self, rows: std::ops::Range<u32>) -> Result<Array, SplitError> {
        let whole = rows == (0..self.shape.rows());
        let weights = match self.shape.layer().layout() {
            Layout::OutputsByInputs => &self.weights.transpose().doing("transposing the weights")?,
            Layout::InputsByOutputs => &self.weights,
        };
        // Stock cuts no rows, so the unsplit product doesn't pay for a cut either.
        let part = if whole { &self.rows } else { &self.tall.index(rows.start as i32..rows.end as i32) };
        part.matmul(weights).doing("building the product")
    }
}

fn dtype(format: WeightFormat) -> Result<Dtype, SplitError> {
    match format {
        WeightFormat::F32 => Ok(Dtype::Float32),
        WeightFormat::F16 => Ok(Dtype::Float16),
        WeightFormat::Bf16 => Ok(Dtype::Bfloat16),
        WeightFormat::Affine { .. } => Err(SplitError::FormatNotSupported { format }),
    }
}

fn noise(shape: &[i32], dtype: Dtype, seed: u64) -> Result<Array, SplitError> {
    let doing = "making synthetic operands";
    let key = random::key(seed).doing(doing)?;
    // The standard deviation of a uniform distribution on [-a, a] is a / sqrt(3).
    let bound = SCALE * 3f32.sqrt();
    let numbers = random::uniform::<_, f32>(-bound, bound, shape, &key).doing(doing)?;
    let numbers = numbers.as_dtype(dtype).doing(doing)?;
    transforms::eval([&numbers]).doing(doing)?;
    Ok(numbers)
}
