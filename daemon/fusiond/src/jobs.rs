//! Jobs: shapes to measure, one job at a time.
//!
//! ```text
//! submit -> waiting -> running -> ended
//!              |          |          finished: every shape done or failed
//!              +----------+--------> cancelled: its caller went away, or the daemon drains
//!                         +--------> failed: no worker can measure
//! ```
//!
//! One task owns the running job, so nothing here is locked across a measurement. A job belongs to whoever holds its
//! [`JobHandle`]: dropping that cancels it, and the worker dies with the future that talks to it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fusion_calibrations::lookup::Query;
use fusion_calibrations::record::Record;
use fusion_calibrations::search::{Known, Start, points};
use fusion_calibrations::shape::Shape;
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::machine::{Machine, MachineChoice, MachineError, is_stand_in};
use crate::measure::{self, MeasureError, Measured, Plan, unix_ms};
use crate::sensors::Sensors;
use crate::settings::WorkerSettings;
use crate::store::{self, StoreError, StoreHandle};
use crate::table::{Identity, Table};

/// Jobs that may wait. Each belongs to a waiting caller, so more means a caller in a loop.
pub const MAX_WAITING_JOBS: usize = 16;
/// Events that a slow caller may be behind by.
const EVENT_BACKLOG: usize = 64;
/// Commits that a listener may be behind by.
const COMMIT_BACKLOG: usize = 64;
/// How long a caller may not read before its job is cancelled.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// Worker deaths in a row after which a job ends: the next shape would not fare better.
const DEATHS_IN_A_ROW: u32 = 3;
/// How many times its size a shape needs to be available: the operands, and as much again for everyone else.
const MEMORY_MARGIN: u64 = 2;

/// What to do with a shape that is known already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Answer from the store.
    Reuse,
    /// Measure anew.
    Remeasure,
}

/// What a caller wants measured.
#[derive(Debug, Clone)]
pub struct JobRequest {
    /// For people: who or what asks.
    pub title: String,
    /// The shapes, each once.
    pub shapes: Vec<Shape>,
    /// What to do with known ones.
    pub freshness: Freshness,
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
}

struct QueuedJob {
    job: u64,
    request: JobRequest,
    events: mpsc::Sender<Result<JobEvent, JobError>>,
    cancel: CancellationToken,
}

#[derive(Default)]
struct Queue {
    next: u64,
    waiting: VecDeque<QueuedJob>,
}

impl Queue {
    /// Removes the jobs whose callers left or that the drain cancelled, and tells those who still listen.
    fn forget_cancelled(&mut self) {
        self.waiting.retain(|job| {
            let cancelled = job.cancel.is_cancelled();
            if cancelled {
                let _ = job.events.try_send(Err(JobError::Cancelled));
            }
            !cancelled
        });
    }
}

/// What a job works with.
pub struct Workshop {
    /// Whose calls are timed.
    pub machine: MachineChoice,
    /// How to start a worker.
    pub worker: WorkerSettings,
    /// How many clients are busy: nothing is measured meanwhile.
    pub busy: watch::Receiver<usize>,
    /// The state of the machine.
    pub sensors: Arc<dyn Sensors>,
    /// What is served.
    pub table: Arc<Table>,
    /// What is kept.
    pub store: StoreHandle,
    /// Who measures, once a worker said so.
    pub identity: watch::Sender<Option<Identity>>,
}

impl Workshop {
    async fn start_machine(&self, job: u64) -> Result<Machine, MachineError> {
        let limit = self.sensors.available_memory_bytes().map(|available| available / MEMORY_MARGIN);
        Machine::start(&self.machine, &self.worker, limit, job).await
    }
}

/// The queue of jobs, and the task that works it off.
pub struct Jobs {
    workshop: Workshop,
    queue: Mutex<Queue>,
    arrived: Notify,
    board: watch::Sender<Board>,
    commits: broadcast::Sender<Arc<Record>>,
    drain: CancellationToken,
}

impl Jobs {
    /// A queue that refuses new jobs, and cancels those that run, once `drain` is cancelled.
    pub fn new(workshop: Workshop, drain: CancellationToken) -> Arc<Self> {
        let (board, commits) = (watch::Sender::default(), broadcast::Sender::new(COMMIT_BACKLOG));
        Arc::new(Self { workshop, queue: Mutex::default(), arrived: Notify::new(), board, commits, drain })
    }

