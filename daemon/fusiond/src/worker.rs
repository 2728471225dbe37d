//! A worker process: started for a job, asked for one call at a time, gone afterwards.
//!
//! MLX aborts its whole process on a GPU error, so a worker's death is a result, not an accident: it becomes an error that says how
//! it died and what it last wrote.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fusion_frames::{ContentError, FrameError, Hello, PROTOCOL, Reply, Request, Timed, WireShape};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::settings::WorkerSettings;

/// Why a worker gives no answer.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The program isn't there, or isn't one.
    #[error(
        "the worker '{program}' can't be started ({source}): install fusion-worker beside fusiond, or name it with --worker or FUSION_WORKER; a client names its own"
    )]
    Unavailable {
        /// The program.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The process ended without being asked to.
    #[error("the worker {how}{last_words}")]
    Died {
        /// "was ended by signal 9", "exited with code 1".
        how: String,
        /// What it wrote last, for a person.
        last_words: LastWords,
    },
    /// No answer within the limit; the worker is ended.
    #[error("the worker did not {what} within {} s and was ended{last_words}", limit.as_secs_f32())]
    TimedOut {
        /// What it should have done.
        what: &'static str,
        /// The limit.
        limit: Duration,
        /// What it wrote last, for a person.
        last_words: LastWords,
    },
    /// It speaks another protocol.
    #[error(
        "the worker speaks frame protocol {theirs}, this fusiond {PROTOCOL}: install both from one release"
    )]
    Protocol {
        /// The worker's.
        theirs: u32,
    },
    /// It sends what isn't a message, or one that answers another question.
    #[error("the worker's answer makes no sense: {0}")]
    Nonsense(String),
    /// It says that it can't do this; it lives on.
    #[error("the worker refused: {0}")]
    Refused(String),
}

impl WorkerError {
    /// Whether the worker can be asked again.
    pub fn worker_survives(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Whether another worker would fail the same way.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Protocol { .. })
    }
}

impl From<ContentError> for WorkerError {
    fn from(error: ContentError) -> Self {
        Self::Nonsense(error.to_string())
    }
}

/// What a worker wrote last to its standard error.
#[derive(Debug, Clone, Default)]
pub struct LastWords(Arc<Mutex<VecDeque<String>>>);

impl LastWords {
    const LINES: usize = 8;

    fn push(&self, line: String) {
        let mut lines = self.0.lock().expect("no holder of this lock panics");
        if lines.len() == Self::LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

impl fmt::Display for LastWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.0.lock().expect("no holder of this lock panics");
        if lines.is_empty() {
            return Ok(());
        }
        f.write_str("; its last words: ")?;
        for (index, line) in lines.iter().enumerate() {
            write!(f, "{}{line}", if index == 0 { "" } else { " | " })?;
        }
        Ok(())
    }
}

/// A running worker. Dropping it ends the process at once.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    last_words: LastWords,
    listener: JoinHandle<()>,
    hello: Hello,
    answer_limit: Duration,
}

