//! What a checkpoint's `config.json` says of its linear layers: Hugging Face's form, with MLX-LM's quantisation.
//!
//! Understood are dense decoders of the Llama kind, fused projections (Phi-3, GPT-NeoX, GPT-2), and the attention and shared experts of
//! mixtures. What can't be split is named and left out: routed experts run through `gather_mm`, the output head sees one row in a prefill.
//! Names and shapes follow mlx-lm's `models/*.py`; quantisation its `utils.py`: `quantization` holds `bits` and `group_size`, and, by the path of
//! a module, what differs from that (`false` for a module that isn't quantised).

use serde::Deserialize;
use serde_json::Value;

use crate::shape::{Layer, Layout, ShapeError, WeightFormat};

/// Blocks that are read at most: more than any published model has by far.
const MOST_BLOCKS: u32 = 1024;

/// Why a `config.json` says nothing of use.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// It is no JSON, or not of this form.
    #[error("this is no model's config.json: {0}")]
    Form(#[from] serde_json::Error),
    /// A kind of model that isn't known.
    #[error(
        "models of type '{0}' aren't known here: put the layers into a shape set, or ask for the type to be added"
    )]
    UnknownType(String),
    /// A number is missing.
    #[error("the config.json of a '{model_type}' has no '{field}'")]
    Missing {
        /// The model's type.
        model_type: String,
        /// What is missing.
        field: &'static str,
    },
    /// A number can't be.
    #[error("the config.json holds an impossible number: {0}")]
    Shape(#[from] ShapeError),
    /// A number can't be.
    #[error("{0} blocks are more than any model has ({MOST_BLOCKS} at most)")]
    TooManyBlocks(u32),
}

/// The linear layers of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// `model_type` of the language model: "qwen2".
    pub model_type: String,
    /// The distinct layers that can be split, in order of first occurrence, each with one of its names.
    pub layers: Vec<(Layer, String)>,
    /// What can't be split, and why, each once.
    pub skipped: Vec<String>,
}

impl Checkpoint {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// Every [`CheckpointError`].
    pub fn parse(config_json: &str) -> Result<Self, CheckpointError> {
        let whole: Config = serde_json::from_str(config_json)?;
        let quantisation = whole.quantisation();
        let dtype = whole.dtype.clone();
        // A multimodal model keeps its language model's numbers in a part of its own.
        let mut config = match whole.text_config {
            Some(text) => *text,
            None => whole,
        };
        let kind = Kind::of(&config.model_type)
            .ok_or_else(|| CheckpointError::UnknownType(config.model_type.clone()))?;
        config.dtype = config.dtype.or(dtype);
        let quantisation = config.quantisation().or(quantisation);
        let mut found = Finder { config: &config, quantisation, layers: Vec::new(), skipped: Vec::new() };
        found.all(kind)?;
        let Finder { layers, skipped, .. } = found;
        Ok(Self { model_type: config.model_type, layers, skipped })
    }
}

/// The numbers of a `config.json` that matter here.
#[derive(Debug, Deserialize)]
struct Config {
    #[serde(default)]
    model_type: String,
    #[serde(alias = "n_embd")]
    hidden_size: Option<u32>,
    #[serde(alias = "n_inner")]
    intermediate_size: Option<u32>,
    #[serde(alias = "n_head")]
    num_attention_heads: Option<u32>,
    num_key_value_heads: Option<u32>,
    head_dim: Option<u32>,
    #[serde(alias = "n_layer")]
    num_hidden_layers: Option<u32>,
    #[serde(alias = "torch_dtype")]
    dtype: Option<String>,
    #[serde(alias = "num_local_experts")]
    num_experts: Option<u32>,
    shared_expert_intermediate_size: Option<u32>,
    quantization: Option<Value>,
    quantization_config: Option<Value>,
    text_config: Option<Box<Config>>,
}

impl Config {
    fn quantisation(&self) -> Option<Value> {
        self.quantization.clone().or_else(|| self.quantization_config.clone()).filter(Value::is_object)
    }

    fn need(&self, field: &'static str, value: Option<u32>) -> Result<u32, CheckpointError> {
        value.ok_or_else(|| CheckpointError::Missing { model_type: self.model_type.clone(), field })
    }
}