    /// Puts a job at the end of the queue.
    ///
    /// # Errors
    /// [`JobError::QueueFull`], [`JobError::Draining`], [`JobError::TooLarge`].
    pub fn submit(&self, request: JobRequest) -> Result<JobHandle, JobError> {
        if self.drain.is_cancelled() {
            return Err(JobError::Draining);
        }
        self.require_memory(&request.shapes)?;
        let (sender, events) = mpsc::channel(EVENT_BACKLOG);
        let cancel = self.drain.child_token();
        let mut queue = self.queue();
        queue.forget_cancelled();
        if queue.waiting.len() >= MAX_WAITING_JOBS {
            return Err(JobError::QueueFull);
        }
        queue.next += 1;
        let job = queue.next;
        let position = queue.waiting.len() + usize::from(self.board.borrow().running.is_some());
        if position > 0 {
            let _ = sender.try_send(Ok(JobEvent::Queued { position }));
        }
        queue.waiting.push_back(QueuedJob { job, request, events: sender, cancel: cancel.clone() });
        drop(queue);
        self.arrived.notify_one();
        Ok(JobHandle { job, events, cancel: cancel.drop_guard() })
    }

    /// What the status shows: the board, and the waiting jobs.
    pub fn status(&self) -> (Board, Vec<JobView>) {
        let waiting =
            self.queue().waiting.iter().filter(|job| !job.cancel.is_cancelled()).map(view).collect();
        (self.board.borrow().clone(), waiting)
    }

    /// Who measures, as far as is known.
    pub fn identity(&self) -> watch::Receiver<Option<Identity>> {
        self.workshop.identity.subscribe()
    }

    /// Every record that is stored from now on.
    pub fn commits(&self) -> broadcast::Receiver<Arc<Record>> {
        self.commits.subscribe()
    }

    /// Starts a worker only to learn who it is.
    pub async fn identify(&self) {
        match self.workshop.start_machine(0).await {
            Ok(machine) => {
                let _ = self.learn(&machine).await;
            }
            Err(error) => self.report_worker(Some(error.to_string())),
        }
    }

    /// Works the queue off until the daemon drains.
    pub async fn run(&self) {
        while let Some(job) = self.next().await {
            self.work(job).await;
            self.announce_positions();
        }
        self.queue().forget_cancelled();
    }

    async fn next(&self) -> Option<QueuedJob> {
        loop {
            if self.drain.is_cancelled() {
                return None;
            }
            {
                // The board changes under the queue's lock, so that a position is never counted without the running job.
                let mut queue = self.queue();
                queue.forget_cancelled();
                if let Some(job) = queue.waiting.pop_front() {
                    self.board.send_modify(|board| board.running = Some(view(&job)));
                    return Some(job);
                }
            }
            tokio::select! {
                () = self.arrived.notified() => {}
                () = self.drain.cancelled() => {}
            }
        }
    }

