//! Layers and shapes: one linear map, and that map applied to a number of rows.

use std::fmt;
use std::str::FromStr;

/// The largest number of inputs, outputs or rows that is accepted. Larger than any published vocabulary (262,208) or
/// context by far, and small enough that no product of three of them overflows a `u128`, and of two a `u64`.
pub const MAX_DIMENSION: u32 = 1 << 24;

/// Why a layer or a shape can't be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A dimension is zero or negative.
    #[error("{dimension} is {value}, but must be at least 1")]
    TooSmall {
        /// Which of "rows", "inputs" and "outputs".
        dimension: &'static str,
        /// The value as it was given.
        value: String,
    },
    /// A dimension is above [`MAX_DIMENSION`].
    #[error("{dimension} is {value}, but at most {MAX_DIMENSION} is supported")]
    TooLarge {
        /// Which of "rows", "inputs" and "outputs".
        dimension: &'static str,
        /// The value as it was given.
        value: String,
    },
    /// The text isn't of the form `MxKxN`.
    #[error("'{text}' is not a shape: write rows x inputs x outputs, for example 512x896x4864")]
    Form {
        /// The text as it was given.
        text: String,
    },
    /// The weight format is unknown.
    #[error("unknown weight format '{text}': use one of f32, f16, bf16, q4/64, q8/64 (q<bits>/<group>)")]
    Format {
        /// The text as it was given.
        text: String,
    },
    /// The layout is unknown.
    #[error("unknown layout '{text}': use 'nk' (outputs x inputs, as nn.Linear keeps it) or 'kn'")]
    Layout {
        /// The text as it was given.
        text: String,
    },
}

/// How the weights of a layer are encoded. Activations have the float type named, or f16 next to quantised weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightFormat {
    /// IEEE single precision, 4 bytes a weight.
    F32,
    /// IEEE half precision, 2 bytes a weight.
    F16,
    /// bfloat16, 2 bytes a weight.
    Bf16,
    /// MLX's affine quantisation: `bits` per weight, one f16 scale and bias per `group` of weights.
    Affine {
        /// Bits per weight: 2, 3, 4, 5, 6 or 8.
        bits: u8,
        /// Weights that share one scale and bias: 32, 64 or 128.
        group: u8,
    },
}

impl WeightFormat {
    /// Bytes that `weights` weights take in this format.
    pub fn weight_bytes(self, weights: u64) -> u64 {
        match self {
            Self::F32 => weights * 4,
            Self::F16 | Self::Bf16 => weights * 2,
            Self::Affine { bits, group } => weights * u64::from(bits) / 8 + weights / u64::from(group) * 4,
        }
    }

    /// Bytes of one activation that goes through a layer of this format.
    pub fn activation_bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 | Self::Affine { .. } => 2,
        }
    }

    /// The largest accepted difference between a split product and the unsplit one, as max|a-b| / max|b|.
    ///
    /// Both sum `inputs` products of the same numbers in another order, so the bound grows with the square root of the
    /// number of terms (the usual probabilistic bound on rounding errors: Higham and Mary, 2019) times the unit round-off,
    /// with a factor of 8 for the largest of many outputs. Observed by FusionML on f16 at 4096..14336 inputs:
    /// 3.0e-3 to 3.9e-3 over a whole block.
    pub fn relative_error_bound(self, inputs: u32) -> f64 {
        let unit_round_off = match self {
            Self::F32 => 2f64.powi(-24),
            Self::F16 | Self::Affine { .. } => 2f64.powi(-11),
            Self::Bf16 => 2f64.powi(-8),
        };
        // Half-precision kernels accumulate in single precision: only the final rounding is of the narrow type.
        let terms = match self {
            Self::F32 => f64::from(inputs).sqrt(),
            Self::F16 | Self::Bf16 | Self::Affine { .. } => 1.0,
        };
        8.0 * terms * unit_round_off
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 => f.write_str("f32"),
            Self::F16 => f.write_str("f16"),
            Self::Bf16 => f.write_str("bf16"),
            Self::Affine { bits, group } => write!(f, "q{bits}/{group}"),
        }
    }
}

