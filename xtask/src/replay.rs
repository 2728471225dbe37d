//! `cargo xtask replay`: the search on recorded grids, next to its opponents.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use fusion_calibrations::recorded::{self, Grid};
use fusion_calibrations::replay::{self, Run, Settings, StartKind, Summary};
use serde::Serialize;

use crate::drift;

/// What the search starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Start {
    /// Nothing but the row rule
    Cold,
    /// The chip's file, fitted without the grid
    Prior,
    /// The cell's own estimate of an earlier run
    Warm,
    /// The file of another chip, each in turn
    WrongPrior,
    /// What all other chips have in common (leave one chip out)
    OtherChips,
}

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// JSON file: an object with the key "calibration_grids", or a bare list of grids
    file: PathBuf,
    /// Runs per grid
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Relative standard deviation of one call (2 % of the calls take 1.5 times as long on top)
    #[arg(long, default_value_t = 0.015, value_parser = deviation)]
    noise: f64,
    /// What the search starts from
    #[arg(long, value_enum, default_value_t = Start::Cold)]
    start: Start,
    /// Replay cells that were recorded in two sessions instead: what following live lines is worth
    #[arg(long, conflicts_with = "start")]
    drift: bool,
    /// With --drift: split calls that are observed
    #[arg(long, default_value_t = 3, requires = "drift")]
    calls: u32,
    /// One JSON document instead of a table
    #[arg(long)]
    json: bool,
}

fn deviation(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|noise| (0.0..=0.5).contains(noise))
        .ok_or_else(|| format!("{text} is not a relative standard deviation between 0 and 0.5"))
}

/// Means over the seeds; regret and share are fractions.
#[derive(Debug, Serialize)]
struct GridResult {
    chip: String,
    #[serde(rename = "M")]
    rows: u32,
    #[serde(rename = "K")]
    inputs: u32,
    #[serde(rename = "N")]
    outputs: u32,
    chosen_ratio: f64,
    chosen_ms: f64,
    best_ms: f64,
    regret: f64,
    calls: f64,
    machine_ms: f64,
    full_grid_ms: f64,
    cost_share: f64,
}

/// Fractions.
#[derive(Debug, Serialize)]
struct SummaryResult {
    grids: usize,
    regret_mean: f64,
    regret_p95: f64,
    regret_max: f64,
    cost_share_mean: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    grids: Vec<GridResult>,
    /// Over the grids: each one the mean over its seeds.
    summary: SummaryResult,
    /// Over all single runs: harsher, since nothing is averaged.
    single_runs: SummaryResult,
    opponents: Vec<Opponent>,
}

#[derive(Debug, Serialize)]
struct Opponent {
    name: &'static str,
    #[serde(flatten)]
    summary: SummaryResult,
}

/// Runs the search over every grid of the file and prints what it chose and what that cost.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let file = arguments.file.display();
    let text = std::fs::read_to_string(&arguments.file).with_context(|| format!("can't read {file}"))?;
    let grids = recorded::parse(&text).with_context(|| format!("can't use {file}"))?;
    if arguments.drift {
        let Arguments { seeds, calls, noise, json, .. } = *arguments;
        return drift::run(&grids, drift::Plan { seeds, calls, noise }, json);
    }
    let settings = Settings {
        seeds: arguments.seeds,
        noise: arguments.noise,
        start: match arguments.start {
            Start::Cold => StartKind::Cold,
            Start::Prior => StartKind::Prior,
            Start::Warm => StartKind::Warm,
            Start::WrongPrior => StartKind::WrongPrior,
            Start::OtherChips => StartKind::OtherChips,
        },
    };
    let runs: Vec<Vec<Run>> = grids.iter().map(|grid| replay::replay(grid, &grids, settings)).collect();
    let opponents = [
        (
            "paper's grid (argmin of 7)",
            grids.iter().map(|grid| replay::paper_grid(grid, settings)).collect::<Vec<_>>(),
        ),
        (
            "composed from solo rates",
            grids.iter().map(|grid| replay::composed_rates(grid, settings)).collect(),
        ),
    ];
    let report = Report {
        grids: grids.iter().zip(&runs).map(|(grid, runs)| result(grid, runs)).collect(),
        summary: summary(&means(&runs))?,
        single_runs: summary(&single(&runs))?,
        opponents: opponents
            .iter()
            .map(|(name, runs)| Ok(Opponent { name, summary: summary(&means(runs))? }))
            .collect::<Result<_>>()?,
    };
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report, &grids, &runs);
    }
    Ok(())
}

