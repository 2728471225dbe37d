//! What a job is asked for, what happens in it, and how it is shown.

use std::sync::Arc;

use fusion_calibrations::engine::Engine;
use fusion_calibrations::record::Record;
use fusion_calibrations::shape::Shape;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use super::MAX_WAITING_JOBS;
use super::run::DEATHS_IN_A_ROW;
use crate::client_worker::ClientWorker;
use crate::machine::MachineError;
use crate::store::StoreError;
use crate::table::Identity;

/// What to do with a shape that is known already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Answer from the store.
    Reuse,
    /// Measure anew.
    Remeasure,
}

/// Whose worker measures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Measurer {
    /// The daemon's own.
    Own,
    /// A client's, for its engine.
    Client {
        /// The engine that it must say it has.
        engine: Engine,
        /// What is started.
        worker: ClientWorker,
    },
}

impl Measurer {
    /// The engine that it measures with, given the own worker's.
    pub fn engine<'a>(&'a self, own: &'a Engine) -> &'a Engine {
        match self {
            Self::Own => own,
            Self::Client { engine, .. } => engine,
        }
    }
}

/// What a caller wants measured.
#[derive(Debug, Clone)]
pub struct JobRequest {
    /// For people: who or what asks.
    pub title: String,
    /// The shapes, each once.
    pub shapes: Vec<Shape>,
    /// Who measures them.
    pub by: Measurer,
    /// What to do with known ones.
    pub freshness: Freshness,
    /// Machine time that each shape may take, in ms.
    pub machine_ms: f64,
}

/// Why a job isn't accepted, or ended without doing its shapes.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// Too many wait.
    #[error("{MAX_WAITING_JOBS} jobs are waiting already: try again when 'fusionctl status' shows fewer")]
    QueueFull,
    /// The daemon is about to exit.
    #[error("fusiond is shutting down and takes no more jobs: start it again and repeat")]
    Draining,
    /// A shape doesn't fit.
    #[error(
        "measuring {shape} needs {needed_mib} MiB and as much again for everyone else, but {available_mib} MiB are available: choose fewer rows, or close something"
    )]
    TooLarge {
        /// The shape.
        shape: Shape,
        /// Its working set.
        needed_mib: u64,
        /// What is available.
        available_mib: u64,
    },
    /// No worker can measure.
    #[error("nothing can be measured: {0}")]
    NoWorker(#[source] MachineError),
    /// Worker after worker died.
    #[error("{DEATHS_IN_A_ROW} workers in a row died, so the rest was not tried; the last one: {0}")]
    WorkersDie(String),
    /// The daemon's worker is throttled: what it measured would be wrong.
    #[error("nothing is measured: {0}")]
    Withheld(String),
    /// What was measured can't be stored.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// Its caller went away, or the daemon drains.
    #[error("the job was cancelled")]
    Cancelled,
}

/// Something that happened in a job. `index` is a shape's place in the job, from 0.
#[derive(Debug)]
pub enum JobEvent {
    /// It waits.
    Queued {
        /// Jobs that come first; 0 for a running job that waits until no client is busy.
        position: usize,
    },
    /// It runs; told again, with who measures, once a worker is up.
    Started {
        /// Shapes in the job.
        shapes: usize,
        /// Who measures.
        identity: Option<Box<Identity>>,
    },
    /// A shape's turn begins.
    ShapeStarted {
        /// Its place.
        index: usize,
        /// The shape.
        shape: Shape,
    },
    /// Calls were made.
    ShapeProgress {
        /// The shape's place.
        index: usize,
        /// Calls made.
        calls: u32,
        /// Calls at most.
        most_calls: u32,
    },
    /// A shape is done and stored.
    ShapeFinished {
        /// Its place.
        index: usize,
        /// What is believed now.
        record: Arc<Record>,
        /// Whether it was known already.
        from_store: bool,
        /// Machine time of the calls made for it, in ms.
        machine_ms: f64,
    },
    /// A shape can't be measured.
    ShapeFailed {
        /// Its place.
        index: usize,
        /// The shape.
        shape: Shape,
        /// What went wrong, and what to do.
        reason: String,
    },
    /// The last event of a job that did its shapes.
    Finished(Tally),
}

/// What a job did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tally {
    /// Shapes measured.
    pub measured: u32,
    /// Shapes answered from the store.
    pub from_store: u32,
    /// Shapes that failed.
    pub failed: u32,
    /// Machine time of all calls, in ms.
    pub machine_ms: f64,
}

/// A job as its caller holds it. Dropping it cancels the job.
#[derive(Debug)]
pub struct JobHandle {
    /// Its number.
    pub job: u64,
    /// What happens; ends after [`JobEvent::Finished`] or an error.
    pub events: mpsc::Receiver<Result<JobEvent, JobError>>,
    /// Cancels the job when dropped.
    pub cancel: DropGuard,
}

/// A job as the status shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobView {
    /// Its number.
    pub job: u64,
    /// Who or what asked.
    pub title: String,
    /// Shapes in it.
    pub shapes: usize,
    /// Shapes done.
    pub done: usize,
    /// The shape being measured.
    pub shape: Option<Shape>,
}

/// How a job ended.
#[derive(Debug, Clone)]
pub struct EndedJob {
    /// The job.
    pub view: JobView,
    /// "finished", "cancelled", or what went wrong.
    pub outcome: String,
    /// When, in ms since 1970.
    pub ended_at_unix_ms: u64,
}

/// What the status shows of jobs and workers.
#[derive(Debug, Clone, Default)]
pub struct Board {
    /// The job that runs.
    pub running: Option<JobView>,
    /// The last that ended.
    pub last: Option<EndedJob>,
    /// What was wrong with the last worker; `None` if it was well.
    pub worker_trouble: Option<String>,
    /// The last time that something was wrong with a worker, since the daemon started.
    pub last_trouble: Option<WorkerTrouble>,
}

/// Something that was wrong with a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerTrouble {
    /// What, for a person.
    pub reason: String,
    /// When, in ms since 1970.
    pub at_unix_ms: u64,
}
