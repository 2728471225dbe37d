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

mod run;
mod words;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fusion_calibrations::engine::Engine;
use fusion_calibrations::record::Record;
use fusion_calibrations::shape::Shape;
use fusion_calibrations::sharing::Decision;
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::canary::Canary;
use crate::client_worker::ClientWorker;
use crate::machine::{Machine, MachineChoice, MachineError, is_stand_in};
use crate::measure::unix_ms;
use crate::self_test;
use crate::sensors::{SensorWatch, Sensors as _};
use crate::settings::WorkerSettings;
use crate::store::{self, StoreError, StoreHandle};
use crate::table::{Identity, Table};

use run::Run;
pub use words::{
    Board, EndedJob, Freshness, JobError, JobEvent, JobHandle, JobRequest, JobView, Measurer, Tally,
    WorkerTrouble,
};

/// Jobs that may wait. Each belongs to a waiting caller, so more means a caller in a loop.
pub const MAX_WAITING_JOBS: usize = 16;
/// Events that a slow caller may be behind by.
const EVENT_BACKLOG: usize = 64;
/// Commits that a listener may be behind by.
const COMMIT_BACKLOG: usize = 64;
/// How long a caller may not read before its job is cancelled.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// How many times its size a shape needs to be available: the operands, and as much again for everyone else.
const MEMORY_MARGIN: u64 = 2;

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
    pub sensors: Arc<SensorWatch>,
    /// Tells heat from what the sensors claim.
    pub canary: Canary,
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

    /// Starts a client's worker, and makes sure that it measures this machine with that engine.
    async fn start_client_worker(
        &self,
        engine: &Engine,
        worker: &ClientWorker,
    ) -> Result<(Machine, Identity), MachineError> {
        let limit = self.sensors.available_memory_bytes().map(|available| available / MEMORY_MARGIN);
        let machine =
            Machine::start(&MachineChoice::Worker, &worker.settings(&self.worker), limit, 0).await?;
        let identity = machine.identity()?;
        if identity.engine != *engine {
            let (named, is) = (engine.to_string(), identity.engine.to_string());
            return Err(MachineError::OtherEngine { worker: worker.to_string(), named, is });
        }
        match &*self.identity.borrow() {
            Some(own) if own.chip != identity.chip => {
                let (is, own) = (identity.chip.key(), own.chip.key());
                Err(MachineError::OtherChip { worker: worker.to_string(), is, own })
            }
            _ => Ok((machine, identity)),
        }
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
    /// [`JobError::QueueFull`], [`JobError::Draining`], [`JobError::Withheld`], [`JobError::TooLarge`].
    pub fn submit(&self, request: JobRequest) -> Result<JobHandle, JobError> {
        if self.drain.is_cancelled() {
            return Err(JobError::Draining);
        }
        if self.workshop.table.is_withheld() {
            return Err(JobError::Withheld(self_test::REASON.to_owned()));
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

    /// What runs and what ended, and every change of it.
    pub fn board(&self) -> watch::Receiver<Board> {
        self.board.subscribe()
    }

    /// Every record that is stored from now on.
    pub fn commits(&self) -> broadcast::Receiver<Arc<Record>> {
        self.commits.subscribe()
    }

    /// Starts a machine for a self-test, which is no job.
    ///
    /// # Errors
    /// Those of [`Machine::start`].
    pub async fn start_for_self_test(&self) -> Result<Machine, MachineError> {
        self.workshop.start_machine(0).await
    }

    /// Takes a record of another machine over, unless what is known is better. Durable when it returns.
    ///
    /// # Errors
    /// What the store says.
    pub async fn take_over(&self, record: Record) -> Result<Decision, StoreError> {
        let decision = self.workshop.store.take_over(record.clone()).await?;
        if decision == Decision::Take {
            self.serve(record);
        }
        Ok(decision)
    }

    /// Serves a record that was stored, and tells of it.
    fn serve(&self, record: Record) -> Arc<Record> {
        self.workshop.table.insert(record.clone());
        let record = Arc::new(record);
        // Nobody may be listening.
        let _ = self.commits.send(Arc::clone(&record));
        record
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
            result = Run::new(self, &job).all() => result,
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
        self.board.send_modify(|board| {
            if let Some(reason) = trouble.clone() {
                board.last_trouble = Some(WorkerTrouble { reason, at_unix_ms: unix_ms(SystemTime::now()) });
            }
            board.worker_trouble = trouble;
        });
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
