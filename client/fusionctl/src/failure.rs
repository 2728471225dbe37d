//! Why a command did not do what it was asked.

use std::io;

use fusion_calibrations::models::ModelError;
use fusion_calibrations::shape::ShapeError;
use fusion_client::state::StateError;
use fusion_client::{ClientError, EndpointError};
use fusion_service::ServiceError;

use crate::exit::Exit;

/// Why a command did not do what it was asked: one line for people, and an exit code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The daemon, or the way to it.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is no usable socket path.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// There is no place for state or configuration.
    #[error(transparent)]
    State(#[from] StateError),
    /// The machine's manager, or what is installed.
    #[error(transparent)]
    Service(ServiceError),
    /// No such shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// No such model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Another mistake in the command line.
    #[error("{0}")]
    Usage(String),
    /// Anything else, with its exit code.
    #[error("{message}")]
    Ended {
        /// For people.
        message: String,
        /// For scripts.
        exit: Exit,
    },
    /// Nobody reads the output any more.
    #[error("nobody reads the output")]
    BrokenPipe,
    /// The output can't be written.
    #[error("cannot write the output: {0}; look at where it goes")]
    Output(io::Error),
}

impl Failure {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Client(error) => error.into(),
            Self::Endpoint(_) | Self::State(_) => Exit::Config,
            Self::Service(error) => error.into(),
            Self::Shape(_) | Self::Model(ModelError::Unknown { .. }) | Self::Usage(_) => Exit::Usage,
            Self::Model(ModelError::Broken { .. }) => Exit::Internal,
            Self::Ended { exit, .. } => *exit,
            Self::BrokenPipe => Exit::Ok,
            Self::Output(_) => Exit::Io,
        }
    }

    pub(crate) fn ended(exit: Exit, message: impl Into<String>) -> Self {
        Self::Ended { message: message.into(), exit }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::BrokenPipe } else { Self::Output(error) }
    }
}
