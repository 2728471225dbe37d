//! `fusionctl.status/1`, `fusionctl.start/1` and `fusionctl.stop/1`.

use fusion_client::v1;
use serde::Serialize;

use super::configuration::Configuration;
use super::planner::Planner;
use super::readings::Readings;
use super::service::Managed;
use super::shared::{Chip, Conditions, Engine, Interval, Part, filled, some_time, time, word};

#[derive(Debug, Serialize)]
pub(crate) struct Status {
    version: String,
    protocol: u32,
    pid: u32,
    started_at: String,
    socket: String,
    state_directory: String,
    draining: bool,
    chip: Option<Chip>,
    engine: Option<Engine>,
    units: Option<String>,
    conditions: Option<Conditions>,
    conditions_since: Option<String>,
    readings: Option<Readings>,
    configuration: Option<Configuration>,
    planner: Option<Planner>,
    worker: Option<Part>,
    self_test: Option<SelfTest>,
    last_worker_trouble: Option<WorkerTrouble>,
    store: Option<Store>,
    running: Option<Job>,
    waiting: Vec<Job>,
    last_job: Option<Ended>,
    clients: Option<Clients>,
    service: Option<Managed>,
}

/// The last self-test, and what follows.
#[derive(Debug, Serialize)]
struct SelfTest {
    verdict: String,
    factor: Option<Interval>,
    rounds: u32,
    reported_at: String,
    withheld: Option<String>,
}

impl From<&v1::SelfTestStatus> for SelfTest {
    fn from(status: &v1::SelfTestStatus) -> Self {
        Self {
            verdict: word(status.verdict().as_str_name(), "SELF_TEST_VERDICT_"),
            factor: status.factor.as_ref().map(Into::into),
            rounds: status.pairs,
            reported_at: time(status.reported_at_unix_ms),
            withheld: filled(&status.withheld),
        }
    }
}

/// Who is attached, and what that gained.
#[derive(Debug, Serialize)]
struct Clients {
    attached: u32,
    busy: u32,
    exploring_pid: Option<u32>,
    saved_ms: f64,
    split_calls: u64,
    saved_against: &'static str,
}

#[derive(Debug, Serialize)]
struct Store {
    state: Option<Part>,
    estimates: u64,
    current_estimates: u64,
    stale_estimates: u64,
}

#[derive(Debug, Serialize)]
struct Job {
    job: u64,
    title: String,
    shapes: u32,
    done: u32,
    shape: Option<String>,
}

#[derive(Debug, Serialize)]
struct Ended {
    #[serde(flatten)]
    job: Job,
    outcome: String,
    ended_at: String,
}

/// The daemon runs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Started {
    pub(crate) pid: u32,
    pub(crate) version: String,
}

/// The daemon is gone.
#[derive(Debug, Serialize)]
pub(crate) struct Stopped {
    pub(crate) pid: Option<u32>,
    pub(crate) stopped: bool,
}

impl Status {
    pub(crate) fn new(status: &v1::GetStatusReply, service: Option<Managed>) -> Self {
        Self {
            version: status.version.clone(),
            protocol: status.protocol,
            pid: status.pid,
            started_at: time(status.started_at_unix_ms),
            socket: status.socket.clone(),
            state_directory: status.state_directory.clone(),
            draining: status.draining,
            chip: status.chip.as_ref().map(Into::into),
            engine: status.engine.as_ref().map(Into::into),
            units: filled(&status.units),
            conditions: status.conditions.as_ref().map(Into::into),
            conditions_since: some_time(status.conditions_since_unix_ms),
            readings: status.readings.as_ref().map(Into::into),
            configuration: status.configuration.as_ref().map(Into::into),
            planner: status.planner.as_ref().map(Into::into),
            worker: status.worker.as_ref().map(Into::into),
            self_test: status.self_test.as_ref().map(Into::into),
            last_worker_trouble: status.last_worker_trouble.as_ref().map(|trouble| WorkerTrouble {
                reason: trouble.reason.clone(),
                at: time(trouble.at_unix_ms),
            }),
            store: status.store.as_ref().map(Into::into),
            running: status.running.as_ref().map(Into::into),
            waiting: status.waiting.iter().map(Into::into).collect(),
            last_job: status.last_job.as_ref().map(Into::into),
            clients: status.clients.as_ref().map(Into::into),
            service,
        }
    }
}

#[derive(Debug, Serialize)]
struct WorkerTrouble {
    reason: String,
    at: String,
}

impl From<&v1::ClientsSummary> for Clients {
    fn from(clients: &v1::ClientsSummary) -> Self {
        Self {
            attached: clients.attached,
            busy: clients.busy,
            exploring_pid: Some(clients.exploring_pid).filter(|pid| *pid != 0),
            saved_ms: clients.saved_ms,
            split_calls: clients.split_calls,
            saved_against: "stock_reference",
        }
    }
}

impl From<&v1::StoreStatus> for Store {
    fn from(store: &v1::StoreStatus) -> Self {
        Self {
            state: store.state.as_ref().map(Into::into),
            estimates: store.estimates,
            current_estimates: store.current_estimates,
            stale_estimates: store.stale_estimates,
        }
    }
}

impl From<&v1::JobStatus> for Job {
    fn from(job: &v1::JobStatus) -> Self {
        Self {
            job: job.job,
            title: job.title.clone(),
            shapes: job.shapes,
            done: job.done,
            shape: filled(&job.shape),
        }
    }
}

impl From<&v1::EndedJob> for Ended {
    fn from(ended: &v1::EndedJob) -> Self {
        Self {
            job: (&ended.job.clone().unwrap_or_default()).into(),
            outcome: ended.outcome.clone(),
            ended_at: time(ended.ended_at_unix_ms),
        }
    }
}
