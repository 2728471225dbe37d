//! `fusion-bench`: the figures that fusiond is judged by.
//!
//! Whatever can be a ratio of two things measured in turn within one run is one: the machine may be shared and noisy. Every figure says how
//! many samples it rests on, and a verdict is *unresolved* where its interval straddles the limit, or where comparing a thing with itself
//! (an A/A run) shows that the machine isn't quiet.

mod asymmetric;
mod block;
mod calls;
mod client;
mod crowd;
mod daemon;
mod decode;
mod efficiency;
mod environment;
mod example;
mod figure;
mod first_run;
mod gate;
mod interruption;
mod latency;
mod live_search;
mod neighbour;
mod random;
mod rest;
mod split;
mod system_calls;
mod ttft;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use fusion_client::SocketPath;

use crate::figure::{Figure, Summary};

/// Measure the figures that fusiond is judged by.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  make bench\n  cargo xtask bench latency rest\n  cargo xtask bench --list"
)]
struct Arguments {
    /// Groups of figures to measure [default: all]
    groups: Vec<String>,
    /// List the groups
    #[arg(long)]
    list: bool,
    /// Where to write the summary
    #[arg(long, default_value = "target/bench/summary.json")]
    output: PathBuf,
    /// Serve a bare health service on this socket: what our latency is compared with
    #[arg(long, hide = true)]
    echo_server: Option<PathBuf>,
    /// Decide as a client of the daemon on this socket, to be traced
    #[arg(long, hide = true)]
    decide_traced: Option<PathBuf>,
}

type Measure = fn() -> Result<Vec<Figure>>;

const GROUPS: &[(&str, &str, Measure)] = &[
    ("split", "speed-up of a split on the development pair", split::measure),
    ("efficiency", "what a split keeps of both units' speed, layer by layer", efficiency::measure),
    ("block", "the block example through the gate against fixed arms (takes half an hour)", block::measure),
    ("decode", "a decode step through the gate against stock", decode::measure),
    ("ttft", "time to first token in MLX-LM, stock and accelerated in turn", ttft::measure),
    ("asymmetric", "chosen ratio on pairs of unknown speed", asymmetric::measure),
    ("search", "the search on products of unknown speed", live_search::measure),
    ("latency", "GetRatio over the socket against a bare call", latency::measure),
    ("client", "what an attached process pays, and a thousand of them", client::measure),
    ("gate", "the gate on models of the recorded machines, in virtual time", gate::measure),
    ("interruption", "how long a worker outlives a client's first product", interruption::measure),
    ("neighbour", "what a foreign MLX program notices of the daemon", neighbour::measure),
    ("rest", "memory and wake-ups of a resting daemon", rest::measure),
    ("first-run", "'make run' from a clean clone, twice (takes minutes)", first_run::measure),
];

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fusion-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some(socket) = &arguments.echo_server {
        return latency::serve_echo(socket);
    }
    if let Some(socket) = &arguments.decide_traced {
        return system_calls::decide_traced(&client::options(SocketPath::new(socket)?)?);
    }
    if arguments.list {
        for (name, what, _) in GROUPS {
            println!("{name:<12} {what}");
        }
        return Ok(());
    }
    if let Some(unknown) =
        arguments.groups.iter().find(|name| !GROUPS.iter().any(|(known, ..)| known == name))
    {
        bail!("no group is called '{unknown}': see --list");
    }
    let environment = environment::read();
    let mut figures = Vec::new();
    for (name, what, measure) in GROUPS {
        if !arguments.groups.is_empty() && !arguments.groups.iter().any(|wanted| wanted == name) {
            continue;
        }
        eprintln!("measuring: {what} ...");
        for figure in measure().with_context(|| format!("the group '{name}'"))? {
            println!("{figure}");
            figures.push(figure);
        }
    }
    figure::write(&arguments.output, &Summary { environment, figures })?;
    eprintln!("written to {}", arguments.output.display());
    Ok(())
}
