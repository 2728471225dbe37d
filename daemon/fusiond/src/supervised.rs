//! A start under a manager: on its socket, with failed starts counted and told, so that nobody waits in vain and nothing is started for ever.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use fusion_proto::endpoint::SocketPath;
use fusiond::activation::{self, Supervisor};
use fusiond::refusal;
use fusiond::starts::{Attempt, Verdict};
use fusiond::upgrade::OwnProgram;

use crate::{CONFIGURATION, Failure, Own};

/// Does what `start` does, on the socket that the manager holds. `named` is the socket's path by the command line, which needn't name it where the
/// manager's socket tells.
pub(crate) fn run(
    supervisor: Supervisor,
    named: Option<PathBuf>,
    start: impl FnOnce(Own, Option<PathBuf>) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    let program = OwnProgram::find();
    let inherited = activation::inherited(supervisor).map_err(|error| (CONFIGURATION, error.to_string()));
    let listener = inherited.as_ref().ok().and_then(Option::as_ref);
    let spare = listener.and_then(|listener| listener.try_clone().ok());
    let named = named.or_else(|| listener.and_then(path_of));
    let attempt = match place_of_counting(named.as_ref()).map(|socket| Attempt::begin(&socket)) {
        Ok(Verdict::Try(attempt)) => Arc::new(attempt),
        // Where nothing can be counted nothing may be tried again.
        Ok(Verdict::GaveUp(reason)) | Err((_, reason)) => return Ok(given_up(spare, &reason)),
    };
    let started = inherited
        .and_then(|inherited| start(Own { inherited, program, attempt: Some(Arc::clone(&attempt)) }, named));
    match started {
        Err((code, message)) => {
            let (told, last) = attempt.failed(&message);
            let success = given_up(spare, &told);
            Ok(if last { success } else { ExitCode::from(code) })
        }
        Ok(ended) => {
            attempt.well();
            Ok(ended)
        }
    }
}

/// Tells who waits, and whoever reads the standard error. Success is what keeps the manager from starting us again.
fn given_up(listener: Option<UnixListener>, reason: &str) -> ExitCode {
    eprintln!("fusiond: {reason}");
    if let Some(Err(error)) = listener.map(|listener| refusal::answer(listener, reason)) {
        eprintln!("fusiond: those who wait can't be told why: {error}");
    }
    ExitCode::SUCCESS
}

fn path_of(listener: &UnixListener) -> Option<PathBuf> {
    listener.local_addr().ok()?.as_pathname().map(PathBuf::from)
}

/// The socket beside which failed starts are counted: the named one, else, also if that is none, the usual one.
fn place_of_counting(named: Option<&PathBuf>) -> Result<SocketPath, Failure> {
    let named = named.and_then(|path| SocketPath::new(path).ok());
    named.map_or_else(SocketPath::from_environment, Ok).map_err(|error| (CONFIGURATION, error.to_string()))
}
