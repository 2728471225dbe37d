//! What compares stock with accelerated programs.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// Rounds at most: a round is three calls of some seconds.
const MOST_ROUNDS: i64 = 1000;
/// The longest prompt.
const MOST_TOKENS: i64 = 1 << 20;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Time to first token of a model in MLX-LM, stock and accelerated in turn; compares every token, too
    #[command(after_help = "\
Examples:
  fusionctl bench ttft --model mlx-community/Qwen2.5-7B-Instruct-bf16
  fusionctl bench ttft --model ./my-model --prompt-tokens 512,2048 --rounds 15
  fusionctl bench ttft --model ./my-model --python .venv/bin/python -o ttft.json

This needs a Python that has fusiond-client and mlx-lm: the first of --python, FUSION_PYTHON and python3. Close other programs
first: the machine is compared with itself, but noise widens every interval. Exits with 1 if a token differs by more than rounding.")]
    Ttft(Ttft),
}

/// How to measure the time to first token.
#[derive(Debug, Args)]
pub(crate) struct Ttft {
    /// The model: a folder, or a name on Hugging Face
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub(crate) model: String,
    /// Lengths of the prompts
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "512,2048,4096", value_parser = clap::value_parser!(u32).range(2..=MOST_TOKENS))]
    pub(crate) prompt_tokens: Vec<u32>,
    /// Rounds for each length: an accelerated call between two of stock
    #[arg(long, value_name = "N", default_value = "7", value_parser = clap::value_parser!(u32).range(1..=MOST_ROUNDS))]
    pub(crate) rounds: u32,
    /// Tokens that each call generates
    #[arg(long, value_name = "N", default_value = "32")]
    pub(crate) tokens: NonZeroU32,
    /// The Python to run it with [env: FUSION_PYTHON] [default: python3]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::ExecutablePath)]
    pub(crate) python: Option<PathBuf>,
    /// Where the daemon keeps its state, if not where it does by default
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Write the whole document with every sample to a file, too; replaced if it exists
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}
