//! `cargo xtask replay --drift`: what following live lines is worth, on cells that were recorded in two sessions.

use anyhow::{Context, Result, bail};
use fusion_calibrations::drift::{self, Drift, Settings};
use fusion_calibrations::noise::OUTLIER_SHARE;
use fusion_calibrations::recorded::Grid;
use fusion_calibrations::rows::RowRule;
use serde::Serialize;

/// How the second session is replayed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Runs per pair of sessions.
    pub(crate) seeds: u64,
    /// Split calls that are observed.
    pub(crate) calls: u32,
    /// Relative standard deviation of one unit's time.
    pub(crate) noise: f64,
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
    /// The same with [`OUTLIER_SHARE`] of the observed times disturbed.
    with_correction_disturbed: Regret,
    /// With the second session's two lines exactly known: no correction can be better.
    with_lines_known: Regret,
    /// Runs whose second session is steady: two lines fit its grid.
    steady_runs: usize,
    steady_without_correction: Option<Regret>,
    steady_with_correction: Option<Regret>,
}

/// Replays every pair of sessions and prints the regret with and without correction.
///
/// # Errors
/// If no cell was recorded twice.
pub(crate) fn run(grids: &[Grid], plan: Plan, json: bool) -> Result<()> {
    let pairs = drift::session_pairs(grids);
    let replay = |outlier_share: f64| -> Vec<Drift> {
        let of_pair = |(first, second): &(&Grid, &Grid)| {
            (0..plan.seeds)
                .filter_map(|seed| {
                    let Plan { calls: observed_calls, noise, .. } = plan;
                    let settings = Settings { observed_calls, noise, outlier_share, seed };
                    drift::replay(first, second, &RowRule::apple(), settings)
                })
                .collect::<Vec<_>>()
        };
        pairs.iter().flat_map(of_pair).collect()
    };
    let (runs, disturbed) = (replay(0.0), replay(OUTLIER_SHARE));
    if runs.is_empty() {
        bail!("no cell was recorded in two sessions");
    }
    let report = Report {
        session_pairs: pairs.len(),
        runs: runs.len(),
        observed_calls: plan.calls,
        without_correction: regret(runs.iter().map(|run| run.without)).context("no run")?,
        with_correction: regret(runs.iter().map(|run| run.with)).context("no run")?,
        with_correction_disturbed: regret(disturbed.iter().map(|run| run.with)).context("no run")?,
        with_lines_known: regret(runs.iter().map(|run| run.informed)).context("no run")?,
        steady_runs: runs.iter().filter(|run| run.steady).count(),
        steady_without_correction: regret(runs.iter().filter(|run| run.steady).map(|run| run.without)),
        steady_with_correction: regret(runs.iter().filter(|run| run.steady).map(|run| run.with)),
    };
    print(&report, json)
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
    line("  2 % disturbed", Some(&report.with_correction_disturbed));
    line("lines exactly known", Some(&report.with_lines_known));
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
