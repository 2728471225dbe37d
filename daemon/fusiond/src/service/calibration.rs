//! `fusion.v1.Calibration`.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;

use fusion_calibrations::search::Budget;
use fusion_calibrations::shape::Shape;
use fusion_proto::v1::calibrate_event::Event;
use fusion_proto::v1::calibration_server::Calibration;
use fusion_proto::{MAX_SHAPES_PER_JOB, v1};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use super::{Parts, shape};
use crate::jobs::{Freshness, JobError, JobEvent, JobHandle, JobRequest, Measurer, Tally};

/// Titles are for people; longer ones are cut.
const LONGEST_TITLE: usize = 200;

/// Puts jobs into the queue and streams what happens.
pub struct CalibrationService(pub Arc<Parts>);

#[tonic::async_trait]
impl Calibration for CalibrationService {
    type CalibrateStream = Pin<Box<dyn Stream<Item = Result<v1::CalibrateEvent, Status>> + Send>>;

    async fn calibrate(
        &self,
        request: Request<v1::CalibrateRequest>,
    ) -> Result<Response<Self::CalibrateStream>, Status> {
        let job = job(request.get_ref())?;
        let handle = self.0.jobs.submit(job).map_err(|error| status(&error))?;
        Ok(Response::new(Box::pin(events(handle))))
    }
}

fn job(request: &v1::CalibrateRequest) -> Result<JobRequest, Status> {
    let freshness = match request.freshness() {
        v1::Freshness::Reuse => Freshness::Reuse,
        v1::Freshness::Remeasure => Freshness::Remeasure,
    };
    if request.shapes.is_empty() {
        return Err(Status::invalid_argument("the request names no shape"));
    }
    if request.shapes.len() > MAX_SHAPES_PER_JOB {
        return Err(Status::invalid_argument(format!(
            "the request names {} shapes, at most {MAX_SHAPES_PER_JOB} are accepted: split it",
            request.shapes.len()
        )));
    }
    let all: Vec<Shape> = request.shapes.iter().map(|wire| shape(Some(wire))).collect::<Result<_, _>>()?;
    let mut seen = HashSet::new();
    let shapes = all.into_iter().filter(|shape| seen.insert(*shape)).collect();
    Ok(JobRequest {
        by: Measurer::Own,
        title: request.title.chars().take(LONGEST_TITLE).collect(),
        shapes,
        freshness,
        machine_ms: Budget::MACHINE_MS,
    })
}

/// The events of a job. The handle lives in the stream, so a caller that goes away cancels the job.
fn events(handle: JobHandle) -> impl Stream<Item = Result<v1::CalibrateEvent, Status>> + Send {
    let job = handle.job;
    tokio_stream::wrappers::ReceiverStream::new(handle.events).map({
        let keep = handle.cancel;
        move |event| {
            let _ = &keep;
            match event {
                Ok(event) => Ok(v1::CalibrateEvent { event: Some(wire_event(job, event)) }),
                Err(error) => Err(status(&error)),
            }
        }
    })
}

fn wire_event(job: u64, event: JobEvent) -> Event {
    match event {
        JobEvent::Queued { position } => Event::Queued(v1::JobQueued { position: number(position), job }),
        JobEvent::Started { shapes, identity } => Event::Started(v1::JobStarted {
            job,
            shapes: number(shapes),
            chip: identity.as_ref().map(|identity| (&identity.chip).into()),
            units: identity.map(|identity| identity.units).unwrap_or_default(),
        }),
        JobEvent::ShapeStarted { index, shape } => {
            Event::ShapeStarted(v1::ShapeStarted { shape: Some(shape.into()), index: number(index) })
        }
        JobEvent::ShapeProgress { index, calls, most_calls } => {
            Event::ShapeProgress(v1::ShapeProgress { index: number(index), calls, most_calls })
        }
        JobEvent::ShapeFinished { index, record, from_store, machine_ms } => {
            let estimate = fusion_proto::estimate(&record.estimate, &record.chip, &record.engine, None);
            Event::ShapeFinished(v1::ShapeFinished {
                index: number(index),
                estimate: Some(estimate),
                from_store,
                machine_ms,
            })
        }
        JobEvent::ShapeFailed { index, shape, reason } => {
            Event::ShapeFailed(v1::ShapeFailed { index: number(index), shape: Some(shape.into()), reason })
        }
        JobEvent::Finished(Tally { measured, from_store, failed, machine_ms }) => {
            Event::Finished(v1::JobFinished { measured, from_store, failed, machine_ms })
        }
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn status(error: &JobError) -> Status {
    let message = error.to_string();
    match error {
        JobError::QueueFull | JobError::TooLarge { .. } => Status::resource_exhausted(message),
        JobError::Draining => Status::unavailable(message),
        JobError::NoWorker(_) | JobError::WorkersDie(_) | JobError::Withheld(_) => {
            Status::failed_precondition(message)
        }
        JobError::Store(error) => super::store::status(error),
        JobError::Cancelled => Status::cancelled(message),
    }
}