/// How a type of model names and fuses its projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// q, k, v, o; gate, up, down.
    Llama,
    /// The same attention; routed experts, and sometimes a shared one.
    Mixture,
    /// qkv and gate_up fused.
    Phi3,
    /// qkv fused, a plain feed-forward part.
    NeoX,
    /// The same by other names.
    Gpt2,
}

impl Kind {
    fn of(model_type: &str) -> Option<Self> {
        Some(match model_type {
            "llama" | "mistral" | "qwen2" | "qwen3" | "gemma" | "gemma2" | "gemma3_text" | "olmo2"
            | "smollm3" | "granite" | "cohere" | "cohere2" | "exaone" | "helium" | "seed_oss" => Self::Llama,
            "mixtral" | "qwen2_moe" | "qwen3_moe" | "gpt_oss" | "olmoe" | "phimoe" => Self::Mixture,
            "phi3" => Self::Phi3,
            "gpt_neox" => Self::NeoX,
            "gpt2" => Self::Gpt2,
            _ => return None,
        })
    }
}

struct Finder<'a> {
    config: &'a Config,
    quantisation: Option<Value>,
    layers: Vec<(Layer, String)>,
    skipped: Vec<String>,
}

impl Finder<'_> {
    fn all(&mut self, kind: Kind) -> Result<(), CheckpointError> {
        let config = self.config;
        let blocks = config.need("num_hidden_layers", config.num_hidden_layers)?;
        if blocks > MOST_BLOCKS {
            return Err(CheckpointError::TooManyBlocks(blocks));
        }
        for block in 0..blocks {
            match kind {
                Kind::Llama => {
                    self.attention(block)?;
                    let width = config.need("intermediate_size", config.intermediate_size)?;
                    self.feed_forward(&format!("model.layers.{block}.mlp"), width)?;
                }
                Kind::Mixture => {
                    self.attention(block)?;
                    self.experts(block)?;
                }
                Kind::Phi3 => self.fused(block, PHI3)?,
                Kind::NeoX => self.fused(block, NEOX)?,
                Kind::Gpt2 => self.fused(block, GPT2)?,
            }
        }
        self.skip("lm_head: a prefill computes it for one row".to_owned());
        Ok(())
    }

    /// Width of the residual stream, of all query heads, and of all key (or value) heads.
    fn widths(&self) -> Result<(u32, u32, u32), CheckpointError> {
        let config = self.config;
        let hidden = config.need("hidden_size", config.hidden_size)?;
        let heads = config.need("num_attention_heads", config.num_attention_heads)?;
        let head = config.head_dim.unwrap_or(hidden / heads.max(1));
        let kv_heads = config.num_key_value_heads.unwrap_or(heads);
        Ok((hidden, heads.saturating_mul(head), kv_heads.saturating_mul(head)))
    }

    fn attention(&mut self, block: u32) -> Result<(), CheckpointError> {
        let (hidden, queries, keys) = self.widths()?;
        let path = format!("model.layers.{block}.self_attn");
        for (name, inputs, outputs) in [
            ("q_proj", hidden, queries),
            ("k_proj", hidden, keys),
            ("v_proj", hidden, keys),
            ("o_proj", queries, hidden),
        ] {
            self.layer(&format!("{path}.{name}"), name, inputs, outputs)?;
        }
        Ok(())
    }

    fn feed_forward(&mut self, path: &str, width: u32) -> Result<(), CheckpointError> {
        let (hidden, ..) = self.widths()?;
        for (name, inputs, outputs) in
            [("gate_proj", hidden, width), ("up_proj", hidden, width), ("down_proj", width, hidden)]
        {
            self.layer(&format!("{path}.{name}"), name, inputs, outputs)?;
        }
        Ok(())
    }

    fn experts(&mut self, block: u32) -> Result<(), CheckpointError> {
        let experts = self.config.need("num_experts", self.config.num_experts)?;
        self.skip(format!("{experts} routed experts: they run through gather_mm, each with a few rows"));
        self.skip("router: it is too small".to_owned());
        match self.config.shared_expert_intermediate_size.filter(|width| *width > 0) {
            Some(width) => self.feed_forward(&format!("model.layers.{block}.mlp.shared_expert"), width),
            None => Ok(()),
        }
    }

    fn fused(&mut self, block: u32, names: Fused) -> Result<(), CheckpointError> {
        let (hidden, queries, keys) = self.widths()?;
        let width = match self.config.intermediate_size {
            Some(width) => width,
            // GPT-2's `n_inner` is null where it is four times the hidden size.
            None if names.quadruple => hidden.saturating_mul(4),
            None => self.config.need("intermediate_size", None)?,
        };
        let prefix = names.prefix.replace("{}", &block.to_string());
        let qkv = queries.saturating_add(keys.saturating_mul(2));
        let up = if names.gated { width.saturating_mul(2) } else { width };
        let [fused, out, wide, down] = names.projections;
        for (name, inputs, outputs) in
            [(fused, hidden, qkv), (out, queries, hidden), (wide, hidden, up), (down, width, hidden)]
        {
            self.layer(&format!("{prefix}.{name}"), name, inputs, outputs)?;
        }
        Ok(())
    }

    fn layer(&mut self, path: &str, name: &str, inputs: u32, outputs: u32) -> Result<(), CheckpointError> {
        let format = match self.format(path) {
            Ok(format) => format,
            Err(why) => {
                let last = name.rsplit('.').next().unwrap_or(name);
                self.skip(format!("{last}: {why}"));
                return Ok(());
            }
        };
        let layer = Layer::new(inputs, outputs, format, Layout::OutputsByInputs)?;
        if !self.layers.iter().any(|(known, _)| *known == layer) {
            self.layers.push((layer, name.to_owned()));
        }
        Ok(())
    }

    /// The weight format of the module at `path`, or why it can't be split.
    fn format(&self, path: &str) -> Result<WeightFormat, String> {
        let plain = || match self.config.dtype.as_deref() {
            Some("float32") => Ok(WeightFormat::F32),
            Some("float16") => Ok(WeightFormat::F16),
            Some("bfloat16") | None => Ok(WeightFormat::Bf16),
            Some(other) => Err(format!("weights of type '{other}' aren't known here")),
        };
        let Some(all) = &self.quantisation else { return plain() };
        if let Some(method) = all.get("quant_method").and_then(Value::as_str) {
            return Err(format!(
                "quantised by '{method}', which MLX doesn't split: convert the model with mlx-lm"
            ));
        }
        let own = match all.get(path) {
            Some(Value::Bool(false)) => return plain(),
            Some(own) if own.is_object() => own,
            _ => all,
        };
        match own.get("mode").or_else(|| all.get("mode")).and_then(Value::as_str) {
            None | Some("affine") => {}
            Some(mode) => return Err(format!("quantised in mode '{mode}', which isn't known here")),
        }
        let number = |key: &str| own.get(key).or_else(|| all.get(key)).and_then(Value::as_u64);
        let (Some(bits), Some(group)) = (number("bits"), number("group_size")) else {
            return Err("quantised without 'bits' or 'group_size'".to_owned());
        };
        format!("q{bits}/{group}").parse().map_err(|error: ShapeError| error.to_string())
    }

    fn skip(&mut self, what: String) {
        if !self.skipped.contains(&what) {
            self.skipped.push(what);
        }
    }
}

