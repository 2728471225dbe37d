//! `cargo xtask gates`: our gate and the paper's on models of the recorded machines, sustained, from the same cool start.

use anyhow::{Context, Result, bail};
use clap::Args;
use fusion_calibrations::gate::ArmSet;
use fusion_calibrations::gate::arena::{self, Cell};
use fusion_calibrations::gate::tournament::{self, CellResult, Gates, Rules, Speed, Summary};
use serde::Serialize;

/// Below this, a gate that is never slower than stock failed.
const FLOOR: f64 = 0.99;
/// How much of the best fixed arm's gain must be used where it is clear.
const USED: f64 = 0.97;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Virtual minutes that stock works on each block
    #[arg(long, default_value_t = 20.0, value_parser = minutes)]
    minutes: f64,
    /// Runs per block
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Without the compiled arm, as MLX-LM
    #[arg(long)]
    two_arms: bool,
    /// One JSON document instead of a table
    #[arg(long)]
    json: bool,
}

fn minutes(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|minutes| (0.1..=600.0).contains(minutes))
        .ok_or_else(|| format!("{text} is not a number of minutes between 0.1 and 600"))
}

#[derive(Debug, Serialize)]
struct Report {
    about: &'static str,
    minutes: f64,
    seeds: u64,
    cells: Vec<CellResult>,
    summary: Summary,
}

/// Plays every recorded block and prints how fast each gate was.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { minutes, seeds, two_arms, json } = *arguments;
    let arms = if two_arms { ArmSet::mlx_lm() } else { ArmSet::all() };
    let play = |cell: &Cell| {
        tournament::play(cell, Rules { minutes, seeds, arms })
            .with_context(|| format!("can't play {} {}: its chip isn't shipped", cell.chip, cell.rows))
    };
    let cells: Vec<CellResult> = arena::cells().iter().map(play).collect::<Result<_>>()?;
    if cells.is_empty() {
        bail!("no recorded blocks: this build is broken, please report it");
    }
    let report = Report {
        about: "modelled: recorded block times with the machine models' heat, first calls and noise",
        minutes,
        seeds,
        summary: Summary::of(&cells),
        cells,
    };
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

fn print(report: &Report) {
    println!("{}; {} virtual minutes, {} seeds", report.about, report.minutes, report.seeds);
    println!("speed against all-stock (1 = stock); worst seed in brackets\n");
    println!(
        "{:<7} {:<8} {:>5} {:>8} {:>7}  {:>14}  {:>14} {:>14} {:>14} {:>14} {:>6} {:>7}",
        "chip",
        "model",
        "rows",
        "recorded",
        "calls",
        "best fixed",
        "cold",
        "predicted",
        "kept",
        "paper",
        "split%",
        "spent%"
    );
    for cell in &report.cells {
        let speed = |speed: Speed| format!("{:.3} ({:.3})", speed.mean, speed.worst);
        println!(
            "{:<7} {:<8} {:>5} {:>8.3} {:>7}  {:>5.3} {:>8}  {:>14} {:>14} {:>14} {:>14} {:>6.1} {:>7.2}",
            cell.chip,
            cell.model,
            cell.rows,
            cell.recorded_speed_up,
            cell.calls,
            cell.best_fixed,
            cell.best_arm,
            speed(cell.speeds.cold),
            speed(cell.speeds.predicted),
            speed(cell.speeds.kept),
            speed(cell.speeds.paper),
            100.0 * cell.split_share,
            100.0 * cell.explored_share
        );
    }
    let line = |name: &str, gates: &Gates<f64>| {
        println!(
            "{name}: ours cold {:.3}, predicted {:.3}, kept {:.3}; the paper's {:.3}",
            gates.cold, gates.predicted, gates.kept, gates.paper
        );
    };
    println!();
    line("worst block against stock", &report.summary.worst_against_stock);
    line("worst single run against stock", &report.summary.worst_seed_against_stock);
    line("mean against stock", &report.summary.mean_against_stock);
    line(
        "worst against the best fixed arm, where that gains 1.15 or more",
        &report.summary.worst_against_best_fixed_where_it_gains_clearly,
    );
    let floor = report.summary.worst_against_stock.least_of_ours();
    let used = report.summary.worst_against_best_fixed_where_it_gains_clearly.least_of_ours();
    println!("floor {FLOOR}: {}; used {USED}: {}", verdict(floor >= FLOOR), verdict(used >= USED));
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}
