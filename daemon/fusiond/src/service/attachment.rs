//! `fusion.v1.Attachment`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::live::Observation;
use fusion_calibrations::sample::{FinishTimes, Unit};
use fusion_calibrations::shape::Layer;
use fusion_proto::v1::attach_reply::Message as Told;
use fusion_proto::v1::attach_request::Message as Said;
use fusion_proto::v1::attachment_server::Attachment;
use fusion_proto::{MAX_GATE_REGIONS, PROTOCOL, v1};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::Parts;
use crate::client_worker::ClientWorker;
use crate::clients::{Activity, AttachError, Introduction, Membership, Savings};
use crate::gates::{self, Home, News};
use crate::knowledge::Running;
use crate::measure::unix_ms;
use crate::table::Identity;

/// How long a client may take to say hello.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// How long a client may not read before it is dropped.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// Messages that wait for a slow reader. Deltas are built when there is room, so a slow reader gets fewer and larger ones.
const BACKLOG: usize = 2;
/// Observations in one message.
const MOST_OBSERVATIONS: usize = 256;
/// Names are for people; longer ones are cut.
const LONGEST_NAME: usize = 100;

/// Speaks with inference processes.
pub struct AttachmentService(pub Arc<Parts>);

type Replies = mpsc::Sender<Result<v1::AttachReply, Status>>;

