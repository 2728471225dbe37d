//! Exit codes: the numbers of sysexits, so that a script can tell "ask again" from "mend something".

use std::process::ExitCode;

use fusion_client::ClientError;
use fusion_service::ServiceError;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It did what it was asked.
    Ok = 0,
    /// At least one shape could not be calibrated, the probe or one of the doctor's checks failed, or tokens differ in a bench.
    Negative = 1,
    /// The command line is wrong. clap's number, too.
    Usage = 2,
    /// The daemon refused the request's content, the store has faults, or there is nothing to draw.
    BadData = 65,
    /// No daemon, or none that answers.
    NotRunning = 69,
    /// A bug.
    Internal = 70,
    /// The store, the disk or the output.
    Io = 74,
    /// The daemon is busy, full or leaving.
    Busy = 75,
    /// The socket belongs to somebody else.
    WrongUser = 77,
    /// Something is missing or doesn't fit together: socket path, worker, versions.
    Config = 78,
    /// Ctrl-C: 128 + SIGINT, as shells have it.
    Interrupted = 130,
    /// SIGTERM: 128 + its number.
    Terminated = 143,
}

/// The list for `--help`; a test holds it against the enum.
pub(crate) const HELP: &str = "\
Exit codes:
  0    done
  1    at least one shape could not be calibrated, the probe or one of the doctor's checks failed, or tokens differ in a bench
  2    wrong usage: unknown command, model, shape, format, workload or arm; or there is no terminal to ask or show on
  65   the daemon refused the content of the request, the store has faults, or there is nothing to draw
  69   the daemon is not running, or does not answer
  70   internal error
  74   the store, the disk or the output failed
  75   busy, full or shutting down, or another fusionctl installs: try again
  77   the socket belongs to another user
  78   something is missing or does not fit together: socket path, worker, versions, installation, its manager
  130  interrupted by Ctrl-C
  143  'fusionctl watch' was ended by SIGTERM";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<&ClientError> for Exit {
    fn from(error: &ClientError) -> Self {
        match error {
            ClientError::NotRunning { .. } | ClientError::NotAnswering { .. } | ClientError::Lost { .. } => {
                Self::NotRunning
            }
            ClientError::ForeignSocket { .. } => Self::WrongUser,
            ClientError::InvalidArgument(_) | ClientError::TooLarge(_) | ClientError::NotFound(_) => {
                Self::BadData
            }
            ClientError::FailedPrecondition(_) | ClientError::Protocol { .. } => Self::Config,
            ClientError::ResourceExhausted(_)
            | ClientError::Busy(_)
            | ClientError::Cancelled(_)
            | ClientError::Draining { .. } => Self::Busy,
            ClientError::Socket { .. } | ClientError::AlreadyExists(_) | ClientError::Store(_) => Self::Io,
            ClientError::Nonsense(_) | ClientError::Other { .. } => Self::Internal,
        }
    }
}

impl From<&ServiceError> for Exit {
    fn from(error: &ServiceError) -> Self {
        match error {
            ServiceError::Busy | ServiceError::StillLoaded { .. } | ServiceError::DaemonStays { .. } => {
                Self::Busy
            }
            ServiceError::Io(_) => Self::Io,
            ServiceError::PropertyList(_) => Self::Internal,
            ServiceError::CannotRun { .. }
            | ServiceError::Failed { .. }
            | ServiceError::NotInstalled(_)
            | ServiceError::NoProgram { .. }
            | ServiceError::NoLibrary { .. }
            | ServiceError::UnusablePath(_)
            | ServiceError::Record(_) => Self::Config,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_code() {
        let all = [
            Exit::Ok,
            Exit::Negative,
            Exit::Usage,
            Exit::BadData,
            Exit::NotRunning,
            Exit::Internal,
            Exit::Io,
            Exit::Busy,
            Exit::WrongUser,
            Exit::Config,
            Exit::Interrupted,
            Exit::Terminated,
        ];
        let listed: Vec<u8> = HELP
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(listed, all.map(|exit| exit as u8));
    }
}
