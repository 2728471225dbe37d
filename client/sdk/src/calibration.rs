//! What happens in a calibration.

use fusion_proto::endpoint::SocketPath;
use fusion_proto::v1;
pub use fusion_proto::v1::calibrate_event::Event;
use tonic::Streaming;

use crate::ClientError;
use crate::error::from_status;

/// A running calibration. Dropping it cancels the job; what was committed stays.
#[derive(Debug)]
pub struct Calibration {
    socket: SocketPath,
    events: Streaming<v1::CalibrateEvent>,
    finished: bool,
}

impl Calibration {
    pub(crate) fn new(socket: SocketPath, events: Streaming<v1::CalibrateEvent>) -> Self {
        Self { socket, events, finished: false }
    }

    /// The next event; `None` after [`Event::Finished`]. An event that this version doesn't know is passed over.
    ///
    /// # Errors
    /// [`ClientError::Lost`] if the daemon goes away before the job is finished; the daemon's own error otherwise.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        while !self.finished {
            match self.events.message().await {
                Ok(Some(v1::CalibrateEvent { event: Some(event) })) => {
                    self.finished = matches!(event, Event::Finished(_));
                    return Ok(Some(event));
                }
                Ok(Some(v1::CalibrateEvent { event: None })) => {}
                Ok(None) => {
                    self.finished = true;
                    return Err(ClientError::Lost {
                        socket: self.socket.as_path().to_owned(),
                        reason: "the job's events ended before the job did".to_owned(),
                    });
                }
                Err(status) => {
                    self.finished = true;
                    return Err(from_status(&self.socket, &status));
                }
            }
        }
        Ok(None)
    }
}
