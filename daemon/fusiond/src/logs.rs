//! Logs: rolling files of the daemon's own, since neither launchd nor systemd's user manager rotates what a daemon prints.

use std::io::IsTerminal;
use std::path::Path;

use fs_err as fs;
use tracing_appender::non_blocking::WorkerGuard;
use tracing_appender::rolling::{InitError, RollingFileAppender, Rotation};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

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

/// What keeps the logs going, and changes what is logged.
#[derive(Debug)]
pub struct Logs {
    filter: Filter,
    _guard: Option<WorkerGuard>,
}

impl Logs {
    /// Changes what is logged while the daemon runs.
    pub fn filter(&self) -> Filter {
        self.filter.clone()
    }
}

/// Changes what is logged.
#[derive(Debug, Clone)]
pub struct Filter {
    handle: reload::Handle<EnvFilter, Registry>,
    at_start: String,
}

impl Filter {
    /// Logs what `filter` says from now on; `None` for what was said at the start.
    ///
    /// # Errors
    /// What can't be read.
    pub fn set(&self, filter: Option<&str>) -> Result<(), String> {
        let text = filter.unwrap_or(&self.at_start);
        let parsed = EnvFilter::try_new(text).map_err(|error| error.to_string())?;
        // The subscriber lives as long as the process.
        self.handle.reload(parsed).map_err(|error| error.to_string())
    }
}

/// Whether `filter` can be read.
///
/// # Errors
/// What can't.
pub fn check_filter(filter: &str) -> Result<(), String> {
    EnvFilter::try_new(filter).map(drop).map_err(|error| error.to_string())
}

/// Logs to `fusiond.<day>.log` in `directory`, and to the standard error if that is a terminal. With it, why there is no file, if there is none; then
/// the standard error is used, whatever it is.
pub fn start(directory: &Path) -> (Logs, Result<(), LogError>) {
    let at_start = std::env::var(FILTER_VARIABLE)
        .ok()
        .filter(|filter| check_filter(filter).is_ok())
        .unwrap_or_else(|| "info".to_owned());
    // One filter for all: where each layer has its own, the libraries' events are weighed one by one, which doubles the time of a call.
    let (filter, handle) = reload::Layer::new(EnvFilter::new(&at_start));
    let (writer, guard, result) = match open(directory).map(tracing_appender::non_blocking) {
        Ok((writer, guard)) => (Some(writer), Some(guard), Ok(())),
        Err(error) => (None, None, Err(error)),
    };
    let file = writer.map(|writer| fmt::layer().with_ansi(false).with_writer(writer));
    let watched = std::io::stderr().is_terminal();
    // Whoever keeps what a daemon prints doesn't rotate it.
    let terminal = (watched || result.is_err())
        .then(|| fmt::layer().with_ansi(watched).with_writer(std::io::stderr).with_target(false));
    tracing_subscriber::registry().with(filter).with(file).with(terminal).init();
    (Logs { filter: Filter { handle, at_start }, _guard: guard }, result)
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
