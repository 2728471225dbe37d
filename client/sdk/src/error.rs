//! What can go wrong between a client and its daemon.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fusion_proto::endpoint::SocketPath;
use fusion_proto::{REASON_METADATA, STORE_FAILED, WireError};
use tonic::{Code, Status};

/// Why a call gave no answer. The text of each says what, where and what next.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens: there is no socket, or nobody behind it.
    #[error(
        "fusiond is not running: {because} at {socket}; start it with 'fusionctl start' where it is installed, else with 'fusiond', or 'make run' in a checkout"
    )]
    NotRunning {
        /// Where a daemon was looked for.
        socket: PathBuf,
        /// "no socket", or "nobody answers".
        because: &'static str,
    },
    /// Somebody listens, and says nothing.
    #[error(
        "fusiond at {socket} did not answer within {}: it may hang; look at its log, then end it and start it again",
        seconds(.after)
    )]
    NotAnswering {
        /// Where it listens.
        socket: PathBuf,
        /// How long was waited.
        after: Duration,
    },
    /// The socket, or the daemon behind it, belongs to somebody else.
    #[error("the socket {socket} is not yours ({detail}): name your own with --socket or FUSION_SOCKET")]
    ForeignSocket {
        /// Where it lies.
        socket: PathBuf,
        /// How that shows.
        detail: String,
    },
    /// The socket can't be used, for another reason of the operating system.
    #[error("cannot use the socket {socket}: {reason}; name another with --socket or FUSION_SOCKET")]
    Socket {
        /// Where it lies.
        socket: PathBuf,
        /// The operating system's words.
        reason: String,
    },
    /// The request can't be. In the daemon's words.
    #[error("{0}")]
    InvalidArgument(String),
    /// Something that must hold first doesn't: no worker, say. In the daemon's words.
    #[error("{0}")]
    FailedPrecondition(String),
    /// Not enough memory, or too many jobs wait. In the daemon's words.
    #[error("{0}")]
    ResourceExhausted(String),
    /// There is no such thing. In the daemon's words.
    #[error("{0}")]
    NotFound(String),
    /// Something else is going on that this can't go along with: try later. In the daemon's words.
    #[error("{0}")]
    Busy(String),
    /// Something lies already where this would write. In the daemon's words.
    #[error("{0}")]
    AlreadyExists(String),
    /// The store or the disk failed. In the daemon's words.
    #[error("{0}")]
    Store(String),
    /// The daemon gave the job up: it drains, or this client read too slowly. In the daemon's words.
    #[error("fusiond gave up: {0}; what was acknowledged is kept, try again")]
    Cancelled(String),
    /// The daemon is about to exit.
    #[error("fusiond at {socket} is shutting down ({message}): start it again once it is gone")]
    Draining {
        /// Where it listens.
        socket: PathBuf,
        /// The daemon's words.
        message: String,
    },
    /// The two sides speak different versions of the protocol.
    #[error(
        "fusiond {daemon_version} speaks protocol {daemon_protocol}, this client ({client_version}) {client_protocol}: {}",
        remedy(*.daemon_protocol, *.client_protocol)
    )]
    Protocol {
        /// The daemon's version.
        daemon_version: String,
        /// The daemon's protocol.
        daemon_protocol: u32,
        /// This client's version.
        client_version: &'static str,
        /// This client's protocol.
        client_protocol: u32,
    },
    /// The connection broke while an answer was awaited.
    #[error(
        "the connection to fusiond at {socket} broke ({reason}): what was acknowledged is kept; see 'fusionctl status', then try again"
    )]
    Lost {
        /// Where it listened.
        socket: PathBuf,
        /// What broke.
        reason: String,
    },
    /// A message is larger than either side accepts.
    #[error("a message is too large for the protocol ({0}): ask for fewer shapes at a time")]
    TooLarge(String),
    /// The daemon answered with what can't be.
    #[error("fusiond's answer makes no sense: {0}; is it of this client's version? if so, please report it")]
    Nonsense(#[from] WireError),
    /// The daemon failed in a way that no other word fits.
    #[error("fusiond failed ({code}): {message}; its log says more, please report it")]
    Other {
        /// gRPC's word.
        code: String,
        /// The daemon's words.
        message: String,
    },
}

fn seconds(after: &Duration) -> impl fmt::Display {
    format!("{} s", after.as_millis() as f64 / 1000.0)
}

fn remedy(daemon: u32, client: u32) -> &'static str {
    if daemon < client {
        "put this version in place with 'fusionctl install'; where the daemon isn't installed, stop the old one with 'fusionctl stop' and start the new one with 'fusiond'"
    } else {
        "update fusionctl, or stop the daemon with 'fusionctl stop' and start the one of this version"
    }
}

/// The error of a call that ended with `status`.
pub(crate) fn from_status(socket: &SocketPath, status: &Status) -> ClientError {
    let path = || socket.as_path().to_owned();
    let message = status.message().to_owned();
    // The transport's own troubles carry their cause; what the daemon says doesn't.
    if let Some(io) = cause::<io::Error>(status).filter(|_| cause::<tonic::ConnectError>(status).is_some()) {
        return from_connect(socket, io);
    }
    if cause::<tonic::TimeoutExpired>(status).is_some() {
        return ClientError::Lost { socket: path(), reason: message };
    }
    if status.source().is_some() {
        return ClientError::Lost { socket: path(), reason: root(status) };
    }
    let store_failed = status.metadata().get(REASON_METADATA).is_some_and(|reason| reason == STORE_FAILED);
    if store_failed && !matches!(status.code(), Code::AlreadyExists | Code::Unavailable) {
        return ClientError::Store(message);
    }
    match status.code() {
        Code::InvalidArgument => ClientError::InvalidArgument(message),
        Code::FailedPrecondition => ClientError::FailedPrecondition(message),
        Code::NotFound => ClientError::NotFound(message),
        Code::ResourceExhausted => ClientError::ResourceExhausted(message),
        Code::Cancelled => ClientError::Cancelled(message),
        Code::Aborted => ClientError::Busy(message),
        Code::AlreadyExists => ClientError::AlreadyExists(message),
        Code::DataLoss => ClientError::Store(message),
        Code::Unavailable => ClientError::Draining { socket: path(), message },
        Code::OutOfRange => ClientError::TooLarge(message),
        Code::PermissionDenied | Code::Unauthenticated => {
            ClientError::ForeignSocket { socket: path(), detail: message }
        }
        code => ClientError::Other { code: format!("{code:?}"), message },
    }
}

/// The error of a socket that couldn't be connected to.
pub(crate) fn from_connect(socket: &SocketPath, error: &io::Error) -> ClientError {
    let path = socket.as_path().to_owned();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            ClientError::NotRunning { socket: path, because: "no socket" }
        }
        io::ErrorKind::ConnectionRefused => {
            ClientError::NotRunning { socket: path, because: "nobody listens" }
        }
        io::ErrorKind::PermissionDenied => {
            ClientError::ForeignSocket { socket: path, detail: error.to_string() }
        }
        _ => ClientError::Socket { socket: path, reason: error.to_string() },
    }
}

/// What is behind `status`, from the outside to the root.
fn causes(status: &Status) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let mut next = status.source();
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

fn cause<E: std::error::Error + 'static>(status: &Status) -> Option<&E> {
    causes(status).find_map(|error| error.downcast_ref())
}

fn root(status: &Status) -> String {
    causes(status).last().map_or_else(|| status.message().to_owned(), ToString::to_string)
}
