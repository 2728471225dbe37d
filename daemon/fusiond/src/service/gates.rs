//! `fusion.v1.Gates`.

use std::sync::Arc;
use std::time::SystemTime;

use fusion_proto::v1;
use fusion_proto::v1::gates_server::Gates;
use tonic::{Request, Response, Status};

use super::Parts;
use crate::gates::{GateError, Scope};
use crate::measure::unix_ms;

/// Looks at and steers the gates of all processes.
pub struct GatesService(pub Arc<Parts>);

#[tonic::async_trait]
impl Gates for GatesService {
    async fn list_gates(
        &self,
        request: Request<v1::ListGatesRequest>,
    ) -> Result<Response<v1::ListGatesReply>, Status> {
        let known = self.0.gates.whole(&request.into_inner().workload);
        let locks = known.locks.map(|locks| locks.locks).unwrap_or_default();
        Ok(Response::new(v1::ListGatesReply { states: known.gates, locks }))
    }

    async fn reset_gate(
        &self,
        request: Request<v1::ResetGateRequest>,
    ) -> Result<Response<v1::ResetGateReply>, Status> {
        let v1::ResetGateRequest { workload, rows } = request.into_inner();
        let scope = Scope::new(workload, rows).map_err(|error| refused(&error))?;
        let regions = self.0.gates.reset(scope, unix_ms(SystemTime::now()));
        Ok(Response::new(v1::ResetGateReply { regions: count(regions), clients: self.told() }))
    }

    async fn lock_gate(
        &self,
        request: Request<v1::LockGateRequest>,
    ) -> Result<Response<v1::LockGateReply>, Status> {
        let request = request.into_inner();
        let arm = request.arm().known();
        if arm.is_none() && request.arm != i32::from(v1::Arm::Unspecified) {
            return Err(Status::invalid_argument(format!("this fusiond knows no arm {}", request.arm)));
        }
        let scope = Scope::new(request.workload, request.rows).map_err(|error| refused(&error))?;
        self.0.gates.lock(scope, arm).map_err(|error| refused(&error))?;
        Ok(Response::new(v1::LockGateReply { clients: self.told() }))
    }
}

impl GatesService {
    fn told(&self) -> u32 {
        count(self.0.clients.counts().0)
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn refused(error: &GateError) -> Status {
    match error {
        GateError::Name(_) => Status::invalid_argument(error.to_string()),
        GateError::TooManyLocks => Status::resource_exhausted(error.to_string()),
    }
}
