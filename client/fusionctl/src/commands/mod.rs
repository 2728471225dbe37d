//! One file per verb.

pub(crate) mod calibrate;
pub(crate) mod clients;
mod completions;
mod confirm;
mod gates;
mod models;
mod probe;
mod program;
mod ratios;
mod status;
mod stop;
mod store;

use std::path::PathBuf;

use fusion_client::{Client, SocketPath};

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
        Command::Completions { shell } => completions::run(shell, output),
        Command::Probe(command) => Err(probe::exec(&command, output)),
        Command::Status => wait(status::run(&path(socket)?, output)),
        Command::Stop => wait(stop::run(&path(socket)?, output)),
        Command::Calibrate(command) => wait(calibrate::run(&command, &path(socket)?, output)),
        Command::Ratios(command) => wait(ratios::run(&command, &path(socket)?, output)),
        Command::Gates(command) => wait(gates::run(&command, &path(socket)?, output)),
        Command::Clients(command) => wait(clients::run(&command, &path(socket)?, output)),
        Command::Store(command) => wait(store::run(&command, &path(socket)?, output)),
    }
}

fn path(socket: Option<PathBuf>) -> Result<SocketPath, Failure> {
    Ok(socket.map_or_else(SocketPath::from_environment, SocketPath::new)?)
}

async fn connect(socket: &SocketPath) -> Result<Client, Failure> {
    Ok(Client::connect(socket).await?)
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
