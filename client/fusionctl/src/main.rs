//! `fusionctl`: the command line of fusiond.
//!
//! Data goes to stdout, everything else to stderr. An error is one line that says what, where and what next, and an exit
//! code of [`exit::Exit`].

mod arguments;
mod commands;
mod doctor;
mod exit;
mod failure;
mod json;
mod location;
mod metrics;
mod output;
mod plot;
mod render;
mod targets;
mod watch;

use std::process::ExitCode;

use clap::Parser as _;

use crate::arguments::Arguments;
use crate::exit::Exit;
use crate::failure::Failure;

fn main() -> ExitCode {
    match commands::run(Arguments::parse()) {
        // A broken pipe: whoever reads us has seen enough.
        Ok(()) | Err(Failure::BrokenPipe) => Exit::Ok.into(),
        Err(failure) => {
            // Nobody to tell if even stderr is gone.
            let _ = output::error_line(&failure);
            failure.exit().into()
        }
    }
}