    async fn work(&self, job: QueuedJob) {
        tracing::info!(
            job = job.job,
            title = job.request.title,
            shapes = job.request.shapes.len(),
            "job starts"
        );
        let result = tokio::select! {
            biased;
            () = job.cancel.cancelled() => Err(JobError::Cancelled),
            result = self.measure_all(&job) => result,
        };
        let outcome = match &result {
            Ok(tally) if tally.failed > 0 => format!("finished, {} shapes failed", tally.failed),
            Ok(_) => "finished".to_owned(),
            Err(JobError::Cancelled) => "cancelled".to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::info!(job = job.job, outcome, "job ends");
        self.board.send_modify(|board| {
            let view = board.running.take().unwrap_or_default();
            board.last = Some(EndedJob { view, outcome, ended_at_unix_ms: unix_ms(SystemTime::now()) });
        });
        // Nobody may be listening any more, and a daemon on its way out waits for nobody.
        let last = job.events.send(result.map(JobEvent::Finished));
        let _ = tokio::select! {
            sent = tokio::time::timeout(READ_LIMIT, last) => sent.is_ok(),
            () = self.drain.cancelled() => false,
        };
    }

    async fn measure_all(&self, job: &QueuedJob) -> Result<Tally, JobError> {
        let mut run = Run { jobs: self, job, machine: None, tally: Tally::default(), deaths: 0 };
        run.tell(JobEvent::Started { shapes: job.request.shapes.len(), identity: None }).await?;
        for (index, shape) in job.request.shapes.iter().enumerate() {
            run.tell(JobEvent::ShapeStarted { index, shape: *shape }).await?;
            self.board.send_modify(|board| {
                if let Some(running) = &mut board.running {
                    running.shape = Some(*shape);
                }
            });
            run.shape_in_peace(index, *shape).await?;
            self.board.send_modify(|board| {
                if let Some(running) = &mut board.running {
                    running.done += 1;
                }
            });
        }
        Ok(run.tally)
    }

    async fn learn(&self, machine: &Machine) -> Result<Identity, MachineError> {
        let identity = machine.identity()?;
        let known = self.workshop.identity.borrow().as_ref() == Some(&identity);
        if !known {
            // A stand-in is known from the command line; what is kept is who this machine is.
            if !is_stand_in(&identity.chip) {
                self.keep_identity(&identity).await;
            }
            self.workshop.identity.send_replace(Some(identity.clone()));
        }
        self.report_worker(None);
        Ok(identity)
    }

    async fn keep_identity(&self, identity: &Identity) {
        let kept = store::Identity { chip: identity.chip.clone(), engine: identity.engine.clone() };
        // A failure here costs the next start a moment, nothing else.
        if let Err(error) = self.workshop.store.set_identity(kept).await {
            tracing::warn!("who measures could not be stored: {error}");
        }
    }

    fn report_worker(&self, trouble: Option<String>) {
        if let Some(trouble) = &trouble {
            tracing::warn!("{trouble}");
        }
        self.board.send_modify(|board| board.worker_trouble = trouble);
    }

    fn announce_positions(&self) {
        let mut queue = self.queue();
        queue.forget_cancelled();
        for (position, job) in queue.waiting.iter().enumerate() {
            let _ = job.events.try_send(Ok(JobEvent::Queued { position }));
        }
    }

    fn require_memory(&self, shapes: &[Shape]) -> Result<(), JobError> {
        const MIB: u64 = 1 << 20;
        let Some(available) = self.workshop.sensors.available_memory_bytes() else { return Ok(()) };
        match shapes.iter().max_by_key(|shape| shape.working_set_bytes()) {
            Some(largest) if largest.working_set_bytes().saturating_mul(MEMORY_MARGIN) > available => {
                Err(JobError::TooLarge {
                    shape: *largest,
                    needed_mib: largest.working_set_bytes() / MIB,
                    available_mib: available / MIB,
                })
            }
            _ => Ok(()),
        }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().expect("no holder of this lock panics")
    }
}

fn view(job: &QueuedJob) -> JobView {
    let QueuedJob { job, request, .. } = job;
    JobView { job: *job, title: request.title.clone(), shapes: request.shapes.len(), done: 0, shape: None }
}

/// One job on its way through its shapes.
struct Run<'a> {
    jobs: &'a Jobs,
    job: &'a QueuedJob,
    machine: Option<(Machine, Identity)>,
    tally: Tally,
    deaths: u32,
}

