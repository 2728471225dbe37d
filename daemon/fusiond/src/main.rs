//! `fusiond`: the daemon, and the care for its store while it isn't running.

mod arguments;
mod documents;
mod offline;
mod supervised;

use std::io::IsTerminal as _;
use std::os::unix::net::UnixListener;
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
use fusiond::starts::{Attempt, HEALTHY_AFTER};
use fusiond::upgrade::OwnProgram;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::arguments::{Arguments, Command, Unread};

/// What a shell reports of a process that was interrupted.
const EXIT_INTERRUPTED: i32 = 130;
/// clap's, for a command line that can't be read.
const USAGE: u8 = 2;
/// sysexits' EX_CONFIG.
const CONFIGURATION: u8 = 78;
/// "Start me again": the program was replaced. Beyond sysexits' last number; the units that `fusionctl install` writes name it, launchd starts again
/// after whatever isn't 0.
const REPLACED: u8 = 79;
/// Makes a debug build panic before it serves, for tests of what is kept of that.
const PANIC_VARIABLE: &str = "FUSION_TEST_PANIC";

fn main() -> ExitCode {
    let result = match Arguments::try_parse() {
        Ok(arguments) => match arguments.command {
            Some(Command::Store(store)) => {
                offline::run(store, arguments.state_dir).map(|()| ExitCode::SUCCESS)
            }
            Some(Command::Man { directory }) => documents::man(&directory),
            Some(Command::Completions { shell }) => documents::completions(shell),
            None => daemon(arguments),
        },
        Err(error) => unreadable(&error),
    };
    match result {
        Ok(code) => code,
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

fn daemon(mut arguments: Arguments) -> Result<ExitCode, Failure> {
    logs::log_panics();
    match arguments.supervisor() {
        None => run(settings(arguments)?, Own { inherited: None, program: None, attempt: None }),
        Some(supervisor) => supervised::run(supervisor, arguments.socket.clone(), |own, socket| {
            arguments.socket = socket;
            run(Settings { supervised: true, ..settings(arguments)? }, own)
        }),
    }
}

/// A command line that can't be read, or asks for help. A manager that has one, of another version say, would start us with it for ever.
fn unreadable(error: &clap::Error) -> Result<ExitCode, Failure> {
    let unread = Unread::from_environment();
    match unread.supervisor.filter(|_| error.use_stderr()) {
        Some(supervisor) => {
            supervised::run(supervisor, unread.socket, |_, _| Err((USAGE, arguments::in_a_line(error))))
        }
        None => error.exit(),
    }
}

/// What a daemon under a manager has.
struct Own {
    inherited: Option<UnixListener>,
    program: Option<OwnProgram>,
    attempt: Option<Arc<Attempt>>,
}

fn settings(arguments: Arguments) -> Result<Settings, Failure> {
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
    Ok(settings)
}

fn run(settings: Settings, own: Own) -> Result<ExitCode, Failure> {
    // A person who plays the manager reads them.
    let unseen = settings.supervised && !std::io::stderr().is_terminal();
    let unkept = if unseen { logs::keep_last_words(&settings.state_directory).err() } else { None };
    let (logs, file) = logs::start(&settings.state_directory);
    if let Err(error) = file {
        tracing::warn!("{error}");
    }
    if let Some(error) = unkept {
        tracing::warn!("crash output isn't kept: {error}");
    }
    let sensors = SensorChoice::open(settings.sensors.clone(), settings.machine)
        .map_err(|error| misconfigured(&error.into()))?;
    // One thread: every call is short, measuring happens in another process, and the store has a thread of its own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| (70, format!("the system refuses a runtime: {error}")))?;
    let ended = runtime.block_on(serve(settings, sensors, logs.filter(), own));
    match ended {
        Ok(Ending::Asked) => Ok(ExitCode::SUCCESS),
        Ok(Ending::Replaced) => Ok(ExitCode::from(REPLACED)),
        Err(error) => {
            tracing::error!("{error}");
            Err((error.exit_code(), error.to_string()))
        }
    }
}

/// Why the daemon ended.
enum Ending {
    /// By a signal or a call.
    Asked,
    /// Its manager shall start the new program.
    Replaced,
}

async fn serve(
    settings: Settings,
    sensors: Arc<dyn Sensors>,
    filter: logs::Filter,
    own: Own,
) -> Result<Ending, ServerError> {
    let drain = CancellationToken::new();
    tokio::spawn(drain_on_signals(
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        drain.clone(),
    ));
    let replaced = CancellationToken::new();
    if let Some(program) = own.program {
        tokio::spawn(drain_when_replaced(program, replaced.clone(), drain.clone()));
    }
    if let Some(attempt) = own.attempt {
        tokio::spawn(async move {
            tokio::time::sleep(HEALTHY_AFTER).await;
            attempt.well();
        });
    }
    if cfg!(debug_assertions) && std::env::var_os(PANIC_VARIABLE).is_some() {
        panic!("{PANIC_VARIABLE} is set");
    }
    server::run(settings, sensors, filter, own.inherited, drain).await?;
    Ok(if replaced.is_cancelled() { Ending::Replaced } else { Ending::Asked })
}

async fn drain_on_signals(mut terminate: Signal, mut interrupt: Signal, drain: CancellationToken) {
    tokio::select! {
        _ = terminate.recv() => tracing::info!("terminated"),
        _ = interrupt.recv() => tracing::info!("interrupted"),
    }
    drain.cancel();
    // Whoever asks twice doesn't want to wait; the store bears it.
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::warn!("asked twice: ending at once");
    std::process::exit(EXIT_INTERRUPTED);
}

async fn drain_when_replaced(program: OwnProgram, replaced: CancellationToken, drain: CancellationToken) {
    match program.replaced().await {
        Ok(()) => {
            tracing::info!("the program was replaced: ending, to be started as the new one");
            replaced.cancel();
            drain.cancel();
        }
        Err(error) => {
            tracing::warn!("a new program won't be noticed: {error}; 'fusionctl restart' starts it");
        }
    }
}

fn state_directory(given: Option<std::path::PathBuf>) -> Result<std::path::PathBuf, Failure> {
    fusion_proto::state::state_directory(given).map_err(|error| misconfigured(&error.into()))
}
