//! What makes the daemon part of the machine, and what it writes down.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use fusion_service::Start;

/// How to install.
#[derive(Debug, Args)]
pub(crate) struct Install {
    /// Start the daemon when you log in: it measures while nobody asks
    #[arg(long, conflicts_with = "on_demand")]
    at_login: bool,
    /// Start the daemon with the first client: nothing runs before
    #[arg(long)]
    on_demand: bool,
    /// Directory to run the programs from; made if need be [default: ~/.fusion/bin]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) bin_dir: Option<PathBuf>,
    /// Directory to take the programs from [default: that of this fusionctl]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) from: Option<PathBuf>,
    /// With --at-login, don't wait for the daemon's first answer
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl Install {
    /// When the daemon shall start, if that was said.
    pub(crate) fn start(&self) -> Option<Start> {
        match (self.at_login, self.on_demand) {
            (true, _) => Some(Start::AtLogin),
            (_, true) => Some(Start::OnDemand),
            _ => None,
        }
    }
}

/// Whether to do it, or to tell what that would be.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Rehearsal {
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// How much to uninstall.
#[derive(Debug, Args)]
pub(crate) struct Uninstall {
    /// Remove what was measured, too; asks first
    #[arg(long)]
    pub(crate) purge: bool,
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Don't ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Which logs.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Print what is added, too, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// At most so many lines, the last ones
    #[arg(short = 'n', long, value_name = "N", default_value = "200")]
    pub(crate) lines: usize,
    /// What the daemon couldn't log: panics, and the last words of what ended it
    #[arg(long)]
    pub(crate) crashes: bool,
}

/// What to log.
#[derive(Debug, Args)]
pub(crate) struct LogLevel {
    /// A level, or levels of parts, in tracing's language: debug, 'fusiond::jobs=trace,info'
    #[arg(value_name = "FILTER", required_unless_present = "reset")]
    pub(crate) filter: Option<String>,
    /// Go back to what the configuration says
    #[arg(long, conflicts_with = "filter")]
    pub(crate) reset: bool,
}
