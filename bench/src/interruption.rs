//! How long a worker lives on after a client turned busy.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_calibrations::stats::{CONFIDENCE, median_interval};
use fusion_client::attach::{Attachment, Options};
use fusion_client::v1::{Freshness, calibrate_event::Event};

use crate::daemon::{Daemon, runtime};
use crate::figure::{Figure, Limit};

/// Interruptions.
const TURNS: usize = 20;
/// The worker must be gone after so long, in ms.
const LIMIT_MS: f64 = 50.0;
/// A worker that lives so long after all ends the benchmark.
const PATIENCE: Duration = Duration::from_secs(10);

/// From the first product of a client to the end of the worker that was measuring.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let shape = Shape::parse("512x2048x2048", WeightFormat::F32, Layout::default())?;
    let runtime = runtime()?;
    let daemon = runtime.block_on(Daemon::start(&["--pair", "development"]))?;
    let mut options = Options::new(daemon.socket().clone(), "benchmark", vec![shape.layer()]);
    options.state_directory = Some(daemon.state());
    options.limit = Duration::from_secs(10);
    let attachment = Attachment::attach(options);
    let mut lives_ms = Vec::new();
    for _ in 0..TURNS {
        let client = runtime.block_on(daemon.client())?;
        let calibration = async {
            let mut calibration = client.calibrate(&[shape], Freshness::Remeasure, "benchmark").await?;
            while let Some(event) = calibration.next().await? {
                if matches!(event, Event::ShapeProgress(_)) {
                    return Ok(calibration);
                }
            }
            bail!("the calibration ended before it began")
        };
        let calibration = runtime.block_on(calibration)?;
        let worker = child(daemon.pid())?;
        let start = Instant::now();
        let busy = attachment.busy();
        while worker.exists() {
            if start.elapsed() > PATIENCE {
                bail!("the worker lives on while a client is busy");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        lives_ms.push(start.elapsed().as_secs_f64() * 1e3);
        // The job is cancelled before the client rests, or else it would begin anew.
        drop(calibration);
        drop(busy);
    }
    let interval = median_interval(&lives_ms, CONFIDENCE).context("nothing was interrupted")?;
    let longest = lives_ms.iter().copied().fold(0.0, f64::max);
    let figure = Figure::new(
        "from a client's first product to the worker's end, median",
        interval,
        "ms",
        Limit::AtMost(LIMIT_MS),
        lives_ms.len(),
        None,
    );
    Ok(vec![figure.note(format!("longest {longest:.1} ms")).raw(lives_ms)])
}

/// Where the daemon's only child shows that it lives.
fn child(pid: u32) -> Result<PathBuf> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .context("asking for the daemon's worker (Linux only)")?;
    let child = children.split_whitespace().next().context("the daemon has no worker")?;
    Ok(PathBuf::from(format!("/proc/{child}")))
}
