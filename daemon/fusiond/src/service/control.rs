//! `fusion.v1.Control`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fusion_proto::v1::control_server::Control;
use fusion_proto::{PROTOCOL, v1};
use tonic::{Request, Response, Status};

use super::Parts;
use crate::configuration;
use crate::jobs::{Board, EndedJob, JobView};
use crate::measure::unix_ms;
use crate::planner::{Decision, Hold, Moment, Reason};
use crate::sensors::{Observed, Sensors};
use crate::store::Health;

/// Looks at and steers the daemon.
pub struct ControlService(pub Arc<Parts>);

#[tonic::async_trait]
impl Control for ControlService {
    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusReply>, Status> {
        let request = request.into_inner();
        if request.client_protocol != PROTOCOL {
            tracing::info!(
                version = request.client_version,
                protocol = request.client_protocol,
                "a client of another protocol asks for the status"
            );
        }
        Ok(Response::new(self.0.status()))
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Result<Response<v1::DrainReply>, Status> {
        tracing::info!(reason = request.into_inner().reason, "asked to drain");
        self.0.drain.cancel();
        let deadline_ms = u32::try_from(self.0.settings.drain_limit.as_millis()).unwrap_or(u32::MAX);
        Ok(Response::new(v1::DrainReply { pid: std::process::id(), deadline_ms }))
    }

    async fn reload_configuration(
        &self,
        _: Request<v1::ReloadConfigurationRequest>,
    ) -> Result<Response<v1::ReloadConfigurationReply>, Status> {
        let Some(current) = self.0.reloader.reload().await else {
            return Err(Status::unavailable("fusiond is shutting down: start it again and repeat"));
        };
        match &current.trouble {
            Some(trouble) => {
                Err(Status::failed_precondition(format!("the configuration stays as it was: {trouble}")))
            }
            None => {
                let configuration =
                    Some(configuration_status(&self.0.settings.configuration_directory, &current));
                Ok(Response::new(v1::ReloadConfigurationReply { configuration }))
            }
        }
    }

    async fn pause(&self, request: Request<v1::PauseRequest>) -> Result<Response<v1::PauseReply>, Status> {
        let until = match request.into_inner().seconds {
            0 => None,
            seconds => {
                let now = Moment::from_unix_ms(unix_ms(SystemTime::now()));
                Some(now.after(Duration::from_secs(seconds)))
            }
        };
        tracing::info!(?until, "paused");
        self.0.recalibration.pause(until);
        self.0.decided().await;
        Ok(Response::new(v1::PauseReply { planner: Some(self.0.planner_status()) }))
    }

    async fn resume(&self, _: Request<v1::ResumeRequest>) -> Result<Response<v1::ResumeReply>, Status> {
        tracing::info!("resumed");
        self.0.recalibration.resume();
        self.0.decided().await;
        Ok(Response::new(v1::ResumeReply { planner: Some(self.0.planner_status()) }))
    }

    async fn set_log_filter(
        &self,
        request: Request<v1::SetLogFilterRequest>,
    ) -> Result<Response<v1::SetLogFilterReply>, Status> {
        let wanted = Some(request.into_inner().filter).filter(|filter| !filter.is_empty());
        let configured = || self.0.configuration.borrow().configuration.log_filter.clone();
        let set = self.0.log_filter.set(wanted.or_else(configured).as_deref());
        let filter = set.map_err(|error| {
            Status::invalid_argument(format!(
                "what is logged stays as it was: {error}; write for example 'debug'"
            ))
        })?;
        tracing::info!(filter, "another log filter");
        Ok(Response::new(v1::SetLogFilterReply { filter }))
    }
}

impl Parts {
    /// Waits for the decision that follows a command. A daemon that drains decides nothing any more.
    async fn decided(&self) {
        tokio::select! {
            () = self.recalibration.decided() => {}
            () = self.drain.cancelled() => {}
        }
    }

    fn planner_status(&self) -> v1::PlannerStatus {
        let view = self.recalibration.view();
        let (paused, until) = match self.recalibration.hold() {
            Hold::Released | Hold::Throttled => (false, None),
            Hold::Paused { until } => (true, until),
        };
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        v1::PlannerStatus {
            verdict: view.decided.as_ref().map_or(v1::PlannerVerdict::Unspecified, verdict).into(),
            because: match &view.decided {
                Some(Decision::NotNow { because, .. }) => because.to_string(),
                Some(Decision::Run(_)) | None => String::new(),
            },
            decision: view.decision,
            next_shape: view.next.map(|shape| shape.to_string()).unwrap_or_default(),
            looks_again_at_unix_ms: view.until_unix_ms.unwrap_or(0),
            credit_ms: view.credit_ms,
            duty: view.duty,
            wanted: number(view.wanted),
            stale: view
                .stale
                .iter()
                .map(|(shape, why)| v1::StaleShape { shape: shape.to_string(), reason: why.to_string() })
                .collect(),
            troubles: view
                .troubles
                .into_iter()
                .map(|(subject, reason, times, retry_at_unix_ms)| v1::Trouble {
                    subject,
                    reason,
                    times,
                    retry_at_unix_ms,
                })
                .collect(),
            paused,
            paused_until_unix_ms: until.map_or(0, Moment::unix_ms),
        }
    }

