//! What the doctor looks at.

use std::path::PathBuf;

use clap::{Args, ValueHint};

pub(crate) const EXAMPLES: &str = "\
Examples:
  fusionctl doctor
  fusionctl doctor --json | jq '.checks[] | select(.outcome != \"pass\")'
  fusionctl doctor --report report.json                for a bug report: no names of people, homes or machines in it

Exits with 1 if a check fails; a warning is no failure. The self-test times a tiny product some 200 times, in turns here and in the
daemon; it starts fusion-worker, and nothing else.";

/// What to look at, and where to write it.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Also write everything to this file, as JSON, without anything that tells whose machine it is; replaced if it exists
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
    /// Don't compare the daemon's worker with one that is started here
    #[arg(long)]
    pub(crate) no_self_test: bool,
}