impl FromStr for WeightFormat {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let unknown = || ShapeError::Format { text: text.to_owned() };
        match text {
            "f32" | "float32" => Ok(Self::F32),
            "f16" | "float16" => Ok(Self::F16),
            "bf16" | "bfloat16" => Ok(Self::Bf16),
            quantised => {
                let (bits, group) =
                    quantised.strip_prefix('q').and_then(|rest| rest.split_once('/')).ok_or_else(unknown)?;
                let bits = bits.parse().ok().filter(|bits| matches!(bits, 2..=6 | 8)).ok_or_else(unknown)?;
                let group =
                    group.parse().ok().filter(|group| matches!(group, 32 | 64 | 128)).ok_or_else(unknown)?;
                Ok(Self::Affine { bits, group })
            }
        }
    }
}

/// In which order the weights lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Layout {
    /// `[N, K]`, outputs x inputs: how `nn.Linear` keeps them.
    #[default]
    OutputsByInputs,
    /// `[K, N]`, inputs x outputs.
    InputsByOutputs,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutputsByInputs => "nk",
            Self::InputsByOutputs => "kn",
        })
    }
}

impl FromStr for Layout {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        match text {
            "nk" => Ok(Self::OutputsByInputs),
            "kn" => Ok(Self::InputsByOutputs),
            other => Err(ShapeError::Layout { text: other.to_owned() }),
        }
    }
}

fn dimension(name: &'static str, value: i128) -> Result<u32, ShapeError> {
    if value < 1 {
        return Err(ShapeError::TooSmall { dimension: name, value: value.to_string() });
    }
    u32::try_from(value)
        .ok()
        .filter(|value| *value <= MAX_DIMENSION)
        .ok_or_else(|| ShapeError::TooLarge { dimension: name, value: value.to_string() })
}

/// One linear map: K inputs, N outputs, and how its weights are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Layer {
    inputs: u32,
    outputs: u32,
    format: WeightFormat,
    layout: Layout,
}

impl Layer {
    /// A layer of `inputs` (K) and `outputs` (N).
    ///
    /// # Errors
    /// [`ShapeError::TooSmall`] or [`ShapeError::TooLarge`], naming the dimension.
    pub fn new(
        inputs: impl Into<i128>,
        outputs: impl Into<i128>,
        format: WeightFormat,
        layout: Layout,
    ) -> Result<Self, ShapeError> {
        Ok(Self {
            inputs: dimension("inputs", inputs.into())?,
            outputs: dimension("outputs", outputs.into())?,
            format,
            layout,
        })
    }

    /// K, the number of inputs of a row.
    pub fn inputs(self) -> u32 {
        self.inputs
    }

    /// N, the number of outputs of a row.
    pub fn outputs(self) -> u32 {
        self.outputs
    }

    /// How a weight is encoded.
    pub fn format(self) -> WeightFormat {
        self.format
    }

    /// In which order the weights lie.
    pub fn layout(self) -> Layout {
        self.layout
    }

    /// Multiplications and additions for one row.
    pub fn flops_per_row(self) -> f64 {
        2.0 * f64::from(self.inputs) * f64::from(self.outputs)
    }

    /// This layer applied to `rows` rows.
    ///
    /// # Errors
    /// [`ShapeError::TooSmall`] or [`ShapeError::TooLarge`] for the rows.
    pub fn with_rows(self, rows: impl Into<i128>) -> Result<Shape, ShapeError> {
        Ok(Shape { rows: dimension("rows", rows.into())?, layer: self })
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{} {} {}", self.inputs, self.outputs, self.format, self.layout)
    }
}

/// A layer plus the number of rows (M) that go through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    rows: u32,
    layer: Layer,
}

