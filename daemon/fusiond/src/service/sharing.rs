//! `fusion.v1.Sharing`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fusion_calibrations::chip::Chip;
use fusion_calibrations::record::Record;
use fusion_calibrations::sharing::bundle::{Bundle, BundleError, MAX_BUNDLE_BYTES};
use fusion_calibrations::sharing::{Decision, TakenAs, adapt, admit};
use fusion_proto::v1::import_reply::Event;
use fusion_proto::v1::import_request::Part;
use fusion_proto::v1::sharing_server::Sharing;
use fusion_proto::{MAX_BUNDLE_PIECE_BYTES, v1};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::Parts;
use crate::table::Identity;

/// How long a caller may take for the next piece of its bundle.
const PIECE_LIMIT: Duration = Duration::from_secs(30);
/// Replies that a caller may be behind by. A slower one is waited for: nothing is lost.
const BACKLOG: usize = 16;
const DRAINING: &str = "fusiond is shutting down";
/// Kills a debug build at a step of an import, as a crash would: `2 n` is before record `n`, one more is before its caller is told of it.
const CRASH_VARIABLE: &str = "FUSION_CRASH_AT_IMPORT_STEP";

/// Gives calibrations away, and takes others over.
pub struct SharingService(pub Arc<Parts>);

type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Sharing for SharingService {
    type ExportStream = Replies<v1::ExportReply>;
    type ImportStream = Replies<v1::ImportReply>;

    async fn export(
        &self,
        request: Request<v1::ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        let chip = self.chip(&request.into_inner().chip_key).await?;
        let records: Vec<Record> =
            self.0.table.of_chip(&chip).iter().map(|record| (**record).clone()).collect();
        let bytes =
            Bundle::new(records).and_then(|bundle| bundle.encode()).map_err(|error| unsharable(&error))?;
        let (replies, stream) = mpsc::channel(BACKLOG);
        tokio::spawn(send(bytes, replies, self.0.drain.clone()));
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn import(
        &self,
        request: Request<Streaming<v1::ImportRequest>>,
    ) -> Result<Response<Self::ImportStream>, Status> {
        let (taken, bytes) = receive(request.into_inner()).await?;
        let bundle = Bundle::decode(&bytes).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let own = self.identity().await?.chip;
        admit(bundle.chip(), &own, taken).map_err(|error| Status::failed_precondition(error.to_string()))?;
        let (replies, stream) = mpsc::channel(BACKLOG);
        let import = Import { parts: Arc::clone(&self.0), own, taken, replies };
        tokio::spawn(import.run(bundle));
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

impl SharingService {
    async fn identity(&self) -> Result<Identity, Status> {
        let unknown = || {
            Status::failed_precondition(
                "this machine's chip is unknown, because no worker has run yet: 'fusionctl status' says why",
            )
        };
        self.0.identity().await.ok_or_else(unknown)
    }

    /// The chip of a key; this machine's for none.
    async fn chip(&self, key: &str) -> Result<Chip, Status> {
        if key.is_empty() {
            return Ok(self.identity().await?.chip);
        }
        let chips = self.0.table.chips();
        let known: Vec<String> = chips.iter().map(Chip::key).collect();
        chips.into_iter().find(|chip| chip.key() == key).ok_or_else(|| {
            let known = if known.is_empty() { "none yet".to_owned() } else { known.join(", ") };
            Status::not_found(format!("nothing is known of a chip '{key}'; known are: {known}"))
        })
    }
}

fn unsharable(error: &BundleError) -> Status {
    match error {
        BundleError::Empty => Status::not_found(
            "nothing is known of this machine's chip yet: measure something first, with 'fusionctl calibrate'",
        ),
        BundleError::TooLarge => Status::resource_exhausted(error.to_string()),
        _ => Status::internal(error.to_string()),
    }
}

/// Sends the bytes piece by piece, as fast as they are read, until the daemon drains.
async fn send(
    bytes: Vec<u8>,
    replies: mpsc::Sender<Result<v1::ExportReply, Status>>,
    drain: CancellationToken,
) {
    for piece in bytes.chunks(MAX_BUNDLE_PIECE_BYTES) {
        let reply = v1::ExportReply { bytes: piece.to_vec() };
        tokio::select! {
            sent = replies.send(Ok(reply)) => if sent.is_err() { return },
            () = drain.cancelled() => {
                let _ = replies.try_send(Err(Status::unavailable(DRAINING)));
                return;
            }
        }
    }
}

/// How, and the bytes of the bundle.
async fn receive(mut requests: Streaming<v1::ImportRequest>) -> Result<(TakenAs, Vec<u8>), Status> {
    let mut taken = None;
    let mut bundle = Vec::new();
    loop {
        let next = tokio::time::timeout(PIECE_LIMIT, requests.message());
        let late = |_| Status::deadline_exceeded("the next piece of the file did not come: try again");
        let Some(request) = next.await.map_err(late)?? else { break };
        match (request.part, taken) {
            (Some(Part::TakenAs(how)), None) => taken = Some(taken_as(how)?),
            (Some(Part::Bytes(bytes)), Some(_)) if bundle.len() + bytes.len() <= MAX_BUNDLE_BYTES => {
                bundle.extend_from_slice(&bytes);
            }
            (Some(Part::Bytes(_)), Some(_)) => {
                return Err(Status::invalid_argument(BundleError::TooLarge.to_string()));
            }
            _ => return Err(Status::invalid_argument("the first message says how, the others carry bytes")),
        }
    }
    let taken = taken.ok_or_else(|| Status::invalid_argument("the request says nothing"))?;
    Ok((taken, bundle))
}

fn taken_as(wire: i32) -> Result<TakenAs, Status> {
    match v1::TakenAs::try_from(wire) {
        Ok(v1::TakenAs::Imported) => Ok(TakenAs::Imported),
        Ok(v1::TakenAs::Prior) => Ok(TakenAs::Prior),
        _ => Err(Status::invalid_argument(format!("calibrations can't be taken over as {wire}"))),
    }
}

/// A bundle on its way into the store. Ends early when its caller leaves or the daemon drains: the next import goes on.
struct Import {
    parts: Arc<Parts>,
    own: Chip,
    taken: TakenAs,
    replies: mpsc::Sender<Result<v1::ImportReply, Status>>,
}

impl Import {
    async fn run(self, bundle: Bundle) {
        let last = self.all(bundle).await;
        // Nobody may be there any more, and a daemon on its way out waits for nobody.
        tokio::select! {
            _ = self.replies.send(last) => {}
            () = self.parts.drain.cancelled() => {}
        }
    }

    async fn all(&self, bundle: Bundle) -> Result<v1::ImportReply, Status> {
        let chip = Some(bundle.chip().into());
        let mut finished = v1::ImportFinished { chip, ..Default::default() };
        let records = bundle.records().len();
        for (index, record) in bundle.into_records().into_iter().enumerate() {
            crash_point(2 * index);
            let record = adapt(record, &self.own, self.taken);
            let decision = self.parts.jobs.take_over(record).await;
            match decision.map_err(|error| super::store::status(&error))? {
                Decision::Take => finished.taken += 1,
                Decision::KeepOwn => finished.known_better += 1,
                Decision::AlreadyThere => finished.already_there += 1,
            }
            crash_point(2 * index + 1);
            let progress = v1::ImportProgress { done: number(index) + 1, records: number(records) };
            tokio::select! {
                sent = self.replies.send(Ok(reply(Event::Progress(progress)))) => {
                    sent.map_err(|_| Status::cancelled("the caller left"))?;
                }
                () = self.parts.drain.cancelled() => return Err(Status::unavailable(DRAINING)),
            }
        }
        crash_point(2 * records);
        let v1::ImportFinished { taken, known_better, already_there, .. } = finished;
        tracing::info!(taken, known_better, already_there, "calibrations of another machine were taken over");
        Ok(reply(Event::Finished(finished)))
    }
}

fn crash_point(step: usize) {
    if cfg!(debug_assertions) && std::env::var(CRASH_VARIABLE).is_ok_and(|told| told == step.to_string()) {
        // A process may kill itself; if not, the test that wants it dead sees it alive.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

fn reply(event: Event) -> v1::ImportReply {
    v1::ImportReply { event: Some(event) }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
