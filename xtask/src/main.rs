//! Chores of the project: `cargo xtask <chore>`. Run `cargo xtask help` for the list.

mod bench;
mod darwin;
mod drift;
mod fresh_account;
mod gates;
mod load;
mod package;
mod process;
mod programs;
mod python;
mod replay;
mod run;
mod setup;
#[cfg(test)]
mod workflows;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Prepare MLX for this machine (Linux), or say what it needs (macOS). Done once; a second run is instant
    Setup {
        /// Start over, even if everything is in place
        #[arg(long)]
        force: bool,
    },
    /// Install the Python packages that the tests use into .python/
    PythonDeps {
        /// Start over, even if everything is in place
        #[arg(long)]
        force: bool,
    },
    /// Build fusiond-client for Python, install it into target/python/, lint, type-check and test it
    PythonTest,
    /// Type-check and lint the macOS code, also from Linux (nothing is linked or run)
    DarwinCheck,
    /// Write the programs' manual and completions into target/dist-assets
    DistAssets,
    /// Build a release's programs and gather them with manual and completions in target/package
    Package,
    /// Build in release, start the daemon, calibrate a small model, show what is known
    Run,
    /// Measure the figures that matter, into target/bench/summary.json
    Bench {
        /// Passed on to the benchmark program: names of figures, see --list
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Show that the daemon steps aside for other programs' work, with a daemon of its own and real products (takes a minute or two)
    Load,
    /// Run the ratio search over recorded calibration grids and print what it chose, and what that cost
    Replay(replay::Arguments),
    /// Live through an installation as a new user would, in a home and under a systemd of its own (Linux)
    FreshAccount,
    /// Our gate and the paper's on models of the recorded machines, against stock and the best fixed arm
    Gates(gates::Arguments),
}

fn main() -> ExitCode {
    match run(&Cli::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: &Chore) -> Result<()> {
    match chore {
        Chore::Setup { force } => setup::run(*force),
        Chore::PythonDeps { force } => setup::python_deps(*force),
        Chore::PythonTest => python::test(),
        Chore::DarwinCheck => darwin::check(),
        Chore::DistAssets => package::assets_only(),
        Chore::Package => package::run(),
        Chore::Run => run::run(),
        Chore::Bench { arguments } => bench::run(arguments),
        Chore::Load => load::run(),
        Chore::Replay(arguments) => replay::run(arguments),
        Chore::FreshAccount => fresh_account::run(),
        Chore::Gates(arguments) => gates::run(arguments),
    }
}
