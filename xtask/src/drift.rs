//! `cargo xtask drift`: what following live lines is worth, on cells that were recorded in two sessions.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use fusion_calibrations::drift::{self, Drift, Settings};
use fusion_calibrations::recorded;
use fusion_calibrations::rows::RowRule;
use serde::Serialize;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// JSON file: an object with the key "calibration_grids", or a bare list of grids
    file: PathBuf,
    /// Runs per pair of sessions
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Split calls that are observed
    #[arg(long, default_value_t = 3)]
    calls: u32,
    /// Relative standard deviation of one unit's time
    #[arg(long, default_value_t = 0.015)]
    noise: f64,
    /// One JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// Fractions over all pairs and seeds.
#[derive(Debug, Serialize)]
struct Regret {
    mean: f64,
    p95: f64,
    max: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    session_pairs: usize,
    runs: usize,
    observed_calls: u32,
    without_correction: Regret,
    with_correction: Regret,
    /// Runs whose second session is steady: two lines fit its grid.
    steady_runs: usize,
    steady_without_correction: Option<Regret>,
    steady_with_correction: Option<Regret>,
}

/// Replays every pair of sessions and prints the regret with and without correction.
///
/// # Errors
/// If the file can't be read, or holds no cell that was recorded twice.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let name = arguments.file.display();
    let text = std::fs::read_to_string(&arguments.file).with_context(|| format!("cannot read {name}"))?;
    let grids = recorded::parse(&text).with_context(|| name.to_string())?;
    let pairs = drift::session_pairs(&grids);
    let runs: Vec<Drift> = pairs
        .iter()
        .flat_map(|(first, second)| {
            (0..arguments.seeds).filter_map(|seed| {
                let settings = Settings { observed_calls: arguments.calls, noise: arguments.noise, seed };
                drift::replay(first, second, &RowRule::apple(), settings)
            })
        })
        .collect();
    if runs.is_empty() {
        bail!("{name}: no cell was recorded in two sessions");
    }
    let report = Report {
        session_pairs: pairs.len(),
        runs: runs.len(),
        observed_calls: arguments.calls,
        without_correction: regret(runs.iter().map(|run| run.without)).context("no run")?,
        with_correction: regret(runs.iter().map(|run| run.with)).context("no run")?,
        steady_runs: runs.iter().filter(|run| run.steady).count(),
        steady_without_correction: regret(runs.iter().filter(|run| run.steady).map(|run| run.without)),
        steady_with_correction: regret(runs.iter().filter(|run| run.steady).map(|run| run.with)),
    };
    print(&report, arguments.json)
}

fn regret(values: impl Iterator<Item = f64>) -> Option<Regret> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let rank = ((values.len() as f64 * 0.95).ceil() as usize).checked_sub(1)?;
    Some(Regret {
        mean: values.iter().sum::<f64>() / values.len() as f64,
        p95: *values.get(rank)?,
        max: *values.last()?,
    })
}

fn print(report: &Report, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(report)?);
        return Ok(());
    }
    println!(
        "{} pairs of sessions, {} runs, {} observed calls",
        report.session_pairs, report.runs, report.observed_calls
    );
    line("without correction", Some(&report.without_correction));
    line("with correction", Some(&report.with_correction));
    println!("of these {} runs whose second session is steady (two lines fit its grid)", report.steady_runs);
    line("without correction", report.steady_without_correction.as_ref());
    line("with correction", report.steady_with_correction.as_ref());
    Ok(())
}

fn line(name: &str, regret: Option<&Regret>) {
    if let Some(Regret { mean, p95, max }) = regret {
        println!(
            "  {name:<20} regret mean {:5.2} %  p95 {:5.2} %  worst {:5.2} %",
            mean * 100.0,
            p95 * 100.0,
            max * 100.0
        );
    }
}
