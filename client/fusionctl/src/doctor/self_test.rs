//! The self-test: the same product, timed in turns here and in the daemon.

use fusion_calibrations::self_test::{Comparison, Pair, compare};
use fusion_calibrations::shape::Shape;
use fusion_calibrations::stats;
use fusion_client::{Client, ClientError, WireError, v1};

use super::worker::{Worker, WorkerError};

/// Rounds: enough that two disturbed ones don't move the median, and a few seconds at most.
const ROUNDS: usize = 9;

/// Why there was no self-test.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SelfTestError {
    /// The daemon's half failed.
    #[error(transparent)]
    Daemon(#[from] ClientError),
    /// This half did.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The daemon times what can't be timed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The two workers measure different things.
    #[error(
        "the worker started from here says it measures {here}, the daemon's {there}: they can't be compared"
    )]
    Different {
        /// This terminal's.
        here: String,
        /// The daemon's.
        there: String,
    },
    /// No round has usable times.
    #[error("no round gave usable times")]
    NoTimes,
}

/// Times the product in turns, tells the daemon, and gives what came of it. `progress` hears of each round that is done.
pub(crate) async fn run(
    client: &Client,
    progress: impl Fn(usize, usize),
) -> Result<Comparison, SelfTestError> {
    let mut daemon = client.self_test().await?;
    let ready = daemon.ready().await?;
    let mut worker = start_same(&ready).await?;
    // The first round warms up.
    worker.round(ready.calls).await?;
    let mut pairs = Vec::new();
    for round in 0..ROUNDS {
        // Whoever comes second finds a warmer machine, so they take turns.
        let (here, there) = if round % 2 == 0 {
            let here = worker.round(ready.calls).await?;
            (here, daemon.round().await?)
        } else {
            let there = daemon.round().await?;
            (worker.round(ready.calls).await?, there)
        };
        let medians = stats::median(&here).zip(stats::median(&there));
        pairs.extend(medians.map(|(terminal_ms, daemon_ms)| Pair { terminal_ms, daemon_ms }));
        progress(round + 1, ROUNDS);
    }
    drop(daemon);
    let comparison = compare(&pairs).ok_or(SelfTestError::NoTimes)?;
    client.report_self_test(&pairs).await?;
    Ok(comparison)
}

/// The daemon's worker once more, started by this process, with the product prepared.
async fn start_same(ready: &v1::SelfTestReady) -> Result<Worker, SelfTestError> {
    let shape = ready.shape.as_ref().ok_or(WireError::Missing { field: "shape" })?;
    let shape = Shape::try_from(shape)?;
    let (mut worker, hello) = Worker::start(&ready.worker_program, &ready.worker_arguments).await?;
    let engine = ready.engine.clone().unwrap_or_default();
    let pair = ready.chip.as_ref().map(|chip| chip.pair.clone()).unwrap_or_default();
    let words = |pair: &str, version: &str, hash: &str| format!("{pair} with MLX {version} ({hash})");
    let here = words(&hello.pair, &hello.mlx_version, &hello.library_hash);
    let there = words(&pair, &engine.mlx_version, &engine.library_hash);
    if here != there {
        return Err(SelfTestError::Different { here, there });
    }
    worker.prepare(shape).await?;
    Ok(worker)
}
