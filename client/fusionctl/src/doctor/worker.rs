//! A worker that this terminal starts, to compare the daemon's with. It speaks the same frames.

use std::process::Stdio;
use std::time::Duration;

use fusion_calibrations::shape::Shape;
use fusion_frames::{FrameError, Hello, PROTOCOL, Reply, Request};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long one answer may take: the first loads MLX, and Metal may compile.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why it gives no times.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    /// It can't be started.
    #[error("'{program}' can't be started from here: {source}")]
    Start {
        /// The program.
        program: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// It ended, or wrote what is no frame.
    #[error("the worker that was started from here failed: {0}")]
    Frames(#[from] FrameError),
    /// It takes too long.
    #[error("the worker that was started from here did not answer within {} s", PATIENCE.as_secs())]
    Late,
    /// It answers something else.
    #[error("the worker that was started from here answers something else: {0}")]
    Other(String),
}

/// A running worker; ended when dropped.
pub(super) struct Worker {
    _child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl Worker {
    /// Starts it; what it says of itself.
    pub(super) async fn start(program: &str, arguments: &[String]) -> Result<(Self, Hello), WorkerError> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| WorkerError::Start { program: program.to_owned(), source })?;
        let stdin = child.stdin.take().expect("the standard input is piped");
        let stdout = child.stdout.take().expect("the standard output is piped");
        let mut worker = Self { _child: child, stdin, stdout };
        match worker.receive().await? {
            Reply::Hello(hello) if hello.protocol == PROTOCOL => Ok((worker, hello)),
            other => Err(WorkerError::Other(format!("{other:?} instead of a hello of protocol {PROTOCOL}"))),
        }
    }

    /// Makes the operands.
    pub(super) async fn prepare(&mut self, shape: Shape) -> Result<(), WorkerError> {
        match self.ask(&Request::Prepare(shape.into())).await? {
            Reply::Prepared { .. } => Ok(()),
            other => Err(WorkerError::Other(format!("{other:?}"))),
        }
    }

    /// The times of so many calls, in ms.
    pub(super) async fn round(&mut self, calls: u32) -> Result<Vec<f64>, WorkerError> {
        let mut times_ms = Vec::new();
        for _ in 0..calls {
            match self.ask(&Request::Stock).await? {
                Reply::Timed(timed) => times_ms.push(timed.total_ns as f64 / 1e6),
                other => return Err(WorkerError::Other(format!("{other:?}"))),
            }
        }
        Ok(times_ms)
    }

    async fn ask(&mut self, request: &Request) -> Result<Reply, WorkerError> {
        let frame = fusion_frames::encode(request)?;
        self.stdin.write_all(&frame).await.map_err(FrameError::from)?;
        self.receive().await
    }

    async fn receive<T: DeserializeOwned>(&mut self) -> Result<T, WorkerError> {
        let read = tokio::time::timeout(PATIENCE, async {
            let mut prefix = [0; 4];
            self.stdout.read_exact(&mut prefix).await?;
            let mut body = vec![0; fusion_frames::body_length(prefix)?];
            self.stdout.read_exact(&mut body).await?;
            fusion_frames::decode(&body)
        });
        Ok(read.await.map_err(|_| WorkerError::Late)??)
    }
}
