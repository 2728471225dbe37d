//! How long to wait for what.

use std::time::Duration;

/// How long to wait for what before [`crate::ClientError::NotAnswering`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Connecting, and the first question: who are you.
    pub connect: Duration,
    /// A call that the daemon answers from memory.
    pub call: Duration,
    /// A call that reads or writes the whole store.
    pub store: Duration,
    /// A worker that is started, or asked for some calls.
    pub worker: Duration,
    /// Silence on a running calibration after which the daemon is asked whether it lives.
    pub keep_alive: Duration,
    /// How long it may take to answer that.
    pub keep_alive_answer: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            call: Duration::from_secs(5),
            store: Duration::from_secs(120),
            worker: Duration::from_secs(60),
            keep_alive: Duration::from_secs(10),
            // Generous: while it measures, the daemon shares its cores with its worker.
            keep_alive_answer: Duration::from_secs(10),
        }
    }
}
