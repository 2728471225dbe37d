//! Shipped layer geometry of known models.
//!
//! One file per model under `data/models`, each with the evidence for its numbers. Only linear layers that stock runs as
//! `nn.Linear` are listed: experts of a mixture run through `gather_mm`, and the output head is dropped by prefill.

pub mod checkpoint;

use std::sync::LazyLock;

use serde::Deserialize;

use crate::shape::{Layer, Layout, ShapeError, WeightFormat};

const FILES: [&str; 29] = [
    include_str!("../../data/models/gemma-2-27b.toml"),
    include_str!("../../data/models/gemma-2-2b.toml"),
    include_str!("../../data/models/gemma-2-9b.toml"),
    include_str!("../../data/models/gemma-3-12b.toml"),
    include_str!("../../data/models/gemma-3-1b.toml"),
    include_str!("../../data/models/gemma-3-27b.toml"),
    include_str!("../../data/models/gemma-3-4b.toml"),
    include_str!("../../data/models/gpt-oss-20b.toml"),
    include_str!("../../data/models/gpt2-xl.toml"),
    include_str!("../../data/models/llama-3.1-8b.toml"),
    include_str!("../../data/models/llama-3.2-1b.toml"),
    include_str!("../../data/models/llama-3.2-3b.toml"),
    include_str!("../../data/models/mistral-7b-v0.3.toml"),
    include_str!("../../data/models/phi-3-mini-4k.toml"),
    include_str!("../../data/models/phi-4.toml"),
    include_str!("../../data/models/phi-4-mini.toml"),
    include_str!("../../data/models/qwen2.5-0.5b.toml"),
    include_str!("../../data/models/qwen2.5-1.5b.toml"),
    include_str!("../../data/models/qwen2.5-14b.toml"),
    include_str!("../../data/models/qwen2.5-32b.toml"),
    include_str!("../../data/models/qwen2.5-3b.toml"),
    include_str!("../../data/models/qwen2.5-7b.toml"),
    include_str!("../../data/models/qwen3-0.6b.toml"),
    include_str!("../../data/models/qwen3-1.7b.toml"),
    include_str!("../../data/models/qwen3-14b.toml"),
    include_str!("../../data/models/qwen3-30b-a3b.toml"),
    include_str!("../../data/models/qwen3-32b.toml"),
    include_str!("../../data/models/qwen3-4b.toml"),
    include_str!("../../data/models/qwen3-8b.toml"),
];

/// Names further than this share of edits from every known one get no suggestion.
const SUGGESTION_DISTANCE: f64 = 0.5;

/// Why a model can't be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// No shipped model has this name.
    #[error("unknown model '{name}'{}; 'fusionctl models list' shows all", suggest(.nearest))]
    Unknown {
        /// The name as it was given.
        name: String,
        /// The known name that looks most like it, if one does.
        nearest: Option<String>,
    },
    /// A shipped file is broken: a bug of this build.
    #[error("the built-in model files are broken ({reason}): please report this")]
    Broken {
        /// What is wrong, with the file's name where known.
        reason: String,
    },
}

fn suggest(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|nearest| format!("; did you mean '{nearest}'?")).unwrap_or_default()
}

/// The geometry of one model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The name that it is asked for by: lower case, as on the hub, without the publisher.
    pub name: String,
    /// Other accepted names.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// The name for people.
    pub title: String,
    /// Where the numbers come from.
    pub evidence: String,
    /// What a user should know: fused projections, experts that are not listed.
    #[serde(default)]
    pub note: Option<String>,
    /// Transformer blocks.
    pub blocks: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Width of the feed-forward part; of one expert in a mixture.
    pub intermediate: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Width of one head.
    pub head_dim: u32,
    /// Entries of the vocabulary.
    pub vocabulary: u32,
    /// The linear layers of one block, in order.
    pub linears: Vec<Linear>,
}

/// One named linear layer of a block.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// q, k, v, o, gate, up, down, or the fused qkv and gate_up.
    pub name: String,
    /// K.
    pub inputs: u32,
    /// N.
    pub outputs: u32,
}

/// A distinct layer of a model: what is measured once, however often it occurs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelLayer {
    /// The layer.
    pub layer: Layer,
    /// The names it has in a block, in order: `["k", "v"]`.
    pub names: Vec<String>,
}

impl ModelLayer {
    /// How often it occurs in one block.
    pub fn per_block(&self) -> usize {
        self.names.len()
    }

    /// Its names joined by commas: `k,v`.
    pub fn label(&self) -> String {
        self.names.join(",")
    }
}