impl Worker {
    /// Starts a worker that may take `memory_limit_bytes` for what it measures, and waits for its hello.
    ///
    /// # Errors
    /// Every [`WorkerError`] but `Refused`.
    pub async fn start(
        settings: &WorkerSettings,
        memory_limit_bytes: Option<u64>,
    ) -> Result<Self, WorkerError> {
        let limit = memory_limit_bytes.map(|bytes| (fusion_frames::MEMORY_LIMIT_VARIABLE, bytes.to_string()));
        let mut child = Command::new(&settings.program)
            .args(&settings.arguments)
            .envs(&settings.environment)
            .envs(limit)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| WorkerError::Unavailable { program: settings.program.clone(), source })?;
        let last_words = LastWords::default();
        let stderr = child.stderr.take().expect("the standard error is piped");
        let mut worker = Self {
            stdin: child.stdin.take().expect("the standard input is piped"),
            stdout: child.stdout.take().expect("the standard output is piped"),
            listener: tokio::spawn(listen(stderr, last_words.clone())),
            child,
            last_words,
            hello: Hello::default(),
            answer_limit: settings.answer_limit,
        };
        let limit = settings.start_limit;
        let reply = match timeout(limit, worker.receive()).await {
            Ok(reply) => reply?,
            Err(_) => return Err(worker.timed_out("say hello", limit)),
        };
        match reply {
            Reply::Hello(hello) if hello.protocol == PROTOCOL => worker.hello = hello,
            Reply::Hello(hello) => return Err(WorkerError::Protocol { theirs: hello.protocol }),
            other => return Err(unexpected("a hello", &other)),
        }
        Ok(worker)
    }

    /// Who the worker is.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The worker's process; `None` once it ended.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Makes the operands of a shape.
    ///
    /// # Errors
    /// Every [`WorkerError`] of a running worker.
    pub async fn prepare(&mut self, shape: WireShape) -> Result<(), WorkerError> {
        match self.ask(&Request::Prepare(shape)).await? {
            Reply::Prepared { .. } => Ok(()),
            other => Err(unexpected("'prepared'", &other)),
        }
    }

    /// Makes one timed call: `Request::Stock` or `Request::Split`.
    ///
    /// # Errors
    /// Every [`WorkerError`] of a running worker.
    pub async fn time(&mut self, request: &Request) -> Result<Timed, WorkerError> {
        match self.ask(request).await? {
            Reply::Timed(timed) => Ok(timed),
            other => Err(unexpected("a time", &other)),
        }
    }

    /// Compares a split's result with the unsplit one: the relative error.
    ///
    /// # Errors
    /// Every [`WorkerError`] of a running worker.
    pub async fn check(&mut self, secondary_rows: u32) -> Result<f64, WorkerError> {
        match self.ask(&Request::Check { secondary_rows }).await? {
            Reply::Checked { relative_error } => Ok(relative_error),
            other => Err(unexpected("a comparison", &other)),
        }
    }

    async fn ask(&mut self, request: &Request) -> Result<Reply, WorkerError> {
        let frame = fusion_frames::encode(request).expect("every request fits into a frame");
        let limit = self.answer_limit;
        let exchange = async {
            // A dead worker is noticed by the read that follows, with its exit status.
            let _ = self.stdin.write_all(&frame).await;
            self.receive().await
        };
        match timeout(limit, exchange).await {
            Ok(Ok(Reply::Refused { reason })) => Err(WorkerError::Refused(reason)),
            Ok(reply) => reply,
            Err(_) => Err(self.timed_out("answer", limit)),
        }
    }

    async fn receive<T: DeserializeOwned>(&mut self) -> Result<T, WorkerError> {
        match self.read_frame().await {
            Ok(message) => Ok(message),
            Err(FrameError::Io(error)) if error.kind() == ErrorKind::UnexpectedEof => Err(self.death().await),
            Err(other) => Err(WorkerError::Nonsense(other.to_string())),
        }
    }

    async fn read_frame<T: DeserializeOwned>(&mut self) -> Result<T, FrameError> {
        let mut prefix = [0; 4];
        self.stdout.read_exact(&mut prefix).await?;
        let mut body = vec![0; fusion_frames::body_length(prefix)?];
        self.stdout.read_exact(&mut body).await?;
        fusion_frames::decode(&body)
    }

    /// The error of a worker whose standard output ended: waits for its status and its last words.
    async fn death(&mut self) -> WorkerError {
        const PATIENCE: Duration = Duration::from_secs(1);
        let how = match timeout(PATIENCE, self.child.wait()).await {
            Ok(Ok(status)) => describe(status),
            Ok(Err(error)) => format!("ended, but its status is unknown: {error}"),
            Err(_) => {
                let _ = self.child.start_kill();
                "closed its standard output and was ended".to_owned()
            }
        };
        let _ = timeout(PATIENCE, &mut self.listener).await;
        WorkerError::Died { how, last_words: self.last_words.clone() }
    }

    fn timed_out(&mut self, what: &'static str, limit: Duration) -> WorkerError {
        let _ = self.child.start_kill();
        WorkerError::TimedOut { what, limit, last_words: self.last_words.clone() }
    }
}

async fn listen(stderr: ChildStderr, last_words: LastWords) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        tracing::debug!(target: "worker", "{line}");
        last_words.push(line);
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        // The dynamic loader's: on Linux MLX is a shared library of the checkout.
        (Some(127), _) => {
            "exited with code 127: a library is missing, most likely MLX; 'make setup' puts it back"
                .to_owned()
        }
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

fn unexpected(wanted: &str, reply: &Reply) -> WorkerError {
    WorkerError::Nonsense(format!("{wanted} was asked for, it sent {reply:?}"))
}
