//! The sizes of a model's blocks.

use fusion_calibrations::{
    models,
    shape::{Layer, Layout, WeightFormat},
};

use crate::SplitError;

/// The linear layers of a block, in order.
pub(super) const LINEARS: [&str; 7] = ["q", "k", "v", "o", "gate", "up", "down"];

/// The sizes of a Llama-like model's blocks, and how its weights are encoded.
#[derive(Debug, Clone, PartialEq)]
pub struct Geometry {
    name: String,
    blocks: usize,
    heads: i32,
    kv_heads: i32,
    head_dim: i32,
    /// In the order of [`LINEARS`].
    layers: [Layer; 7],
}

impl Geometry {
    /// The geometry of a shipped model. What is peculiar to a family (biases, norms of queries and keys, other activations) is
    /// left out: it has no part in the linear layers' time.
    ///
    /// # Errors
    /// [`SplitError::NotLlama`] for fused projections and mixtures of experts; [`SplitError::Shape`] for impossible sizes.
    pub fn new(model: &models::Model, format: WeightFormat) -> Result<Self, SplitError> {
        let layer = |name: &'static str| {
            let linear = model
                .linears
                .iter()
                .find(|linear| linear.name == name)
                .ok_or_else(|| SplitError::NotLlama { model: model.name.clone(), missing: name })?;
            Ok::<_, SplitError>(Layer::new(linear.inputs, linear.outputs, format, Layout::default())?)
        };
        let [q, k, v, o, gate, up, down] = LINEARS;
        Ok(Self {
            name: model.name.clone(),
            blocks: model.blocks as usize,
            heads: model.heads as i32,
            kv_heads: model.kv_heads as i32,
            head_dim: model.head_dim as i32,
            layers: [layer(q)?, layer(k)?, layer(v)?, layer(o)?, layer(gate)?, layer(up)?, layer(down)?],
        })
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Blocks of the whole model.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Width of the residual stream.
    pub fn hidden(&self) -> u32 {
        self.layers[0].inputs()
    }

    /// How weights are encoded.
    pub fn format(&self) -> WeightFormat {
        self.layers[0].format()
    }

    /// The linear layers of a block: q, k, v, o, gate, up, down.
    pub fn layers(&self) -> [Layer; 7] {
        self.layers
    }

    /// Query heads.
    pub fn heads(&self) -> i32 {
        self.heads
    }

    /// Key and value heads.
    pub fn kv_heads(&self) -> i32 {
        self.kv_heads
    }

    /// Width of a head.
    pub fn head_dim(&self) -> i32 {
        self.head_dim
    }

    /// The largest accepted relative error of one block's result in another arm, no unit: that of its widest layer.
    pub fn relative_error_bound(&self) -> f64 {
        let widest = self.layers.iter().map(|layer| layer.inputs()).max().unwrap_or(1);
        self.format().relative_error_bound(widest)
    }
}
