//! Logs: rolling files of the daemon's own, since neither launchd nor systemd's user manager rotates what a daemon prints.

mod rolling;

use std::io::{self, IsTerminal};
use std::path::Path;

use fs_err as fs;
use fusion_proto::state::{crash_log, log_directory, log_file};
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use rolling::RollingFile;

/// The environment variable that sets the level, in tracing's filter language ("debug", "fusiond::jobs=trace,info").
pub const FILTER_VARIABLE: &str = "FUSION_LOG";
/// Bytes of one log file: with its older parts they are 32 MiB at most. A day at "info" takes some 100 KiB.
const FILE_LIMIT: u64 = 4 << 20;
/// Bytes of crash output beyond which it is set aside when the daemon starts.
const CRASH_LIMIT: u64 = 1 << 20;

/// Why there is no log file. The daemon runs all the same.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The directory can't be made.
    #[error("no log file is written: {0}")]
    Directory(#[source] io::Error),
    /// The file can't be made.
    #[error("no log file is written: {0}")]
    File(#[source] io::Error),
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
    /// Logs what `filter` says from now on; `None` for what was said at the start. What holds now.
    ///
    /// # Errors
    /// What can't be read.
    pub fn set(&self, filter: Option<&str>) -> Result<String, String> {
        let text = filter.unwrap_or(&self.at_start);
        let parsed = EnvFilter::try_new(text).map_err(|error| error.to_string())?;
        // The subscriber lives as long as the process.
        self.handle.reload(parsed).map_err(|error| error.to_string())?;
        Ok(text.to_owned())
    }
}

/// Whether `filter` can be read.
///
/// # Errors
/// What can't.
pub fn check_filter(filter: &str) -> Result<(), String> {
    EnvFilter::try_new(filter).map(drop).map_err(|error| error.to_string())
}

/// Logs to `fusiond.log` below `state_directory`, and to the standard error if that is a terminal. With it, why there is no file, if there is none; then
/// the standard error is used, whatever it is.
pub fn start(state_directory: &Path) -> (Logs, Result<(), LogError>) {
    let at_start = std::env::var(FILTER_VARIABLE)
        .ok()
        .filter(|filter| check_filter(filter).is_ok())
        .unwrap_or_else(|| "info".to_owned());
    // One filter for all: where each layer has its own, the libraries' events are weighed one by one, which doubles the time of a call.
    let (filter, handle) = reload::Layer::new(EnvFilter::new(&at_start));
    let (writer, guard, result) = match open(state_directory).map(tracing_appender::non_blocking) {
        Ok((writer, guard)) => (Some(writer), Some(guard), Ok(())),
        Err(error) => (None, None, Err(error)),
    };
    let file = writer.map(|writer| fmt::layer().with_ansi(false).with_writer(writer));
    let watched = io::stderr().is_terminal();
    // Whoever keeps what a daemon prints doesn't rotate it.
    let terminal = (watched || result.is_err())
        .then(|| fmt::layer().with_ansi(watched).with_writer(io::stderr).with_target(false));
    tracing_subscriber::registry().with(filter).with(file).with(terminal).init();
    (Logs { filter: Filter { handle, at_start }, _guard: guard }, result)
}

fn open(state_directory: &Path) -> Result<RollingFile, LogError> {
    fs::create_dir_all(log_directory(state_directory)).map_err(LogError::Directory)?;
    RollingFile::open(log_file(state_directory), FILE_LIMIT).map_err(LogError::File)
}

/// Sends the standard error to a file below `state_directory`, so that what no log gets is kept: a panic's or an allocator's last words. Under a
/// manager only, where nobody sees the standard error.
///
/// # Errors
/// The file can't be made, or the system refuses.
pub fn keep_last_words(state_directory: &Path) -> io::Result<()> {
    let path = crash_log(state_directory);
    fs::create_dir_all(log_directory(state_directory))?;
    if fs::metadata(&path).is_ok_and(|metadata| metadata.len() > CRASH_LIMIT) {
        rolling::set_aside(&path)?;
    }
    Ok(rustix::stdio::dup2_stderr(rolling::append(&path)?)?)
}

/// Logs panics, too, with the time and in order; the standard error gets them as usual.
pub fn log_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let message =
            text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
        tracing::error!(place, "a panic: {message}");
        let (version, pid, now) = (env!("CARGO_PKG_VERSION"), std::process::id(), jiff::Timestamp::now());
        eprintln!("fusiond {version} (process {pid}) at {now:.0}, a panic:");
        usual(panic);
    }));
}