/// Names of a block with a fused projection: the fused one, the attention's output, the feed-forward part's up (or gate and up) and down.
#[derive(Debug, Clone, Copy)]
struct Fused {
    prefix: &'static str,
    projections: [&'static str; 4],
    gated: bool,
    quadruple: bool,
}

const PHI3: Fused = Fused {
    prefix: "model.layers.{}",
    projections: ["self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"],
    gated: true,
    quadruple: false,
};
const NEOX: Fused = Fused {
    prefix: "model.h.{}",
    projections: ["attention.query_key_value", "attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"],
    gated: false,
    quadruple: false,
};
const GPT2: Fused = Fused {
    prefix: "model.h.{}",
    projections: ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"],
    gated: false,
    quadruple: true,
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layers(config: &str) -> Vec<String> {
        let checkpoint = Checkpoint::parse(config).unwrap();
        checkpoint
            .layers
            .iter()
            .map(|(layer, name)| format!("{name} {}x{} {}", layer.inputs(), layer.outputs(), layer.format()))
            .collect()
    }

    const QWEN: &str = r#"{"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "torch_dtype": "bfloat16", "vocab_size": 151936"#;

    #[test]
    fn a_dense_decoder_has_the_layers_of_its_shipped_file() {
        let found = Checkpoint::parse(&format!("{QWEN}}}")).unwrap();
        let shipped = crate::models::find("qwen2.5-0.5b").unwrap().layers(WeightFormat::Bf16).unwrap();
        let own: Vec<Layer> = found.layers.iter().map(|(layer, _)| *layer).collect();
        assert_eq!(own, shipped.iter().map(|layer| layer.layer).collect::<Vec<_>>());
        assert_eq!(found.skipped, ["lm_head: a prefill computes it for one row"]);
    }

    #[test]
    fn quantised_checkpoints_keep_what_differs_by_module() {
        let quantised = format!(
            r#"{QWEN}, "quantization": {{"bits": 4, "group_size": 64, "model.layers.0.mlp.down_proj": {{"bits": 8}},
                "model.layers.1.mlp.down_proj": false}}}}"#
        );
        assert_eq!(
            layers(&quantised),
            [
                "q_proj 896x896 q4/64",
                "k_proj 896x128 q4/64",
                "gate_proj 896x4864 q4/64",
                "down_proj 4864x896 q8/64",
                "down_proj 4864x896 bf16",
                "down_proj 4864x896 q4/64"
            ]
        );
    }

    #[test]
    fn foreign_quantisation_is_named_and_skipped() {
        for (quantisation, word) in [
            (r#"{"quant_method": "awq", "bits": 4}"#, "awq"),
            (r#"{"mode": "mxfp4", "bits": 4, "group_size": 32}"#, "mxfp4"),
            (r#"{"bits": 7, "group_size": 64}"#, "q7/64"),
            (r#"{"bits": 4}"#, "group_size"),
        ] {
            let config = format!(r#"{QWEN}, "quantization_config": {quantisation}}}"#);
            let found = Checkpoint::parse(&config).unwrap();
            assert!(found.layers.is_empty());
            assert!(found.skipped.iter().any(|why| why.contains(word)), "{:?}", found.skipped);
        }
    }

    #[test]
    fn fused_projections_are_one_layer() {
        let phi = r#"{"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 2,
            "num_attention_heads": 32, "num_key_value_heads": 32, "torch_dtype": "float16"}"#;
        assert_eq!(
            layers(phi),
            [
                "self_attn.qkv_proj 3072x9216 f16",
                "self_attn.o_proj 3072x3072 f16",
                "mlp.gate_up_proj 3072x16384 f16",
                "mlp.down_proj 8192x3072 f16"
            ]
        );
        let gpt2 = r#"{"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 1, "n_inner": null, "dtype": "float32"}"#;
        assert_eq!(layers(gpt2)[2], "mlp.c_fc 1600x6400 f32");
    }

    #[test]
    fn mixtures_keep_attention_and_shared_experts() {
        let mixture = r#"{"model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 1, "num_attention_heads": 16,
            "num_key_value_heads": 16, "num_experts": 60, "shared_expert_intermediate_size": 5632}"#;
        let found = Checkpoint::parse(mixture).unwrap();
        assert_eq!(found.layers.len(), 3, "{:?}", found.layers);
        assert!(found.skipped[0].starts_with("60 routed experts"), "{:?}", found.skipped);
    }

    #[test]
    fn a_multimodal_model_is_its_language_model() {
        let gemma = r#"{"model_type": "gemma3", "quantization": {"bits": 8, "group_size": 32}, "text_config": {"model_type":
            "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 1, "num_attention_heads": 8,
            "num_key_value_heads": 4, "head_dim": 256}}"#;
        assert_eq!(layers(gemma)[0], "q_proj 2560x2048 q8/32");
    }

    #[test]
    fn what_can_not_be_is_said() {
        let of = |text: &str| Checkpoint::parse(text).unwrap_err().to_string();
        assert!(of("[").contains("no model's config.json"));
        assert!(of(r#"{"model_type": "mamba"}"#).contains("'mamba'"));
        assert!(of(r#"{"model_type": "llama"}"#).contains("num_hidden_layers"));
        assert!(of(&format!("{}}}", QWEN.replace("896", "0"))).contains("at least 1"));
        assert!(of(&format!("{}}}", QWEN.replace("24", "2000"))).contains("2000 blocks"));
        assert!(of(&format!("{}}}", QWEN.replace("4864", "4294967295"))).contains("at most"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}", hidden in any::<u32>(), heads in any::<u32>()) {
            let _ = Checkpoint::parse(&text);
            let config = format!(
                r#"{{"model_type": "llama", "hidden_size": {hidden}, "num_attention_heads": {heads}, "intermediate_size": {heads},
                    "num_hidden_layers": 1}}"#
            );
            let _ = Checkpoint::parse(&config);
        }
    }
}