    fn status(&self) -> v1::GetStatusReply {
        let identity = self.jobs.identity().borrow().clone();
        let counts = self.table.counts(identity.as_ref());
        let (board, waiting) = self.jobs.status();
        let observed = self.sensors.refresh();
        v1::GetStatusReply {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL,
            pid: std::process::id(),
            started_at_unix_ms: self.started_at_unix_ms,
            socket: self.settings.socket.to_string(),
            state_directory: self.settings.state_directory.display().to_string(),
            chip: identity.as_ref().map(|identity| (&identity.chip).into()),
            engine: identity.as_ref().map(|identity| (&identity.engine).into()),
            units: identity.map(|identity| identity.units).unwrap_or_default(),
            conditions: Some(observed.conditions().into()),
            running: board.running.as_ref().map(job),
            waiting: waiting.iter().map(job).collect(),
            last_job: board.last.as_ref().map(ended),
            store: Some(v1::StoreStatus {
                state: Some(store_state(&self.store_health)),
                estimates: counts.all,
                current_estimates: counts.current,
                stale_estimates: counts.stale,
            }),
            worker: Some(worker_state(&board)),
            last_worker_trouble: board.last_trouble.as_ref().map(|trouble| v1::WorkerTrouble {
                reason: trouble.reason.clone(),
                at_unix_ms: trouble.at_unix_ms,
            }),
            draining: self.drain.is_cancelled(),
            clients: Some(self.clients_summary()),
            planner: Some(self.planner_status()),
            configuration: Some(configuration_status(
                &self.settings.configuration_directory,
                &self.configuration.borrow(),
            )),
            conditions_since_unix_ms: observed.since_unix_ms,
            readings: Some(readings(&observed, self.sensors.source())),
            self_test: self.self_tests.status(),
        }
    }
}

fn verdict(decision: &Decision) -> v1::PlannerVerdict {
    use v1::PlannerVerdict as Verdict;
    let because = match decision {
        Decision::Run(_) => return Verdict::Measure,
        Decision::NotNow { because, .. } => because,
    };
    match because {
        Reason::NothingToDo { .. } => Verdict::NothingToDo,
        Reason::Paused => Verdict::Paused,
        Reason::Throttled => Verdict::Throttled,
        Reason::LockedElsewhere(_) => Verdict::LockedElsewhere,
        Reason::Measuring => Verdict::Measuring,
        Reason::ClientBusy { .. } => Verdict::ClientBusy,
        Reason::ClientsPause => Verdict::ClientsPause,
        Reason::LowPowerMode => Verdict::LowPowerMode,
        Reason::Hot(_) => Verdict::Hot,
        Reason::MemoryCritical => Verdict::MemoryCritical,
        Reason::ConditionsSettle(_) => Verdict::ConditionsSettle,
        Reason::OthersBusy { .. } => Verdict::OthersBusy,
        Reason::NoDuty(_) => Verdict::NoDuty,
        Reason::WorkerBacksOff(_) => Verdict::WorkerBacksOff,
        Reason::BacksOff { .. } => Verdict::BacksOff,
        Reason::NoMemory { .. } => Verdict::NoMemory,
        Reason::TooCostly { .. } => Verdict::TooCostly,
        Reason::NoCredit { .. } => Verdict::NoCredit,
    }
}

fn configuration_status(directory: &Path, current: &configuration::Current) -> v1::ConfigurationStatus {
    let state = match &current.trouble {
        None => v1::PartStatus { health: v1::Health::Ok.into(), detail: String::new() },
        Some(trouble) => v1::PartStatus { health: v1::Health::Degraded.into(), detail: trouble.clone() },
    };
    v1::ConfigurationStatus {
        directory: directory.display().to_string(),
        state: Some(state),
        wanted_shapes: u32::try_from(current.configuration.wanted.len()).unwrap_or(u32::MAX),
        skipped: current.configuration.skipped.clone(),
        read_at_unix_ms: current.read_at_unix_ms,
    }
}

fn readings(observed: &Observed, source: String) -> v1::Readings {
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let readings = &observed.readings;
    v1::Readings {
        source,
        available_memory_bytes: readings.available_memory_bytes,
        swapped_in_pages: readings.swapped_in_pages,
        cpu_pressure: readings.cpu_pressure,
        gpu_busy: readings.gpu_busy,
        user_idle_ms: readings.user_idle.map(ms),
        display_asleep: readings.display_asleep,
        dark_wake: readings.dark_wake,
        slept_ms: readings.slept.map(ms),
        throttle_events: readings.throttle_events,
        cpu_speed_limit: readings.cpu_speed_limit,
        woke_at_unix_ms: observed.woke_at_unix_ms,
    }
}

fn job(view: &JobView) -> v1::JobStatus {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    v1::JobStatus {
        job: view.job,
        title: view.title.clone(),
        shapes: number(view.shapes),
        done: number(view.done),
        shape: view.shape.map(|shape| shape.to_string()).unwrap_or_default(),
    }
}

fn ended(ended: &EndedJob) -> v1::EndedJob {
    v1::EndedJob {
        job: Some(job(&ended.view)),
        outcome: ended.outcome.clone(),
        ended_at_unix_ms: ended.ended_at_unix_ms,
    }
}

fn store_state(health: &Health) -> v1::PartStatus {
    match health {
        Health::Healthy => v1::PartStatus { health: v1::Health::Ok.into(), detail: String::new() },
        Health::Degraded { reason, quarantined, rebuilt } => {
            let aside = quarantined.as_ref().map_or_else(String::new, |path| {
                format!("; the old index is kept in {}: remove it when you don't need it", path.display())
            });
            let detail = format!("{reason}; {rebuilt} records were taken from the record files{aside}");
            v1::PartStatus { health: v1::Health::Degraded.into(), detail }
        }
    }
}

fn worker_state(board: &Board) -> v1::PartStatus {
    match &board.worker_trouble {
        None => v1::PartStatus { health: v1::Health::Ok.into(), detail: String::new() },
        Some(trouble) => v1::PartStatus { health: v1::Health::Failed.into(), detail: trouble.clone() },
    }
}
