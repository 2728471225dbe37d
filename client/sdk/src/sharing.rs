//! Calibrations on their way to and from other machines.

use fusion_calibrations::sharing::TakenAs;
use fusion_proto::endpoint::SocketPath;
use fusion_proto::v1::import_reply::Event;
use fusion_proto::v1::import_request::Part;
use fusion_proto::{MAX_BUNDLE_PIECE_BYTES, v1};
use tonic::Streaming;

use crate::ClientError;
use crate::error::from_status;

/// What happens in an import.
#[derive(Debug, Clone, PartialEq)]
pub enum ImportEvent {
    /// So many records are done.
    Progress(v1::ImportProgress),
    /// All are.
    Finished(v1::ImportFinished),
}

/// A running import. Dropping it ends it after the record at hand; what was taken over stays, and the next import of the same bundle goes on.
#[derive(Debug)]
pub struct Import {
    socket: SocketPath,
    events: Streaming<v1::ImportReply>,
    finished: bool,
}

impl Import {
    pub(crate) fn new(socket: SocketPath, events: Streaming<v1::ImportReply>) -> Self {
        Self { socket, events, finished: false }
    }

    /// The next event; `None` after [`ImportEvent::Finished`]. An event that this version doesn't know is passed over.
    ///
    /// # Errors
    /// [`ClientError::Lost`] if the daemon goes away before all is done; the daemon's own error otherwise.
    pub async fn next(&mut self) -> Result<Option<ImportEvent>, ClientError> {
        while !self.finished {
            let message = self.events.message().await;
            // Whatever comes instead of an event is the end.
            self.finished = true;
            let reply = message.map_err(|status| from_status(&self.socket, &status))?;
            let reply = reply.ok_or_else(|| ClientError::Lost {
                socket: self.socket.as_path().to_owned(),
                reason: "the import's events ended before the import did".to_owned(),
            })?;
            match reply.event {
                Some(Event::Finished(finished)) => return Ok(Some(ImportEvent::Finished(finished))),
                Some(Event::Progress(progress)) => {
                    self.finished = false;
                    return Ok(Some(ImportEvent::Progress(progress)));
                }
                None => self.finished = false,
            }
        }
        Ok(None)
    }
}

/// The messages that carry a bundle.
pub(crate) fn requests(bundle: &[u8], taken: TakenAs) -> Vec<v1::ImportRequest> {
    let taken = match taken {
        TakenAs::Imported => v1::TakenAs::Imported,
        TakenAs::Prior => v1::TakenAs::Prior,
    };
    let pieces = bundle.chunks(MAX_BUNDLE_PIECE_BYTES).map(|piece| Part::Bytes(piece.to_vec()));
    let parts = std::iter::once(Part::TakenAs(taken.into())).chain(pieces);
    parts.map(|part| v1::ImportRequest { part: Some(part) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_travels_in_pieces_behind_the_word_how() {
        let bundle: Vec<u8> = (0..=255).cycle().take(2 * MAX_BUNDLE_PIECE_BYTES + 7).collect();
        let mut parts = requests(&bundle, TakenAs::Prior).into_iter().map(|request| request.part.unwrap());
        assert_eq!(parts.next(), Some(Part::TakenAs(v1::TakenAs::Prior.into())));
        let pieces: Vec<Vec<u8>> = parts
            .map(|part| match part {
                Part::Bytes(bytes) => bytes,
                Part::TakenAs(_) => panic!("said twice"),
            })
            .collect();
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces.concat(), bundle);
    }
}
