//! `fusion.v1.Doctor`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fusion_calibrations::self_test::Pair;
use fusion_proto::v1;
use fusion_proto::v1::doctor_server::Doctor;
use fusion_proto::v1::self_test_reply::Part;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::Parts;
use crate::canary;
use crate::machine::{Machine, MachineError};
use crate::self_test;

/// How long a caller may take between two rounds: it times as much itself.
const ROUND_LIMIT: Duration = Duration::from_secs(60);

/// The daemon's half of 'fusionctl doctor'.
pub struct DoctorService(pub Arc<Parts>);

#[tonic::async_trait]
impl Doctor for DoctorService {
    type SelfTestStream = Pin<Box<dyn Stream<Item = Result<v1::SelfTestReply, Status>> + Send>>;

    async fn self_test(
        &self,
        request: Request<Streaming<v1::SelfTestRequest>>,
    ) -> Result<Response<Self::SelfTestStream>, Status> {
        self.0.require_peace()?;
        let machine = self.0.jobs.start_for_self_test().await.map_err(|error| failed(&error))?;
        if matches!(machine, Machine::StandIn(_)) {
            return Err(Status::failed_precondition(
                "data stands in for a machine here: there is nothing to time",
            ));
        }
        let (replies, stream) = mpsc::channel(1);
        let test = SelfTest { parts: Arc::clone(&self.0), machine, replies };
        tokio::spawn(test.run(request.into_inner()));
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn report_self_test(
        &self,
        request: Request<v1::ReportSelfTestRequest>,
    ) -> Result<Response<v1::ReportSelfTestReply>, Status> {
        let pairs: Vec<Pair> = request
            .into_inner()
            .pairs
            .into_iter()
            .map(|v1::SelfTestPair { terminal_ms, daemon_ms }| Pair { terminal_ms, daemon_ms })
            .collect();
        let comparison = self.0.self_tests.report(&pairs);
        let comparison = comparison
            .ok_or_else(|| Status::invalid_argument("no round of the self-test has usable times"))?;
        tracing::info!(?comparison, withheld = self.0.table.is_withheld(), "self-test");
        // What clients may be told changed; the planner asks itself anew.
        self.0.clients.announce();
        Ok(Response::new(v1::ReportSelfTestReply { status: self.0.self_tests.status() }))
    }
}

impl Parts {
    /// Whether nobody else measures or works: a self-test would disturb them, and they it.
    fn require_peace(&self) -> Result<(), Status> {
        let busy = *self.clients.busy().borrow();
        if busy > 0 {
            return Err(Status::aborted(format!(
                "{busy} attached clients are busy: test again when they rest"
            )));
        }
        if self.jobs.status().0.running.is_some() {
            return Err(Status::aborted("a job runs: test again when 'fusionctl status' shows none"));
        }
        Ok(())
    }
}

fn failed(error: &MachineError) -> Status {
    Status::failed_precondition(error.to_string())
}

/// A self-test on its way. Its worker ends with it.
struct SelfTest {
    parts: Arc<Parts>,
    machine: Machine,
    replies: mpsc::Sender<Result<v1::SelfTestReply, Status>>,
}

impl SelfTest {
    async fn run(mut self, mut requests: Streaming<v1::SelfTestRequest>) {
        let drain = self.parts.drain.clone();
        let ended = tokio::select! {
            ended = self.rounds(&mut requests) => ended,
            () = drain.cancelled() => Err(Status::unavailable("fusiond is shutting down")),
        };
        if let Err(status) = ended {
            // The caller may be gone; the channel holds one reply, which nobody may be reading.
            let _ = self.replies.try_send(Err(status));
        }
    }

    async fn rounds(&mut self, requests: &mut Streaming<v1::SelfTestRequest>) -> Result<(), Status> {
        let ready = self.ready().await?;
        self.tell(Part::Ready(ready)).await?;
        loop {
            let next = tokio::time::timeout(ROUND_LIMIT, requests.message()).await;
            let next = next.map_err(|_| Status::deadline_exceeded("the next round was not asked for"))?;
            if next?.is_none() {
                return Ok(());
            }
            self.parts.require_peace()?;
            let times_ms = self_test::round(&mut self.machine).await.map_err(|error| failed(&error))?;
            self.tell(Part::Round(v1::SelfTestRound { times_ms })).await?;
        }
    }

    /// Makes the operands, warms up, and says what is timed.
    async fn ready(&mut self) -> Result<v1::SelfTestReady, Status> {
        let shape = canary::product().map_err(|error| Status::internal(error.to_string()))?;
        let identity = self.machine.identity().map_err(|error| failed(&error))?;
        self.machine.prepare(shape).await.map_err(|error| failed(&error))?;
        self_test::round(&mut self.machine).await.map_err(|error| failed(&error))?;
        let worker = &self.parts.settings.worker;
        let text = |text: &std::ffi::OsStr| {
            let unreadable = || Status::failed_precondition("the worker's path or arguments are no UTF-8");
            text.to_str().map(str::to_owned).ok_or_else(unreadable)
        };
        Ok(v1::SelfTestReady {
            worker_program: text(worker.program.as_os_str())?,
            worker_arguments: worker
                .arguments
                .iter()
                .map(|argument| text(argument))
                .collect::<Result<_, _>>()?,
            shape: Some(shape.into()),
            calls: self_test::CALLS,
            chip: Some((&identity.chip).into()),
            engine: Some((&identity.engine).into()),
        })
    }

    async fn tell(&self, part: Part) -> Result<(), Status> {
        let reply = v1::SelfTestReply { part: Some(part) };
        self.replies.send(Ok(reply)).await.map_err(|_| Status::cancelled("the caller left"))
    }
}
