//! `fusionctl calibrate`.

mod outcome;

use std::time::Instant;

use fusion_client::{Calibration, Client, SocketPath, v1};

pub(crate) use self::outcome::{Failed, Outcome};

use super::connect;
use crate::arguments::Calibrate;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::render;
use crate::render::progress::Progress;
use crate::render::words;
use crate::targets::{self, Target};

pub(super) async fn run(command: &Calibrate, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    // Before anything else: a mistake is the same with and without a daemon.
    let targets = targets::expand(&command.targets, command.rows, command.weights)?;
    let title = targets::title(&command.targets, command.rows, command.weights);
    let client = connect(socket).await?;
    let started = Instant::now();
    let mut outcome = Outcome::new(targets.len());
    let ending = follow(&client, command, &targets, &title, &mut outcome, output).await;
    // What was measured is shown however it ended; whatever ended it is what is reported.
    let shown = show(&client, &mut outcome, &title, started, output).await;
    ending.and(shown)?;
    outcome.verdict()
}

/// Follows the job until it ends, fails or is cancelled.
async fn follow(
    client: &Client,
    command: &Calibrate,
    targets: &[Target],
    title: &str,
    outcome: &mut Outcome,
    output: Output,
) -> Result<(), Failure> {
    let shapes: Vec<_> = targets.iter().map(|target| target.shape).collect();
    let freshness = if command.remeasure { v1::Freshness::Remeasure } else { v1::Freshness::Reuse };
    let job = client.calibrate(&shapes, freshness, title).await?;
    let progress = Progress::new(targets.len(), output);
    let ending = tokio::select! {
        ending = events(job, targets, outcome, &progress) => ending,
        // Dropping the job cancels it.
        _ = tokio::signal::ctrl_c() => Err(None),
    };
    progress.clear();
    ending.map_err(|failure| failure.unwrap_or_else(|| outcome.interrupted()))
}

async fn events(
    mut job: Calibration,
    targets: &[Target],
    outcome: &mut Outcome,
    progress: &Progress,
) -> Result<(), Option<Failure>> {
    while let Some(event) = job.next().await.map_err(|error| Some(error.into()))? {
        progress.show(&event);
        outcome.take(event, targets);
    }
    Ok(())
}

async fn show(
    client: &Client,
    outcome: &mut Outcome,
    title: &str,
    started: Instant,
    output: Output,
) -> Result<(), Failure> {
    if outcome.is_empty() {
        return Ok(());
    }
    // A job that is answered from the store starts no worker, so its events don't name the chip.
    if outcome.chip.is_none() {
        outcome.chip = client.status().await.ok().and_then(|status| status.chip);
    }
    if output.json {
        return output
            .print(&json::document(Schema::Calibrate, &json::calibrate::Calibration::from(&*outcome))?);
    }
    output.print(&render::ratios::calibration(title, outcome, started.elapsed(), output))
}

impl Outcome {
    /// What Ctrl-C means for what was asked.
    fn interrupted(&self) -> Failure {
        let message = format!(
            "cancelled: {} kept in the store, {} not reached; without --remeasure the same command goes on from there",
            words::count(self.done.len(), "shape"),
            self.not_reached()
        );
        Failure::ended(Exit::Interrupted, message)
    }

    fn verdict(&self) -> Result<(), Failure> {
        match self.failed.len() {
            0 => Ok(()),
            count => Err(Failure::ended(
                Exit::Failed,
                format!("{} could not be calibrated: the reasons stand above", words::count(count, "shape")),
            )),
        }
    }
}
