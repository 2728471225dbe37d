//! `fusiond`: the daemon, and the care for its store while it isn't running.

mod arguments;
mod offline;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use fusiond::logs;
use fusiond::machine::MachineChoiceError;
use fusiond::sensors::Sensors;
use fusiond::sensors::choice::{SensorChoice, SensorChoiceError};
use fusiond::server::{self, ServerError};
use fusiond::settings::{Settings, SettingsError};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::arguments::{Arguments, Command};

/// What a shell reports of a process that was interrupted.
const EXIT_INTERRUPTED: i32 = 130;
/// sysexits' EX_CONFIG.
const CONFIGURATION: u8 = 78;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Some(Command::Store(store)) => offline::run(store, arguments.state_dir),
        None => daemon(arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, message)) => {
            eprintln!("fusiond: {message}");
            ExitCode::from(code)
        }
    }
}

/// An exit code and a message for a person.
type Failure = (u8, String);

fn misconfigured(error: &SettingsError) -> Failure {
    (CONFIGURATION, error.to_string())
}

fn daemon(arguments: Arguments) -> Result<(), Failure> {
    let Arguments {
        socket,
        state_dir,
        config_dir,
        machine,
        sensors,
        measuring_lock,
        worker,
        worker_arguments,
        worker_limit,
        ..
    } = arguments;
    let mut settings = Settings::new(socket, state_dir, config_dir, worker, worker_arguments)
        .map_err(|error| misconfigured(&error))?;
    if let Some(lock) = measuring_lock {
        settings.measuring_lock = Some(lock);
    }
    if let Some(machine) = machine {
        settings.machine =
            machine.parse().map_err(|error: MachineChoiceError| misconfigured(&error.into()))?;
        settings.measuring_lock = settings.measuring_lock.filter(|_| settings.machine.stand_in().is_none());
    }
    if let Some(sensors) = sensors {
        let chosen = sensors.parse().map_err(|error: SensorChoiceError| misconfigured(&error.into()))?;
        settings.sensors = Some(chosen);
    }
    settings.worker.answer_limit = Duration::from_secs(worker_limit);
    let (logs, file) = logs::start(&settings.log_directory());
    if let Err(error) = file {
        tracing::warn!("{error}");
    }
    let sensors = SensorChoice::open(settings.sensors.clone(), settings.machine)
        .map_err(|error| misconfigured(&error.into()))?;
    // One thread: every call is short, measuring happens in another process, and the store has a thread of its own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| (70, format!("the system refuses a runtime: {error}")))?;
    runtime
        .block_on(serve(settings, sensors, logs.filter()))
        .map_err(|error| (error.exit_code(), error.to_string()))
}

async fn serve(
    settings: Settings,
    sensors: Arc<dyn Sensors>,
    filter: logs::Filter,
) -> Result<(), ServerError> {
    let drain = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = drain.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("terminated"),
            _ = interrupt.recv() => tracing::info!("interrupted"),
        }
        stop.cancel();
        // Whoever asks twice doesn't want to wait; the store bears it.
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::warn!("asked twice: ending at once");
        std::process::exit(EXIT_INTERRUPTED);
    });
    server::run(settings, sensors, filter, drain).await
}

fn state_directory(given: Option<std::path::PathBuf>) -> Result<std::path::PathBuf, Failure> {
    fusion_proto::state::state_directory(given).map_err(|error| misconfigured(&error.into()))
}
