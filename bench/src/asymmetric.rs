//! Whether the daemon finds the ratio of two units whose speeds it doesn't know.

use anyhow::{Context, Result};
use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_calibrations::stats::Interval;

use crate::daemon::{Daemon, runtime};
use crate::figure::{Figure, Limit};
use crate::random::Random;
use crate::worker::Worker;

/// Factors that are tried.
const FACTORS: usize = 3;
/// Attempts on one factor: a machine that others use may leave no usable sample.
const ATTEMPTS: usize = 3;

/// The distance from the optimum 1/(1+f), for random factors f in [1.3, 4].
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let mut random = Random::from_clock();
    (0..FACTORS).map(|_| one(1.3 + 2.7 * random.next())).collect()
}

fn one(factor: f64) -> Result<Figure> {
    let text = format!("{factor:.3}");
    let factor: f64 = text.parse()?;
    let optimum = 1.0 / (1.0 + factor);
    let shape = Shape::parse("1024x2048x2048", WeightFormat::F32, Layout::default())?;
    let finished = runtime()?.block_on(async {
        let daemon = Daemon::start(&["--pair", "asymmetric", "--secondary-work-factor", &text]).await?;
        let mut last = None;
        for _ in 0..ATTEMPTS {
            match daemon.calibrate(&[shape]).await {
                Ok(finished) => return finished.into_iter().next().context("no shape was measured"),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no attempt was made")?)
    })?;
    // The daemon's own worker is gone by now.
    let own = Worker::start(&["--pair", "development"], shape)?.compare_with_itself()?;
    let estimate = finished.estimate.context("an estimate is missing")?;
    let distance = (estimate.ratio - optimum).abs();
    let name = format!("distance of the ratio from 1/(1+{text})");
    let samples = (estimate.kept_samples + estimate.dropped_samples) as usize;
    let figure = Figure::new(name, Interval::exact(distance), "", Limit::AtMost(0.03), samples, own);
    Ok(figure.note(format!(
        "chosen {:.4}, optimum {optimum:.4}, machine time {:.0} ms",
        estimate.ratio, finished.machine_ms
    )))
}
