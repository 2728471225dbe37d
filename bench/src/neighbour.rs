//! What an MLX program that knows nothing of the daemon notices of it.

use std::time::{Duration, Instant};

use anyhow::Result;
use fs_err as fs;
use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_calibrations::stats::{CONFIDENCE, Interval, ratio_of_pairs};
use fusion_frames::Request;

use crate::daemon::{Daemon, runtime};
use crate::figure::{Figure, Limit};
use crate::worker::Worker;

/// Pairs of windows: the daemon may measure, or is paused. Neighbouring seconds differ by about 4 %, and 1 % is to be told.
const PAIRS: usize = 80;
/// Length of a window: a daemon that may measure begins within milliseconds.
const WINDOW: Duration = Duration::from_secs(1);
/// Share of wall time that the daemon may take on mains.
const DUTY: f64 = 0.01;
/// The longest submission of the daemon's worker, in ms.
const SUBMISSION_MS: f64 = 50.0;
/// Shapes that the daemon wants to know: enough for the whole run.
const WANTED: u32 = 200;

/// Steps of an unattached worker, in turn with a daemon that has much to measure and one that is paused.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let shape = Shape::parse("256x2048x2048", WeightFormat::F32, Layout::default())?;
    let mut foreground = Worker::start(&["--pair", "development"], shape)?;
    let runtime = runtime()?;
    let daemon = runtime.block_on(Daemon::start(&["--pair", "development"]))?;
    let client = runtime.block_on(daemon.client())?;
    runtime.block_on(client.pause(None))?;
    want_much(&daemon)?;
    runtime.block_on(client.reload_configuration())?;
    window(&mut foreground)?;
    let (mut active, mut paused, mut means, mut own) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let mut run = |measures: bool| -> Result<f64> {
            if measures {
                runtime.block_on(client.resume())?;
            } else {
                runtime.block_on(client.pause(None))?;
            }
            // What the change itself disturbs counts for neither.
            foreground.time(&Request::Stock)?;
            let steps = window(&mut foreground)?;
            let mean = steps.iter().sum::<f64>() / steps.len() as f64;
            let all = if measures { &mut active } else { &mut paused };
            all.extend(steps);
            Ok(mean)
        };
        // Between two others, and these in turn before each other: what drifts, drifts for both.
        let (before, with, after) = (run(false)?, run(true)?, run(false)?);
        means.push((with, (before * after).sqrt()));
        own.push(if pair % 2 == 0 { (before, after) } else { (after, before) });
    }
    let status = runtime.block_on(client.status())?;
    let estimates = status.store.map_or(0, |store| store.current_estimates);
    let decision = status.planner.map(|planner| planner.decision).unwrap_or_default();
    let own = ratio_of_pairs(&own, CONFIDENCE);
    let nothing = Interval { low: f64::NEG_INFINITY, value: f64::NAN, high: f64::INFINITY };
    let mean = ratio_of_pairs(&means, CONFIDENCE).unwrap_or(nothing);
    let (with, without) = (percentile_99(&mut active), percentile_99(&mut paused));
    let note = format!("{estimates} shapes were measured meanwhile; at the end: {decision}");
    Ok(vec![
        Figure::new(
            "mean step of a foreign MLX program, daemon active / paused",
            mean,
            "times",
            Limit::AtMost(1.0 + DUTY),
            means.len(),
            own,
        )
        .note(&note),
        Figure::new(
            "p99 step of a foreign MLX program, active less paused",
            Interval::exact(with - without),
            "ms",
            Limit::AtMost(SUBMISSION_MS),
            active.len(),
            own,
        )
        .note(format!("p99 {with:.1} ms active, {without:.1} ms paused ({} steps)", paused.len())),
    ])
}

/// A configuration that keeps the daemon wanting, and lets it begin at once.
fn want_much(daemon: &Daemon) -> Result<()> {
    let directory = daemon.state().join("config");
    fs::create_dir_all(directory.join("shapes"))?;
    fs::write(directory.join("config.toml"), "[measure]\nsettle_seconds = 0\nquiet_seconds = 0\n")?;
    let shapes: Vec<String> = (1..=WANTED).map(|place| format!("'256x{}x1024'", 512 + 8 * place)).collect();
    fs::write(
        directory.join("shapes/many.toml"),
        format!("format = 'f32'\nshapes = [{}]\n", shapes.join(", ")),
    )?;
    Ok(())
}

/// Steps until the window is over, each in ms.
fn window(worker: &mut Worker) -> Result<Vec<f64>> {
    let (start, mut steps) = (Instant::now(), Vec::new());
    while start.elapsed() < WINDOW {
        steps.push(worker.time(&Request::Stock)?.0);
    }
    Ok(steps)
}

/// The time that 99 % of the steps don't exceed.
fn percentile_99(steps: &mut [f64]) -> f64 {
    steps.sort_by(f64::total_cmp);
    let place = (steps.len() * 99).div_ceil(100).saturating_sub(1);
    steps.get(place).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_steps() {
        let mut steps: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile_99(&mut steps), 198.0);
        assert_eq!(percentile_99(&mut [3.0]), 3.0);
        assert!(percentile_99(&mut []).is_nan());
    }
}
