//! `fusionctl.history/1`.

use std::path::Path;

use fusion_client::v1;
use serde::Serialize;

use super::shared::{Estimate, Shape};

/// The past of a shape.
#[derive(Debug, Serialize)]
pub(crate) struct History {
    shape: Shape,
    kept: u32,
    estimates: Vec<Estimate>,
    plot: Option<Plot>,
}

/// A picture that was written.
#[derive(Debug, Serialize)]
pub(crate) struct Plot {
    path: String,
    format: &'static str,
    bytes: usize,
}

impl Plot {
    pub(crate) fn new(path: &Path, format: &'static str, bytes: usize) -> Self {
        Self { path: path.display().to_string(), format, bytes }
    }
}

impl History {
    pub(crate) fn new(shape: &v1::Shape, reply: &v1::ListHistoryReply, plot: Option<Plot>) -> Self {
        Self {
            shape: shape.into(),
            kept: reply.total,
            estimates: reply.estimates.iter().map(Into::into).collect(),
            plot,
        }
    }
}