fn result(grid: &Grid, runs: &[Run]) -> GridResult {
    let mean = |value: fn(&Run) -> f64| runs.iter().map(value).sum::<f64>() / runs.len() as f64;
    GridResult {
        chip: grid.chip.clone(),
        rows: grid.shape.rows(),
        inputs: grid.shape.layer().inputs(),
        outputs: grid.shape.layer().outputs(),
        chosen_ratio: mean(|run| run.chosen_ratio),
        chosen_ms: mean(|run| run.chosen_ms),
        best_ms: grid.best().median_ms,
        regret: mean(|run| run.regret),
        calls: mean(|run| f64::from(run.calls)),
        machine_ms: mean(|run| run.machine_ms),
        full_grid_ms: grid.full_grid_ms(),
        cost_share: mean(|run| run.cost_share),
    }
}

/// Regret and cost share of each grid, as the mean over its seeds.
fn means(runs: &[Vec<Run>]) -> Vec<(f64, f64)> {
    let mean = |runs: &[Run], value: fn(&Run) -> f64| runs.iter().map(value).sum::<f64>() / runs.len() as f64;
    runs.iter().map(|runs| (mean(runs, |run| run.regret), mean(runs, |run| run.cost_share))).collect()
}

/// Regret and cost share of every single run.
fn single(runs: &[Vec<Run>]) -> Vec<(f64, f64)> {
    runs.iter().flatten().map(|run| (run.regret, run.cost_share)).collect()
}

fn summary(results: &[(f64, f64)]) -> Result<SummaryResult> {
    let Some(Summary { regret_mean, regret_p95, regret_max, cost_share_mean }) =
        replay::summarise(results.iter().copied())
    else {
        bail!("no runs: give at least one seed");
    };
    Ok(SummaryResult { grids: results.len(), regret_mean, regret_p95, regret_max, cost_share_mean })
}

fn print(report: &Report, grids: &[Grid], runs: &[Vec<Run>]) {
    println!(
        "{:<8} {:>5} {:>6} {:>6}  {:>6} {:>9} {:>9} {:>8} {:>6} {:>9} {:>10} {:>6}",
        "chip",
        "M",
        "K",
        "N",
        "ratio",
        "chosen ms",
        "best ms",
        "regret %",
        "calls",
        "spent ms",
        "grid ms",
        "share%"
    );
    for grid in &report.grids {
        println!(
            "{:<8} {:>5} {:>6} {:>6}  {:>6.3} {:>9.3} {:>9.3} {:>8.2} {:>6.1} {:>9.1} {:>10.1} {:>6.1}",
            grid.chip,
            grid.rows,
            grid.inputs,
            grid.outputs,
            grid.chosen_ratio,
            grid.chosen_ms,
            grid.best_ms,
            100.0 * grid.regret,
            grid.calls,
            grid.machine_ms,
            grid.full_grid_ms,
            100.0 * grid.cost_share
        );
    }
    print_per_chip(grids, runs);
    line("search, every single run", &report.single_runs);
    line("search", &report.summary);
    for opponent in &report.opponents {
        line(opponent.name, &opponent.summary);
    }
}

fn print_per_chip(grids: &[Grid], runs: &[Vec<Run>]) {
    let mut chips: Vec<&str> = grids.iter().map(|grid| grid.chip.as_str()).collect();
    chips.sort_unstable();
    chips.dedup();
    for chip in chips {
        let of_chip: Vec<Vec<Run>> = grids
            .iter()
            .zip(runs)
            .filter(|(grid, _)| grid.chip == chip)
            .map(|(_, runs)| runs.clone())
            .collect();
        if let Ok(summary) = summary(&means(&of_chip)) {
            line(chip, &summary);
        }
    }
}

fn line(name: &str, summary: &SummaryResult) {
    println!(
        "{name}: {} in all, regret mean {:.2} %, p95 {:.2} %, worst {:.2} %, mean share of the full grid's machine time {:.1} %",
        summary.grids,
        100.0 * summary.regret_mean,
        100.0 * summary.regret_p95,
        100.0 * summary.regret_max,
        100.0 * summary.cost_share_mean
    );
}
