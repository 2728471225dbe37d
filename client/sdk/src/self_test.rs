//! The daemon's half of a self-test.

use std::time::Duration;

use fusion_proto::endpoint::SocketPath;
use fusion_proto::v1;
use fusion_proto::v1::self_test_reply::Part;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Streaming;

use crate::ClientError;
use crate::error::from_status;

/// A self-test in the daemon: its worker lives until this is dropped.
#[derive(Debug)]
pub struct SelfTest {
    socket: SocketPath,
    requests: mpsc::Sender<v1::SelfTestRequest>,
    replies: Streaming<v1::SelfTestReply>,
    /// How long a reply may take.
    limit: Duration,
}

impl SelfTest {
    pub(crate) fn new(
        socket: SocketPath,
        requests: mpsc::Sender<v1::SelfTestRequest>,
        replies: Streaming<v1::SelfTestReply>,
        limit: Duration,
    ) -> Self {
        Self { socket, requests, replies, limit }
    }

    /// What is timed, and with which worker: asked once, first.
    ///
    /// # Errors
    /// [`ClientError::FailedPrecondition`] if the daemon's worker fails, [`ClientError::Lost`], and those of a connection.
    pub async fn ready(&mut self) -> Result<v1::SelfTestReady, ClientError> {
        match self.reply().await? {
            Part::Ready(ready) => Ok(ready),
            Part::Round(_) => Err(self.lost("a round came before what is timed")),
        }
    }

    /// The time of each call of one more round, in ms.
    ///
    /// # Errors
    /// [`ClientError::Busy`] once a client or a job came in between, and as [`Self::ready`].
    pub async fn round(&mut self) -> Result<Vec<f64>, ClientError> {
        // A call that ended tells why with the next reply.
        let _ = self.requests.send(v1::SelfTestRequest {}).await;
        match self.reply().await? {
            Part::Round(round) => Ok(round.times_ms),
            Part::Ready(_) => Err(self.lost("what is timed was said twice")),
        }
    }

    async fn reply(&mut self) -> Result<Part, ClientError> {
        let reply = timeout(self.limit, self.replies.message()).await.map_err(|_| {
            ClientError::NotAnswering { socket: self.socket.as_path().to_owned(), after: self.limit }
        })?;
        let reply = reply.map_err(|status| from_status(&self.socket, &status))?;
        reply.and_then(|reply| reply.part).ok_or_else(|| self.lost("the self-test ended early"))
    }

    fn lost(&self, reason: &str) -> ClientError {
        ClientError::Lost { socket: self.socket.as_path().to_owned(), reason: reason.to_owned() }
    }
}