impl Shape {
    /// Parses `MxKxN` (rows, inputs, outputs), the weights in the given format and layout.
    ///
    /// # Errors
    /// [`ShapeError`], naming what is wrong with the text or with a dimension.
    pub fn parse(text: &str, format: WeightFormat, layout: Layout) -> Result<Self, ShapeError> {
        let form = || ShapeError::Form { text: text.to_owned() };
        let sizes: Vec<i128> = text
            .split(['x', 'X', '×'])
            .map(|size| size.trim().parse::<i128>().map_err(|_| form()))
            .collect::<Result<_, _>>()?;
        let [rows, inputs, outputs] = sizes[..] else { return Err(form()) };
        Layer::new(inputs, outputs, format, layout)?.with_rows(rows)
    }

    /// M, the number of rows.
    pub fn rows(self) -> u32 {
        self.rows
    }

    /// The layer that the rows go through.
    pub fn layer(self) -> Layer {
        self.layer
    }

    /// Multiplications and additions of the whole product.
    pub fn flops(self) -> f64 {
        f64::from(self.rows) * self.layer.flops_per_row()
    }

    /// Bytes that measuring this shape keeps in memory: inputs, weights, and the result three times (unsplit, both
    /// parts, and the parts joined).
    pub fn working_set_bytes(self) -> u64 {
        let (rows, inputs, outputs) =
            (u64::from(self.rows), u64::from(self.layer.inputs), u64::from(self.layer.outputs));
        let activation = self.layer.format.activation_bytes();
        rows * inputs * activation
            + self.layer.format.weight_bytes(inputs * outputs)
            + 3 * rows * outputs * activation
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.layer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Shape, ShapeError> {
        Shape::parse(text, WeightFormat::F32, Layout::default())
    }

    #[test]
    fn a_shape_is_rows_inputs_outputs() {
        let shape = parse("512x896x4864").unwrap();
        assert_eq!((shape.rows(), shape.layer().inputs(), shape.layer().outputs()), (512, 896, 4864));
        assert_eq!(shape.to_string(), "512x896x4864 f32 nk");
        assert_eq!(shape.working_set_bytes(), 4 * (512 * 896 + 896 * 4864 + 3 * 512 * 4864));
    }

    #[test]
    fn impossible_dimensions_are_named() {
        assert_eq!(
            parse("0x1x1").unwrap_err(),
            ShapeError::TooSmall { dimension: "rows", value: "0".to_owned() }
        );
        assert_eq!(
            parse("1x-4x1").unwrap_err(),
            ShapeError::TooSmall { dimension: "inputs", value: "-4".to_owned() }
        );
        assert!(matches!(
            parse("1x1x99999999999999999999").unwrap_err(),
            ShapeError::TooLarge { dimension: "outputs", .. }
        ));
        for text in ["", "1x2", "1x2x3x4", "axbxc", "1.5x2x3", "1x2x340282366920938463463374607431768211456"]
        {
            assert!(matches!(parse(text).unwrap_err(), ShapeError::Form { .. }), "{text}");
        }
    }

    #[test]
    fn the_largest_shape_overflows_nothing() {
        let largest = Layer::new(MAX_DIMENSION, MAX_DIMENSION, WeightFormat::F32, Layout::default())
            .unwrap()
            .with_rows(MAX_DIMENSION)
            .unwrap();
        assert_eq!(largest.working_set_bytes(), 5 * 4 * (1u64 << 48));
    }

    proptest! {
        #[test]
        fn formats_and_layouts_survive_their_text(bits in prop::sample::select(vec![2u8, 3, 4, 5, 6, 8]), group in prop::sample::select(vec![32u8, 64, 128])) {
            let quantised = WeightFormat::Affine { bits, group };
            for format in [WeightFormat::F32, WeightFormat::F16, WeightFormat::Bf16, quantised] {
                prop_assert_eq!(format.to_string().parse::<WeightFormat>().unwrap(), format);
            }
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,40}") {
            let _ = parse(&text);
            let _ = text.parse::<WeightFormat>();
        }
    }
}
