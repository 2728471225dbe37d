//! What concerns attached processes and their gates, answering from the script.

use std::pin::Pin;

use fusion_client::v1;
use fusion_client::v1::attachment_server::Attachment;
use fusion_client::v1::gates_server::Gates;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::canned_gates;
use super::services::Service;

#[tonic::async_trait]
impl Gates for Service {
    async fn list_gates(
        &self,
        request: Request<v1::ListGatesRequest>,
    ) -> Result<Response<v1::ListGatesReply>, Status> {
        self.refused()?;
        let wanted = request.into_inner().workload;
        let mut reply = self.script.gates.clone();
        let keep = |name: &str| wanted.is_empty() || wanted == name;
        reply.states.iter_mut().for_each(|state| state.regions.retain(|region| keep(&region.workload)));
        reply.locks.retain(|lock| keep(&lock.workload));
        Ok(Response::new(reply))
    }

    async fn reset_gate(
        &self,
        request: Request<v1::ResetGateRequest>,
    ) -> Result<Response<v1::ResetGateReply>, Status> {
        self.refused()?;
        let request = request.into_inner();
        let regions = self.script.gates.states.iter().flat_map(|state| &state.regions);
        let regions = regions.filter(|region| region.workload == request.workload).count() as u32;
        *self.seen.reset.lock().unwrap() = Some(request);
        Ok(Response::new(v1::ResetGateReply { regions, clients: self.script.clients.len() as u32 }))
    }

    async fn lock_gate(
        &self,
        request: Request<v1::LockGateRequest>,
    ) -> Result<Response<v1::LockGateReply>, Status> {
        self.refused()?;
        *self.seen.lock.lock().unwrap() = Some(request.into_inner());
        Ok(Response::new(v1::LockGateReply { clients: self.script.clients.len() as u32 }))
    }
}

#[tonic::async_trait]
impl Attachment for Service {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<v1::AttachReply, Status>> + Send>>;

    async fn attach(
        &self,
        _: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        Err(Status::unimplemented("nobody attaches to a script"))
    }

    async fn list_clients(
        &self,
        request: Request<v1::ListClientsRequest>,
    ) -> Result<Response<v1::ListClientsReply>, Status> {
        self.refused()?;
        let mut clients = self.script.clients.clone();
        if let Some(number) = request.into_inner().layers_of {
            clients.retain(|client| client.number == number);
            clients.iter_mut().for_each(|client| client.served = canned_gates::served(number));
        }
        Ok(Response::new(v1::ListClientsReply { clients }))
    }
}
