//! What can go wrong with a product.

use fusion_calibrations::shape::{Shape, WeightFormat};

/// Why a product could not be run.
#[derive(Debug, thiserror::Error)]
pub enum SplitError {
    /// Quantised weights cannot be split yet.
    #[error("{format} weights are not supported yet: use f32, f16 or bf16")]
    FormatNotSupported {
        /// The format that was asked for.
        format: WeightFormat,
    },
    /// More rows for the secondary unit than there are.
    #[error("{secondary_rows} rows for the secondary unit, but {shape} has {}: ask for at most that many", shape.rows())]
    TooManyRows {
        /// Rows that were asked for.
        secondary_rows: u32,
        /// The shape of the operands.
        shape: Shape,
    },
    /// The operands do not fit into memory.
    #[error(
        "{shape} does not fit into memory: it needs {needed_bytes} bytes, {limit_bytes} are allowed; \
         measure fewer rows or raise the worker's memory limit"
    )]
    OutOfMemory {
        /// The shape that was asked for.
        shape: Shape,
        /// Bytes that it takes, ballast included.
        needed_bytes: u64,
        /// Bytes that may be used.
        limit_bytes: u64,
    },
    /// The results to compare have different shapes.
    #[error("cannot compare a result of {left:?} with one of {right:?} (rows, outputs)")]
    DifferentShapes {
        /// Rows and outputs of the first.
        left: Vec<i32>,
        /// Rows and outputs of the second.
        right: Vec<i32>,
    },
    /// MLX itself failed.
    #[error("MLX failed while {doing}: {}", source.what())]
    Mlx {
        /// What was being done.
        doing: &'static str,
        /// MLX's own words.
        source: mlx_rs::error::Exception,
    },
    /// The operating system refused something.
    #[error("{doing} failed: {source}")]
    System {
        /// What was being done.
        doing: String,
        /// The system's own words.
        source: std::io::Error,
    },
}

/// Attaches what was being done to an error of MLX.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, SplitError>;
}

impl<T> Doing<T> for mlx_rs::error::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T, SplitError> {
        self.map_err(|source| SplitError::Mlx { doing, source })
    }
}
