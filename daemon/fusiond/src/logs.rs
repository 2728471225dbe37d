//! Logs: rolling files of the daemon's own, since neither launchd nor systemd's user manager rotates what a daemon prints.

use std::io::IsTerminal;
use std::path::Path;

use fs_err as fs;
use tracing_appender::non_blocking::WorkerGuard;
use tracing_appender::rolling::{InitError, RollingFileAppender, Rotation};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

/// The environment variable that sets the level, in tracing's filter language ("debug", "fusiond::jobs=trace,info").
pub const FILTER_VARIABLE: &str = "FUSION_LOG";
/// Days that are kept.
const KEPT_DAYS: usize = 7;

/// Why there is no log file. The daemon runs all the same.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The directory can't be made.
    #[error("no log file is written: {0}")]
    Directory(#[from] std::io::Error),
    /// The file can't be made.
    #[error("no log file is written: {0}")]
    File(#[from] InitError),
}

/// Logs to `fusiond.<day>.log` in `directory`, and to the standard error if that is a terminal. The guard flushes on drop.
///
/// # Errors
/// [`LogError`] if there is no file; then the standard error is used, whatever it is.
pub fn start(directory: &Path) -> Result<WorkerGuard, LogError> {
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    // One filter for all: where each layer has its own, the libraries' events are weighed one by one, which doubles the time of a call.
    let registry = tracing_subscriber::registry().with(filter);
    let (writer, guard) = open(directory)
        .map(tracing_appender::non_blocking)
        .map_or_else(|error| (None, Err(error)), |(writer, guard)| (Some(writer), Ok(guard)));
    let file = writer.map(|writer| fmt::layer().with_ansi(false).with_writer(writer));
    let watched = std::io::stderr().is_terminal();
    // Whoever keeps what a daemon prints doesn't rotate it.
    let terminal = (watched || guard.is_err())
        .then(|| fmt::layer().with_ansi(watched).with_writer(std::io::stderr).with_target(false));
    registry.with(file).with(terminal).init();
    guard
}

fn open(directory: &Path) -> Result<RollingFileAppender, LogError> {
    fs::create_dir_all(directory)?;
    Ok(RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix("fusiond")
        .filename_suffix("log")
        .max_log_files(KEPT_DAYS)
        .build(directory)?)
}
