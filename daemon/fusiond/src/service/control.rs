//! `fusion.v1.Control`.

use std::sync::Arc;
use std::time::Duration;

use fusion_proto::v1::control_server::Control;
use fusion_proto::{PROTOCOL, v1};
use tonic::{Request, Response, Status};

use super::Parts;
use crate::jobs::{Board, EndedJob, JobView};
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
}

impl Parts {
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
            draining: self.drain.is_cancelled(),
            clients: Some(self.clients_summary()),
            conditions_since_unix_ms: observed.since_unix_ms,
            readings: Some(readings(&observed, self.sensors.source())),
        }
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