#[tonic::async_trait]
impl Attachment for AttachmentService {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<v1::AttachReply, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let mut said = request.into_inner();
        let introduction = introduce(&mut said).await?;
        let member = self
            .0
            .clients
            .attach(introduction, unix_ms(SystemTime::now()))
            .map_err(|error| refused(&error))?;
        let (replies, stream) = mpsc::channel(BACKLOG);
        let parts = Arc::clone(&self.0);
        tokio::spawn(async move {
            converse(&parts, &member, said, replies).await;
            parts.gates.leave(member.number());
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn list_clients(
        &self,
        request: Request<v1::ListClientsRequest>,
    ) -> Result<Response<v1::ListClientsReply>, Status> {
        let clients = self.0.client_list(request.into_inner().layers_of);
        Ok(Response::new(v1::ListClientsReply { clients }))
    }
}

/// Waits for the hello and reads it.
async fn introduce(said: &mut Streaming<v1::AttachRequest>) -> Result<Introduction, Status> {
    let first = tokio::time::timeout(HELLO_LIMIT, said.message())
        .await
        .map_err(|_| Status::deadline_exceeded("no hello within 5 s"))??;
    let Some(v1::AttachRequest { message: Some(Said::Hello(hello)) }) = first else {
        return Err(Status::failed_precondition("the first message must be a hello"));
    };
    if hello.protocol != PROTOCOL {
        return Err(Status::failed_precondition(format!(
            "this fusiond {} speaks protocol {PROTOCOL}, the client {} speaks {}: update the older one",
            env!("CARGO_PKG_VERSION"),
            hello.version,
            hello.protocol
        )));
    }
    let layers = hello.layers.iter().map(Layer::try_from).collect::<Result<_, _>>();
    let worker = hello.worker.map(ClientWorker::try_from).transpose();
    Ok(Introduction {
        pid: hello.pid,
        name: hello.name.chars().take(LONGEST_NAME).collect(),
        version: hello.version.chars().take(LONGEST_NAME).collect(),
        engine: hello.engine.map(Engine::from),
        worker: worker.map_err(|error| Status::invalid_argument(error.to_string()))?,
        layers: layers.map_err(|error| super::invalid(&error))?,
        typical_rows: hello.typical_rows,
    })
}

fn refused(error: &AttachError) -> Status {
    Status::resource_exhausted(error.to_string())
}

/// One client's life: listens to it, and tells it what changes, until either side leaves or the daemon drains.
async fn converse(parts: &Parts, member: &Membership, said: Streaming<v1::AttachRequest>, replies: Replies) {
    let ended = tokio::select! {
        () = parts.drain.cancelled() => Ok(()),
        ended = listen(parts, member, said) => ended,
        ended = tell(parts, member, &replies) => ended,
    };
    if let Err(status) = ended {
        tracing::info!(client = member.introduction().name, "a client is dropped: {}", status.message());
        let _ = replies.try_send(Err(status));
    }
}

async fn listen(
    parts: &Parts,
    member: &Membership,
    mut said: Streaming<v1::AttachRequest>,
) -> Result<(), Status> {
    // A broken connection is a client that ended: no news.
    while let Ok(Some(request)) = said.message().await {
        match request.message {
            Some(Said::Activity(activity)) => {
                member.turn(match activity.state() {
                    v1::ActivityState::Busy => Activity::Busy,
                    v1::ActivityState::Idle | v1::ActivityState::Unspecified => Activity::Idle,
                });
            }
            Some(Said::Observations(observations)) => parts.observe(member, &observations)?,
            Some(Said::GateReport(report)) => parts.take_report(member, &report)?,
            Some(Said::Hello(_)) => return Err(Status::failed_precondition("hello is said once")),
            // A newer client says more than this version knows.
            None => {}
        }
    }
    Ok(())
}

async fn tell(parts: &Parts, member: &Membership, replies: &Replies) -> Result<(), Status> {
    let mut revision = parts.clients.revision();
    let mut identity = parts.jobs.identity();
    let (mut gates, mut busy) = (parts.gates.version(), parts.clients.busy());
    let mut told = Teller::default();
    loop {
        let number = *revision.borrow_and_update();
        let who = identity.borrow_and_update().clone();
        gates.borrow_and_update();
        busy.borrow_and_update();
        while let Some(reply) = told.news(parts, member, number, who.as_ref()) {
            tokio::time::timeout(READ_LIMIT, replies.send(Ok(reply)))
                .await
                .map_err(|_| Status::deadline_exceeded("the client did not read for 5 s: attach again"))?
                .map_err(|_| Status::cancelled("the client left"))?;
        }
        let changed = tokio::select! {
            changed = revision.changed() => changed,
            changed = identity.changed() => changed,
            changed = gates.changed() => changed,
            changed = busy.changed() => changed,
            () = member.leased() => Ok(()),
        };
        changed.map_err(|_| Status::cancelled("the daemon ends"))?;
    }
}

/// What a client was told last, so that only changes are sent.
#[derive(Default)]
struct Teller {
    identity: Option<Identity>,
    snapshot_sent: bool,
    /// The revision that knowledge was compared at.
    compared: u64,
    conditions: Option<v1::Conditions>,
    /// In the order of its hello.
    layers: Arc<Vec<v1::LayerKnowledge>>,
    gates: gates::Told,
    /// Whether another client is busy, as it was told since it turned for the `turns`th time.
    contended: Option<bool>,
    turns: u64,
    /// Whether it was given a lease and not told that it is another's now.
    leased: bool,
}

impl Teller {
    /// What the client doesn't know yet; `None` if it knows everything.
    fn news(
        &mut self,
        parts: &Parts,
        member: &Membership,
        revision: u64,
        identity: Option<&Identity>,
    ) -> Option<v1::AttachReply> {
        // Another worker means another machine for the client: everything anew.
        let anew = !self.snapshot_sent || self.identity.as_ref() != identity;
        let message = if anew {
            let leased = self.leased;
            *self = Self { identity: identity.cloned(), snapshot_sent: true, leased, ..Self::default() };
            Told::Snapshot(self.snapshot(parts, member, revision))
        } else {
            Told::Delta(self.delta(parts, member, revision)?)
        };
        Some(v1::AttachReply { message: Some(message) })
    }

    fn snapshot(&mut self, parts: &Parts, member: &Membership, revision: u64) -> v1::Snapshot {
        let identity = self.identity.as_ref();
        let current = parts.snapshot(identity, member.introduction(), revision);
        self.compared = revision;
        self.conditions = current.conditions;
        self.layers = Arc::new(current.layers.clone());
        let News { gates, locks, resets } = self.gate_news(parts, member);
        v1::Snapshot { gates, gate_locks: locks, gate_resets: resets, ..current }
    }

    fn delta(&mut self, parts: &Parts, member: &Membership, revision: u64) -> Option<v1::Delta> {
        let (conditions, layers) = self.knowledge_news(parts, member, revision);
        let News { gates, locks, resets } = self.gate_news(parts, member);
        let delta = v1::Delta {
            revision,
            conditions,
            layers,
            gates,
            gate_locks: locks,
            gate_resets: resets,
            gate_lease: self.lease_news(parts, member),
            contended: self.contention(member),
        };
        (delta != v1::Delta { revision, ..Default::default() }).then_some(delta)
    }

    /// The conditions and the layers' knowledge, as far as they changed.
    fn knowledge_news(
        &mut self,
        parts: &Parts,
        member: &Membership,
        revision: u64,
    ) -> (Option<v1::Conditions>, Vec<v1::LayerKnowledge>) {
        if std::mem::replace(&mut self.compared, revision) == revision {
            return (None, Vec::new());
        }
        let conditions = parts.sensors.last().conditions();
        let layers = parts.layers(self.identity.as_ref(), member.introduction(), conditions, revision);
        let before = std::mem::replace(&mut self.layers, layers);
        let changed = self.layers.iter().enumerate().filter(|(place, now)| before.get(*place) != Some(*now));
        let changed = changed.map(|(_, now)| now.clone()).collect();
        let conditions = Some(conditions.into());
        let news = conditions.filter(|_| self.conditions != conditions);
        self.conditions = conditions;
        (news, changed)
    }

    fn gate_news(&mut self, parts: &Parts, member: &Membership) -> News {
        let home = self.identity.as_ref().map(|identity| member_home(member, identity));
        parts.gates.since(&mut self.gates, home.as_ref())
    }

    /// A lease that it gets, or that it has one no longer.
    fn lease_news(&mut self, parts: &Parts, member: &Membership) -> Option<v1::GateLease> {
        let given = member.take_lease();
        let taken = self.leased && parts.gates.holder() != Some(member.number());
        self.leased = given.is_some() || (self.leased && !taken);
        given.or(taken.then_some(0.0)).map(|ms| v1::GateLease { ms })
    }

    /// Whether another client is busy, if that is news. A client that rests isn't woken for it, and begins with "no" when it turns busy.
    fn contention(&mut self, member: &Membership) -> Option<bool> {
        let turns = member.turns();
        if std::mem::replace(&mut self.turns, turns) != turns {
            self.contended = None;
        }
        if turns.is_multiple_of(2) {
            return None;
        }
        let now = member.is_contended();
        (self.contended.replace(now) != Some(now)).then_some(now)
    }
}

fn member_home(member: &Membership, identity: &Identity) -> Home {
    Home::new(&identity.chip, member.introduction().engine.as_ref().unwrap_or(&identity.engine))
}

impl Parts {
    /// Everything that a client needs.
    fn snapshot(
        &self,
        identity: Option<&Identity>,
        introduction: &Introduction,
        revision: u64,
    ) -> v1::Snapshot {
        let conditions = self.sensors.recent().conditions();
        let layers = self.layers(identity, introduction, conditions, revision);
        v1::Snapshot {
            revision,
            chip: identity.map(|identity| (&identity.chip).into()),
            engine: identity.map(|identity| (&identity.engine).into()),
            conditions: Some(conditions.into()),
            row_rule: identity.map(|identity| (&self.table.row_rule(&identity.chip)).into()),
            layers: layers.to_vec(),
            ..Default::default()
        }
    }

    /// What is known of a client's layers. Clients that ask for the same at the same revision get the same.
    pub(super) fn layers(
        &self,
        identity: Option<&Identity>,
        introduction: &Introduction,
        conditions: Conditions,
        revision: u64,
    ) -> Arc<Vec<v1::LayerKnowledge>> {
        let Some(Identity { chip, engine, .. }) = identity else { return Arc::default() };
        let engine = introduction.engine.as_ref().unwrap_or(engine);
        let running = Running { chip, engine, conditions };
        self.knowledge.at(revision, running, &introduction.layers, introduction.typical_rows)
    }

    /// The snapshot for the file: of every layer and gate.
    pub fn whole_snapshot(&self) -> Option<v1::Snapshot> {
        let identity = self.jobs.identity().borrow().clone()?;
        let everything = Introduction {
            pid: 0,
            name: String::new(),
            version: String::new(),
            engine: None,
            worker: None,
            layers: self.knowledge.layers(&identity.chip),
            typical_rows: 0,
        };
        let revision = *self.clients.revision().borrow();
        let News { gates, locks, resets } = self.gates.whole("");
        let snapshot = self.snapshot(Some(&identity), &everything, revision);
        let exploration_available_ms = Some(self.gates.exploration_available_ms());
        Some(v1::Snapshot {
            gates,
            gate_locks: locks,
            gate_resets: resets,
            exploration_available_ms,
            ..snapshot
        })
    }

    fn take_report(&self, member: &Membership, report: &v1::GateReport) -> Result<(), Status> {
        let regions = report.state.as_ref().map_or(0, |state| state.regions.len());
        if regions > MAX_GATE_REGIONS {
            return Err(Status::invalid_argument(format!("more than {MAX_GATE_REGIONS} regions at once")));
        }
        if report.saved_ms.is_finite() {
            member.saved(Savings { ms: report.saved_ms, calls: report.split_calls });
        }
        let identity = self.jobs.identity().borrow().clone();
        let home = identity.as_ref().map(|identity| member_home(member, identity));
        if let Some(ms) = self.gates.report(member.number(), home.as_ref(), report) {
            member.lease(ms);
        }
        Ok(())
    }

    fn observe(&self, member: &Membership, observations: &v1::Observations) -> Result<(), Status> {
        if observations.splits.len() > MOST_OBSERVATIONS {
            return Err(Status::invalid_argument(format!(
                "more than {MOST_OBSERVATIONS} observations at once"
            )));
        }
        // What two busy processes see is each other, not the state of the machine.
        if member.is_contended() {
            return Ok(());
        }
        let identity = self.jobs.identity().borrow().clone();
        let Some(Identity { chip, engine, .. }) = identity else { return Ok(()) };
        let own = member.introduction().engine.clone();
        // A worker measures with its own engine only: what another one sees is no reason to.
        let measurer = self.measurer(member.introduction()).0;
        let is_measured = measurer.engine(&engine) == own.as_ref().unwrap_or(&engine);
        let engine = own.unwrap_or(engine);
        let conditions = self.sensors.recent().conditions();
        let running = Running { chip: &chip, engine: &engine, conditions };
        let mut news = false;
        for split in &observations.splits {
            let layer = split.layer.as_ref().map(Layer::try_from);
            let Some(Ok(layer)) = layer else {
                return Err(Status::invalid_argument("an observation of no layer"));
            };
            // Only what the client said it runs is followed: what it may make the daemon remember is bounded by its hello.
            if member.introduction().layers.contains(&layer) {
                news |= self.knowledge.observe(running, layer, &observation(split));
                if is_measured && let Some((stored, live)) = self.knowledge.correction(running, layer) {
                    self.recalibration.observed(&measurer, layer, &stored, &live);
                }
            }
        }
        member.observed(observations.splits.len() as u64);
        if news {
            self.clients.announce();
        }
        Ok(())
    }
}

fn observation(split: &v1::SplitObservation) -> Observation {
    Observation {
        rows: split.rows,
        secondary_rows: split.secondary_rows,
        total_ms: split.total_ms,
        finish_times: FinishTimes {
            primary_ms: split.primary_finish_ms,
            secondary_ms: split.secondary_finish_ms,
            first_waited: if split.secondary_waited_first { Unit::Secondary } else { Unit::Primary },
        },
    }
}
