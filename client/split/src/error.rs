//! What can go wrong with a product.

use fusion_calibrations::shape::{Layer, Shape, ShapeError, WeightFormat};

/// Why a product could not be run.
#[derive(Debug, thiserror::Error)]
pub enum SplitError {
    /// Quantised weights in another layout than MLX's own.
    #[error("{format} weights are only supported in layout nk (outputs x inputs)")]
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
    /// The arrays are not the weights of a linear layer.
    #[error("these are not the weights of a linear layer: {reason}")]
    Weights {
        /// What is wrong with them.
        reason: String,
    },
    /// A layer's input has another width.
    #[error("an input of shape {shape:?} does not go through {layer}: its last dimension must be {}", layer.inputs())]
    Input {
        /// The input's shape.
        shape: Vec<i32>,
        /// The layer.
        layer: Layer,
    },
    /// An impossible dimension.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The model is built of other parts than a Llama.
    #[error("{model} has no layer '{missing}': only models with q, k, v, o, gate, up and down can be built")]
    NotLlama {
        /// The model's name.
        model: String,
        /// The layer that it lacks.
        missing: &'static str,
    },
    /// A cache of another model.
    #[error("the cache has {found} blocks, the model {blocks}: a cache belongs to the model that made it")]
    ForeignCache {
        /// Blocks of the cache.
        found: usize,
        /// Blocks of the model.
        blocks: usize,
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

impl SplitError {
    /// For closures that MLX calls, which can only fail in MLX's own way.
    pub(crate) fn into_mlx(self) -> mlx_rs::error::Exception {
        match self {
            Self::Mlx { source, .. } => source,
            other => mlx_rs::error::Exception::custom(other.to_string()),
        }
    }
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
