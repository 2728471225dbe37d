//! Manual and completions, from the definition that parses the command line: for those who pack a release.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;

use crate::args::Args;

/// Writes what was asked for; `None` if nothing of it was.
pub(crate) fn write(args: &Args) -> Option<Result<()>> {
    if let Some(directory) = &args.man {
        let written = std::fs::create_dir_all(directory)
            .and_then(|()| clap_mangen::generate_to(Args::command(), directory));
        return Some(
            written.with_context(|| format!("cannot write the manual into '{}'", directory.display())),
        );
    }
    let shell = args.completions?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "fusion-worker", &mut script);
    // Whoever closed the pipe has seen enough.
    let _ = std::io::stdout().write_all(&script);
    Some(Ok(()))
}
