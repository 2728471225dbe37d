//! The weights of one layer.

use fusion_calibrations::shape::{Layer, Layout, WeightFormat};
use mlx_rs::{Array, Dtype, ops};

use crate::error::{Doing as _, SplitError};

/// MLX packs quantised weights into words of 32 bits.
const WORD_BITS: i32 = 32;

/// The weights of one layer, as MLX keeps them.
#[derive(Debug, Clone)]
pub struct Weight {
    layer: Layer,
    numbers: Numbers,
}

#[derive(Debug, Clone)]
enum Numbers {
    /// `[N, K]` or `[K, N]`, as the layer's layout says.
    Plain(Array),
    /// `[N, K · bits / 32]` words; scales and biases `[N, K / group]`.
    Affine { packed: Array, scales: Array, biases: Array },
}

impl Weight {
    /// Plain weights: `[N, K]` or `[K, N]`, as `layout` says, of float32, float16 or bfloat16.
    ///
    /// # Errors
    /// [`SplitError::Weights`] for any other array.
    pub fn plain(array: Array, layout: Layout) -> Result<Self, SplitError> {
        let format = plain_format(array.dtype())
            .ok_or_else(|| bad(format!("their type is {:?}, not f32, f16 or bf16", array.dtype())))?;
        let &[rows, columns] = array.shape() else {
            return Err(bad(format!("they have {} dimensions, not 2", array.ndim())));
        };
        let (inputs, outputs) = match layout {
            Layout::OutputsByInputs => (columns, rows),
            Layout::InputsByOutputs => (rows, columns),
        };
        let layer = Layer::new(inputs, outputs, format, layout)?;
        Ok(Self { layer, numbers: Numbers::Plain(array) })
    }

    /// Weights that MLX quantised: `packed` `[N, K · bits / 32]` of uint32, `scales` and `biases` `[N, K / group]`.
    ///
    /// # Errors
    /// [`SplitError::Weights`] if the three don't fit together.
    pub fn affine(
        packed: Array,
        scales: Array,
        biases: Array,
        bits: u8,
        group: u8,
    ) -> Result<Self, SplitError> {
        let (&[outputs, words], &[scaled, groups]) = (packed.shape(), scales.shape()) else {
            return Err(bad("packed weights and scales must have 2 dimensions".to_owned()));
        };
        let inputs = groups * i32::from(group);
        let fits = packed.dtype() == Dtype::Uint32
            && scaled == outputs
            && scales.shape() == biases.shape()
            && words * WORD_BITS == inputs * i32::from(bits);
        if !fits {
            return Err(bad(format!(
                "packed {:?} of {:?}, scales {:?} and biases {:?} are not q{bits}/{group}",
                packed.shape(),
                packed.dtype(),
                scales.shape(),
                biases.shape()
            )));
        }
        let layer = Layer::new(inputs, outputs, WeightFormat::Affine { bits, group }, Layout::default())?;
        Ok(Self { layer, numbers: Numbers::Affine { packed, scales, biases } })
    }

    /// Quantises plain `[N, K]` weights on the stream in scope. Lazy.
    pub(crate) fn quantised(plain: &Array, bits: u8, group: u8) -> Result<Self, SplitError> {
        let (packed, scales, biases) =
            ops::quantize(plain, i32::from(group), i32::from(bits)).doing("quantising weights")?;
        Self::affine(packed, scales, biases, bits, group)
    }

    /// K, N, how a weight is encoded, and in which order they lie.
    pub fn layer(&self) -> Layer {
        self.layer
    }

    /// The lazy product of `rows` `[M, K]`, `[M, N]`, on the stream in scope.
    pub(crate) fn product(&self, rows: &Array) -> Result<Array, SplitError> {
        const DOING: &str = "building the product";
        match (&self.numbers, self.layer.format(), self.layer.layout()) {
            (Numbers::Affine { packed, scales, biases }, WeightFormat::Affine { bits, group }, _) => {
                let (group, bits) = (i32::from(group), i32::from(bits));
                ops::quantized_matmul(rows, packed, scales, biases, true, group, bits).doing(DOING)
            }
            (Numbers::Plain(array), _, Layout::OutputsByInputs) => {
                rows.matmul(array.transpose().doing(DOING)?).doing(DOING)
            }
            (Numbers::Plain(array), _, Layout::InputsByOutputs) => rows.matmul(array).doing(DOING),
            (Numbers::Affine { .. }, format, _) => Err(SplitError::FormatNotSupported { format }),
        }
    }

    /// The arrays that hold the numbers, in a fixed order.
    pub(crate) fn arrays(&self) -> Vec<&Array> {
        match &self.numbers {
            Numbers::Plain(array) => vec![array],
            Numbers::Affine { packed, scales, biases } => vec![packed, scales, biases],
        }
    }

    /// A weight of `layer` from arrays in the order of [`Self::arrays`]; `None` if there are too few.
    pub(crate) fn from_arrays(layer: Layer, arrays: &mut impl Iterator<Item = Array>) -> Option<Self> {
        let numbers = match layer.format() {
            WeightFormat::Affine { .. } => {
                Numbers::Affine { packed: arrays.next()?, scales: arrays.next()?, biases: arrays.next()? }
            }
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => Numbers::Plain(arrays.next()?),
        };
        Some(Self { layer, numbers })
    }
}

fn bad(reason: String) -> SplitError {
    SplitError::Weights { reason }
}

fn plain_format(dtype: Dtype) -> Option<WeightFormat> {
    match dtype {
        Dtype::Float32 => Some(WeightFormat::F32),
        Dtype::Float16 => Some(WeightFormat::F16),
        Dtype::Bfloat16 => Some(WeightFormat::Bf16),
        _ => None,
    }
}

/// The type of the numbers that go through a layer of this format.
pub(crate) fn activation_dtype(format: WeightFormat) -> Dtype {
    match format {
        WeightFormat::F32 => Dtype::Float32,
        WeightFormat::F16 | WeightFormat::Affine { .. } => Dtype::Float16,
        WeightFormat::Bf16 => Dtype::Bfloat16,
    }
}
