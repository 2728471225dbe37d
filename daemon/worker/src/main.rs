//! `fusion-worker`: measures matrix products for fusiond. The only process of the daemon that loads MLX.
//!
//! It speaks `fusion-frames` on its standard input and output, does one timed call at a time, and ends when its standard
//! input is closed. MLX may abort the process or be out of memory: that is why it is a process of its own. Everything a
//! person should read goes to standard error; nothing but frames reaches standard output, whatever a library prints.
//!
//! | exit status | meaning |
//! |---|---|
//! | 0 | standard input was closed, or `--probe` or `--self-test` is done |
//! | 1 | the start failed, or the other side speaks no frames; the reason is on standard error |
//! | 2 | wrong arguments |
//! | 127 | the loader did not find MLX (Linux): `cargo xtask setup` puts it back |
//! | 101, or a signal | a panic, or an abort in MLX; the reason is on standard error |
//!
//! Installed on macOS, it finds MLX's Metal kernels next to itself or where the build put them: see "Where MLX finds its
//! Metal kernels" in the documentation of `fusion-split`. On Linux it finds MLX's libraries in `fusion-mlx` next to itself, or where the set-up put them.

mod args;
mod conversation;
mod documents;
mod memory;
mod platform;
mod probe;
mod self_test;

use std::{io::Write as _, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser as _;
use fusion_split::{PairKind, Units};

use args::Args;
use conversation::Conversation;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = documents::write(&args).unwrap_or_else(|| run(&args));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fusion-worker: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Everything happens on this thread: MLX objects must not change threads.
fn run(args: &Args) -> Result<()> {
    let kind = args.pair_kind();
    if kind != PairKind::Auto || !fusion_split::has_gpu()? {
        platform::restart_as_a_development_pair().context("cannot restart as a development pair")?;
    }
    if args.self_test {
        println!("{}", self_test::run(&open(kind)?)?);
        return Ok(());
    }
    if args.probe {
        let found = probe::run(&open(kind)?, args.json, args.quiet)?;
        // Whoever closed the pipe has seen enough.
        let _ = writeln!(std::io::stdout(), "{found}");
        return Ok(());
    }
    // Before MLX is touched: from here on, a library's print lands on standard error.
    let replies = platform::take_stdout().context("cannot set standard output aside for frames")?;
    let units = open(kind)?;
    let limit = memory::limit(args.memory_limit_bytes)?;
    Conversation::new(units, limit).hold(&mut std::io::stdin().lock(), replies)
}

fn open(kind: PairKind) -> Result<Units> {
    Units::open(kind).context("cannot open the two units")
}
