//! One file per verb.

pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod clients;
mod completions;
mod config;
mod confirm;
mod doctor;
mod gates;
mod history;
mod log_level;
mod logs;
mod man;
mod metrics;
mod models;
mod pause;
mod probe;
pub(crate) mod program;
mod ratios;
mod service;
mod sharing;
mod status;
mod store;
mod watch;

use std::path::{Path, PathBuf};

use fusion_client::{Client, SOCKET_VARIABLE, SocketPath};
use jiff::Timestamp;

use crate::arguments::{Arguments, Command};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

/// Does what the command line says.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let output = Output::new(&arguments.global);
    let socket = arguments.global.socket;
    match arguments.command {
        Command::Models(command) => models::run(&command, output),
        Command::Man { directory } => man::run(&directory, output),
        Command::Completions { shell } => completions::run(shell, output),
        Command::Probe(command) => Err(probe::exec(&command, output)),
        Command::Status => wait(status::run(&path(socket)?, output)),
        Command::Doctor(command) => wait(doctor::run(&command, &path(socket)?, output)),
        Command::Watch(command) => wait(watch::run(&command, &path(socket)?, output)),
        Command::Metrics => wait(metrics::run(&path(socket)?, output)),
        Command::History(command) => wait(history::run(&command, &path(socket)?, output)),
        Command::Pause(command) => wait(pause::pause(&command, &path(socket)?, output)),
        Command::Resume => wait(pause::resume(&path(socket)?, output)),
        Command::Config(command) => wait(config::run(&command, &path(socket)?, output)),
        Command::Install(command) => wait(service::install(&command, path(socket)?, output)),
        Command::Uninstall(command) => service::uninstall(&command, path(socket)?, output),
        Command::Start(command) => wait(service::start(command, &path(socket)?, output)),
        Command::Stop(command) => wait(service::stop(command, &path(socket)?, output)),
        Command::Restart(command) => wait(service::restart(command, &path(socket)?, output)),
        Command::Logs(command) => wait(logs::run(&command, &path(socket)?, output)),
        Command::LogLevel(command) => wait(log_level::run(&command, &path(socket)?, output)),
        Command::Calibrate(command) => wait(calibrate::run(&command, &path(socket)?, output)),
        Command::Ratios(command) => wait(ratios::run(&command, &path(socket)?, output)),
        Command::Gates(command) => wait(gates::run(&command, &path(socket)?, output)),
        Command::Clients(command) => wait(clients::run(&command, &path(socket)?, output)),
        Command::Export(command) => wait(sharing::export(&command, &path(socket)?, output)),
        Command::Import(command) => wait(sharing::import(&command, &path(socket)?, output)),
        Command::Bench(command) => wait(bench::run(&command, &path(socket)?, output)),
        Command::Store(command) => wait(store::run(&command, &path(socket)?, output)),
    }
}

/// The socket that is named, else that of the installed daemon, else the usual one.
fn path(socket: Option<PathBuf>) -> Result<SocketPath, Failure> {
    let named = || std::env::var_os(SOCKET_VARIABLE).is_some_and(|socket| !socket.is_empty());
    match socket {
        Some(socket) => Ok(SocketPath::new(socket)?),
        None if named() => Ok(SocketPath::from_environment()?),
        None => Ok(service::recorded_socket().map_or_else(SocketPath::from_environment, Ok)?),
    }
}

async fn connect(socket: &SocketPath) -> Result<Client, Failure> {
    Ok(Client::connect(socket).await?)
}

/// Wall time in ms since 1970; what is told of moments rests on one look at the clock.
fn now_unix_ms() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
}

fn write_picture(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes)
        .map_err(|error| Failure::ended(Exit::Io, format!("cannot write '{}': {error}", path.display())))
}

/// One thread is enough: a command does one thing at a time.
fn wait(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::ended(Exit::Internal, format!("cannot start the event loop: {error}; try again"))
        })?
        .block_on(work)
}
