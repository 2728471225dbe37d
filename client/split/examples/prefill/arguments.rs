//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use fusion_calibrations::{ratio::Ratio, shape::WeightFormat};
use fusion_split::{Arm, PairKind, WorkFactor};

use crate::schedule::Turn;

/// Prefill a stack of Llama blocks with synthetic weights, and time every arm
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    /// A model whose geometry is built in
    pub(crate) model: String,
    /// Rows of a timed call
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rows: u32,
    /// Rows that went through before each timed call; with --rows 1 that makes it a decode step
    #[arg(long, default_value_t = 0)]
    pub(crate) context: u32,
    /// Fill the cache only, as all chunks of a prompt but the last
    #[arg(long)]
    pub(crate) cache_only: bool,
    /// Blocks to build [default: all]
    #[arg(long)]
    pub(crate) blocks: Option<usize>,
    /// How weights are encoded
    #[arg(long, default_value = "f32", value_parser = str::parse::<WeightFormat>)]
    pub(crate) format: WeightFormat,
    /// Who takes turns [default: eager,compiled,split, and gate with --daemon]
    #[arg(long, value_enum, value_delimiter = ',')]
    turns: Vec<TurnName>,
    /// Rounds in which all take their turns
    #[arg(long, default_value_t = 4)]
    pub(crate) rounds: usize,
    /// Calls of a fixed arm in a round that count
    #[arg(long, default_value_t = 2)]
    pub(crate) calls: usize,
    /// Calls of the gate in a round, each beside one of the fixed arm that it would choose
    #[arg(long, default_value_t = 6)]
    pub(crate) pairs: usize,
    /// Begin no round after so many seconds
    #[arg(long, default_value_t = f64::INFINITY)]
    pub(crate) seconds: f64,
    /// The secondary unit's share of every layer in the split arm, where neither --daemon nor --calibrate say better
    #[arg(long, default_value = "0.5", value_parser = ratio)]
    pub(crate) ratio: Ratio,
    /// Split feed-forward parts once instead of layer by layer
    #[arg(long)]
    pub(crate) whole_ffn: bool,
    /// Look at both units' finish times of every n-th split; 0: never
    #[arg(long, default_value_t = 61)]
    pub(crate) sample_every: u32,
    /// Two CPU streams even where there is a GPU
    #[arg(long)]
    development: bool,
    /// Work a row of the secondary unit, in units of the primary's: makes the pair asymmetric
    #[arg(long)]
    secondary_work_factor: Option<WorkFactor>,
    /// Attach to the daemon: it knows each layer's rows, and its gate takes a turn
    #[arg(long)]
    pub(crate) daemon: bool,
    /// Where the daemon listens [env: FUSION_SOCKET] [default: as for every client]
    #[arg(long, value_name = "PATH", requires = "daemon")]
    pub(crate) socket: Option<PathBuf>,
    /// Find each layer's rows in this process first, and say how long that took
    #[arg(long, conflicts_with = "daemon")]
    pub(crate) calibrate: bool,
    /// Print one JSON document with every call
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TurnName {
    Split,
    Compiled,
    Eager,
    Gate,
}

impl Arguments {
    pub(crate) fn pair(&self) -> PairKind {
        match self.secondary_work_factor {
            Some(factor) => PairKind::Asymmetric(factor),
            None if self.development => PairKind::Development,
            None => PairKind::Auto,
        }
    }

    pub(crate) fn turns(&self) -> Vec<Turn> {
        let all = [TurnName::Eager, TurnName::Compiled, TurnName::Split, TurnName::Gate];
        let named = if self.turns.is_empty() { &all[..] } else { &self.turns };
        // Without a daemon nobody is asked.
        named
            .iter()
            .filter(|name| self.daemon || **name != TurnName::Gate)
            .map(|name| (*name).into())
            .collect()
    }
}

impl From<TurnName> for Turn {
    fn from(name: TurnName) -> Self {
        match name {
            TurnName::Split => Self::Fixed(Arm::Split),
            TurnName::Compiled => Self::Fixed(Arm::Compiled),
            TurnName::Eager => Self::Fixed(Arm::Eager),
            TurnName::Gate => Self::Gate,
        }
    }
}

fn ratio(text: &str) -> Result<Ratio, String> {
    let number: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    Ratio::new(number).map_err(|error| error.to_string())
}
