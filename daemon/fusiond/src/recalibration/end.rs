//! How a planned job ends.

use fusion_calibrations::shape::Shape;

use crate::jobs::{JobError, JobEvent, JobHandle};
use crate::planner::Subject;

/// What came of a planned job.
pub(super) enum End {
    Measured { machine_ms: f64 },
    Failed(Subject, String),
    Interrupted,
}

/// What a job says until its end.
pub(super) async fn follow(mut handle: JobHandle, shape: Shape) -> End {
    let mut failure = None;
    while let Some(event) = handle.events.recv().await {
        match event {
            Ok(JobEvent::ShapeFailed { reason, .. }) => failure = Some(reason),
            Ok(JobEvent::Finished(tally)) => {
                return match failure {
                    Some(reason) => End::Failed(Subject::Shape(shape), reason),
                    None => End::Measured { machine_ms: tally.machine_ms },
                };
            }
            Ok(_) => {}
            Err(JobError::Cancelled | JobError::Draining) => return End::Interrupted,
            Err(error @ (JobError::NoWorker(_) | JobError::WorkersDie(_))) => {
                return End::Failed(Subject::Worker, error.to_string());
            }
            Err(error) => return End::Failed(Subject::Shape(shape), error.to_string()),
        }
    }
    End::Interrupted
}
