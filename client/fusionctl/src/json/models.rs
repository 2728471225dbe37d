//! `fusionctl.models.list/1` and `fusionctl.models.show/1`.

use fusion_calibrations::models;
use fusion_calibrations::shape::WeightFormat;
use serde::Serialize;

use crate::failure::Failure;

#[derive(Debug, Serialize)]
pub(crate) struct List {
    models: Vec<Summary>,
}

#[derive(Debug, Serialize)]
struct Summary {
    name: String,
    aliases: Vec<String>,
    title: String,
    blocks: u32,
    hidden: u32,
    intermediate: u32,
}

impl From<&models::Model> for Summary {
    fn from(model: &models::Model) -> Self {
        Self {
            name: model.name.clone(),
            aliases: model.aliases.clone(),
            title: model.title.clone(),
            blocks: model.blocks,
            hidden: model.hidden,
            intermediate: model.intermediate,
        }
    }
}

impl From<&[models::Model]> for List {
    fn from(models: &[models::Model]) -> Self {
        Self { models: models.iter().map(Into::into).collect() }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Model {
    #[serde(flatten)]
    summary: Summary,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    vocabulary: u32,
    evidence: String,
    note: Option<String>,
    layers: Vec<Layer>,
}

#[derive(Debug, Serialize)]
struct Layer {
    names: Vec<String>,
    inputs: u32,
    outputs: u32,
}

impl Model {
    pub(crate) fn new(model: &models::Model) -> Result<Self, Failure> {
        let layer = |known: models::ModelLayer| Layer {
            inputs: known.layer.inputs(),
            outputs: known.layer.outputs(),
            names: known.names,
        };
        Ok(Self {
            summary: model.into(),
            heads: model.heads,
            kv_heads: model.kv_heads,
            head_dim: model.head_dim,
            vocabulary: model.vocabulary,
            evidence: model.evidence.clone(),
            note: model.note.clone(),
            // The sizes are the same in every format.
            layers: model.layers(WeightFormat::F32)?.into_iter().map(layer).collect(),
        })
    }
}