impl Model {
    /// The distinct layers of a block in the given weight format and [`Layout::OutputsByInputs`], in order of first
    /// occurrence.
    ///
    /// # Errors
    /// [`ShapeError`] if the model's file holds an impossible dimension; no shipped one does.
    pub fn layers(&self, format: WeightFormat) -> Result<Vec<ModelLayer>, ShapeError> {
        let mut layers: Vec<ModelLayer> = Vec::new();
        for linear in &self.linears {
            let layer = Layer::new(linear.inputs, linear.outputs, format, Layout::default())?;
            match layers.iter_mut().find(|known| known.layer == layer) {
                Some(known) => known.names.push(linear.name.clone()),
                None => layers.push(ModelLayer { layer, names: vec![linear.name.clone()] }),
            }
        }
        Ok(layers)
    }
}

static MODELS: LazyLock<Result<Vec<Model>, String>> = LazyLock::new(|| {
    FILES
        .iter()
        .map(|text| {
            toml::from_str(text)
                .map_err(|error| format!("{}: {error}", text.lines().next().unwrap_or_default()))
        })
        .collect()
});

/// Every shipped model, in the order of the names.
///
/// # Errors
/// [`ModelError::Broken`] if a shipped file can't be read: a bug of this build that a test rules out.
pub fn all() -> Result<&'static [Model], ModelError> {
    MODELS.as_deref().map_err(|reason| ModelError::Broken { reason: reason.clone() })
}

/// The model called `name`. Case, a publisher before a slash, and `_` for `-` don't matter.
///
/// # Errors
/// [`ModelError::Unknown`] with the nearest known name.
pub fn find(name: &str) -> Result<&'static Model, ModelError> {
    let models = all()?;
    let wanted = normalise(name);
    models
        .iter()
        .find(|model| model.name == wanted || model.aliases.contains(&wanted))
        .ok_or_else(|| ModelError::Unknown { name: name.to_owned(), nearest: nearest(models, &wanted) })
}

fn normalise(name: &str) -> String {
    let name = name.trim();
    name.rsplit_once('/').map_or(name, |(_, name)| name).to_ascii_lowercase().replace(['_', ' '], "-")
}

fn nearest(models: &[Model], wanted: &str) -> Option<String> {
    models
        .iter()
        .flat_map(|model| std::iter::once(&model.name).chain(&model.aliases))
        .map(|name| (strsim::damerau_levenshtein(name, wanted), name))
        .min()
        .filter(|(edits, name)| (*edits as f64) <= SUGGESTION_DISTANCE * name.len() as f64)
        .map(|(_, name)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_reads_and_names_are_unique_and_sorted() {
        let models = all().unwrap();
        assert_eq!(models.len(), FILES.len());
        assert!(models.windows(2).all(|pair| pair[0].name < pair[1].name));
        for model in models {
            assert!(!model.evidence.is_empty() && !model.linears.is_empty(), "{}", model.name);
            assert_eq!(model.name, normalise(&model.name));
            model.layers(WeightFormat::F16).unwrap();
        }
    }

    #[test]
    fn attention_has_the_width_of_its_heads() {
        for model in all().unwrap() {
            let outputs = |name: &str| model.linears.iter().find(|l| l.name == name).map(|l| l.outputs);
            let (q, kv) = (model.heads * model.head_dim, model.kv_heads * model.head_dim);
            if let Some(qkv) = outputs("qkv") {
                assert_eq!(qkv, q + 2 * kv, "{}", model.name);
            } else {
                assert_eq!((outputs("q"), outputs("k")), (Some(q), Some(kv)), "{}", model.name);
            }
        }
    }

    #[test]
    fn equal_layers_are_measured_once() {
        let layers = find("qwen2.5-0.5b").unwrap().layers(WeightFormat::F32).unwrap();
        let labels: Vec<_> = layers.iter().map(ModelLayer::label).collect();
        assert_eq!(labels, ["q,o", "k,v", "gate,up", "down"]);
        assert_eq!((layers[2].layer.inputs(), layers[2].layer.outputs()), (896, 4864));
    }

    #[test]
    fn names_are_forgiving_and_typos_get_a_suggestion() {
        assert_eq!(find("Qwen/Qwen2.5_0.5B").unwrap().name, "qwen2.5-0.5b");
        assert_eq!(find("llama-3-8b").unwrap().name, "llama-3.1-8b");
        let message = find("qwen2.5-0.5").unwrap_err().to_string();
        assert!(message.contains("did you mean 'qwen2.5-0.5b'"), "{message}");
        let message = find("zzzzzzzzzzzzzz").unwrap_err().to_string();
        assert!(!message.contains("did you mean"), "{message}");
    }
}
