//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use clap_complete::Shell;
use fusion_split::{PairKind, WorkFactor};

/// Measures matrix products for fusiond, which starts it. To try it by hand: `fusion-worker --self-test`.
#[derive(Debug, Parser)]
#[command(name = "fusion-worker", version, about)]
pub(crate) struct Args {
    /// Which two units share the rows
    #[arg(long, value_enum, default_value_t = Pair::Auto)]
    pair: Pair,

    /// Work a row of the asymmetric pair's secondary unit, in units of the primary's: 1 to 16
    #[arg(long, value_name = "FACTOR", requires = "pair", required_if_eq("pair", "asymmetric"))]
    secondary_work_factor: Option<WorkFactor>,

    /// Memory that measuring may take, in bytes, beyond what the program itself maps [default: what is installed]
    #[arg(long, env = fusion_frames::MEMORY_LIMIT_VARIABLE, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) memory_limit_bytes: Option<u64>,

    /// Time one product with and without a split, say the result in words, and exit
    #[arg(long)]
    pub(crate) self_test: bool,

    /// Find out whether the two units run at once, and what that takes; say it in words, and exit. Some 20 seconds
    #[arg(long, conflicts_with = "self_test")]
    pub(crate) probe: bool,

    /// Print what the probe found as JSON, with all times
    #[arg(long, requires = "probe")]
    pub(crate) json: bool,

    /// No progress of the probe on standard error
    #[arg(long, requires = "probe")]
    pub(crate) quiet: bool,

    /// Write the manual into a directory, which is made if it isn't there, and exit
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) man: Option<PathBuf>,

    /// Print what a shell needs to complete this program's arguments, and exit
    #[arg(long, value_name = "SHELL", hide = true)]
    pub(crate) completions: Option<Shell>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Pair {
    /// GPU and CPU if MLX reports a GPU, else the development pair
    Auto,
    /// Two CPU streams, each on a core of its own
    Development,
    /// Two CPU streams, the secondary of which does extra work a row
    Asymmetric,
}

impl Args {
    pub(crate) fn pair_kind(&self) -> PairKind {
        match (self.pair, self.secondary_work_factor) {
            (Pair::Auto, _) => PairKind::Auto,
            (Pair::Asymmetric, Some(factor)) => PairKind::Asymmetric(factor),
            // clap asks for a factor, so the pair without one is equal units.
            (Pair::Development | Pair::Asymmetric, _) => PairKind::Development,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once("fusion-worker").chain(args.iter().copied()))
    }

    #[test]
    fn the_pair_is_chosen() {
        assert_eq!(parse(&[]).unwrap().pair_kind(), PairKind::Auto);
        assert_eq!(parse(&["--pair", "development"]).unwrap().pair_kind(), PairKind::Development);
        let asymmetric = parse(&["--pair", "asymmetric", "--secondary-work-factor", "2.5"]).unwrap();
        assert_eq!(asymmetric.pair_kind(), PairKind::Asymmetric(WorkFactor::new(2.5).unwrap()));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(parse(&["--pair", "asymmetric"]).is_err());
        assert!(parse(&["--pair", "asymmetric", "--secondary-work-factor", "0.5"]).is_err());
        assert!(parse(&["--memory-limit-bytes", "0"]).is_err());
        assert!(parse(&["--pair", "triple"]).is_err());
        assert!(parse(&["--json"]).is_err());
        assert!(parse(&["--probe", "--self-test"]).is_err());
    }
}