impl Run<'_> {
    /// Measures a shape while no client is busy. One that turns busy ends the worker at once; the shape is measured when all rest again.
    async fn shape_in_peace(&mut self, index: usize, shape: Shape) -> Result<(), JobError> {
        let mut busy = self.jobs.workshop.busy.clone();
        loop {
            if *busy.borrow_and_update() > 0 {
                self.tell(JobEvent::Queued { position: 0 }).await?;
                // Without clients nobody is busy.
                let _ = busy.wait_for(|count| *count == 0).await;
            }
            tokio::select! {
                biased;
                done = self.shape(index, shape) => return done,
                _ = busy.wait_for(|count| *count > 0) => {
                    tracing::info!(%shape, "a client turned busy: the worker is ended");
                    self.machine = None;
                }
            }
        }
    }

    async fn shape(&mut self, index: usize, shape: Shape) -> Result<(), JobError> {
        if self.job.request.freshness == Freshness::Reuse && self.answer_from_table(index, shape).await? {
            return Ok(());
        }
        self.start_machine().await?;
        // A worker that just introduced itself may be another than the one the table was asked for.
        if self.job.request.freshness == Freshness::Reuse && self.answer_from_table(index, shape).await? {
            return Ok(());
        }
        match self.measure(index, shape).await {
            Ok(measured) => self.commit(index, measured).await,
            Err(error) => self.fail(index, shape, error).await,
        }
    }

    async fn answer_from_table(&mut self, index: usize, shape: Shape) -> Result<bool, JobError> {
        let workshop = &self.jobs.workshop;
        let Some(identity) = workshop.identity.borrow().clone() else { return Ok(false) };
        let Some(record) = workshop.table.exact(&identity, shape, workshop.sensors.conditions()) else {
            return Ok(false);
        };
        self.tally.from_store += 1;
        self.tell(JobEvent::ShapeFinished { index, record, from_store: true, machine_ms: 0.0 }).await?;
        Ok(true)
    }

    async fn start_machine(&mut self) -> Result<(), JobError> {
        if self.machine.is_some() {
            return Ok(());
        }
        let started = match self.jobs.workshop.start_machine(self.job.job).await {
            Ok(machine) => self.jobs.learn(&machine).await.map(|identity| (machine, identity)),
            Err(error) => Err(error),
        };
        let (machine, identity) = started.map_err(|error| {
            self.jobs.report_worker(Some(error.to_string()));
            JobError::NoWorker(error)
        })?;
        let shapes = self.job.request.shapes.len();
        self.tell(JobEvent::Started { shapes, identity: Some(Box::new(identity.clone())) }).await?;
        self.machine = Some((machine, identity));
        Ok(())
    }

    async fn measure(&mut self, index: usize, shape: Shape) -> Result<Measured, MeasureError> {
        let (machine, identity) = self.machine.as_mut().expect("a machine was just started");
        let workshop = &self.jobs.workshop;
        let plan = plan(workshop, identity, shape);
        let events = &self.job.events;
        let progress = |calls, most_calls| {
            // Progress may be lost to a slow reader: the next one tells more.
            let _ = events.try_send(Ok(JobEvent::ShapeProgress { index, calls, most_calls }));
        };
        measure::measure(machine, identity, plan, workshop.sensors.as_ref(), progress).await
    }

    async fn commit(&mut self, index: usize, measured: Measured) -> Result<(), JobError> {
        let Measured { record, machine_ms } = measured;
        self.jobs.workshop.store.commit(record.clone()).await?;
        self.jobs.workshop.table.insert(record.clone());
        self.deaths = 0;
        self.tally.measured += 1;
        self.tally.machine_ms += machine_ms;
        let record = Arc::new(record);
        // Nobody may be listening.
        let _ = self.jobs.commits.send(Arc::clone(&record));
        self.tell(JobEvent::ShapeFinished { index, record, from_store: false, machine_ms }).await
    }

    async fn fail(&mut self, index: usize, shape: Shape, error: MeasureError) -> Result<(), JobError> {
        self.tally.failed += 1;
        let reason = error.to_string();
        self.tell(JobEvent::ShapeFailed { index, shape, reason: reason.clone() }).await?;
        if let MeasureError::Machine(error) = error
            && !error.machine_survives()
        {
            self.machine = None;
            self.jobs.report_worker(Some(reason.clone()));
            self.deaths += 1;
            if self.deaths >= DEATHS_IN_A_ROW {
                return Err(JobError::WorkersDie(reason));
            }
        }
        Ok(())
    }

    async fn tell(&self, event: JobEvent) -> Result<(), JobError> {
        match tokio::time::timeout(READ_LIMIT, self.job.events.send(Ok(event))).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(JobError::Cancelled),
        }
    }
}

/// What is known before a shape is measured. The search starts from this very shape by another engine or under other conditions, else from what the
/// nearest knowledge predicts.
fn plan(workshop: &Workshop, identity: &Identity, shape: Shape) -> Plan {
    let records = workshop.table.of_chip(&identity.chip);
    let conditions = workshop.sensors.conditions();
    let rule = workshop.table.row_rule(&identity.chip);
    let query = Query { shape, chip: &identity.chip, engine: &identity.engine, conditions };
    let answer = crate::table::answer(&records, &query, &rule);
    let start = match (answer.estimate, answer.lines) {
        (Some(estimate), _) if estimate.shape == shape => Start::Warm(Known::from(estimate)),
        (_, Some(lines)) => Start::Prior(lines),
        _ => Start::Cold,
    };
    let before = workshop.table.exact(identity, shape, conditions);
    let cliff_evidence =
        before.map(|record| points::cliff_evidence(&record.samples, shape)).unwrap_or_default();
    Plan { shape, start, rule, cliff_evidence }
}
