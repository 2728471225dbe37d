//! The thread that speaks with the daemon: attaches, takes in what it tells, passes on what inference threads say, and comes back after it was gone.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use fusion_calibrations::live::Observation;
use fusion_calibrations::sample::Unit;
use fusion_calibrations::shape::Layer;
use fusion_proto::v1::attach_request::Message as Said;
use fusion_proto::v1::attachment_client::AttachmentClient;
use fusion_proto::{MAX_MESSAGE_BYTES, PROTOCOL, snapshot, state, v1};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::gates::Reporter;
use super::local_copy::Shared;
use super::{Basis, Options};
use crate::connection::channel;
use crate::{Deadlines, VERSION};

/// First and last pause before another attempt; it doubles in between, and each is shortened by up to half at random, so that a hundred
/// clients of a restarted daemon don't come at once.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// How long inference threads must be idle before the daemon hears of it: a pause between two chunks is no rest.
const REST: Duration = Duration::from_millis(250);
/// Pause between two reports of what gates learned, while busy.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// How long a dropped attachment waits for its last report to be taken.
const FAREWELL: Duration = Duration::from_millis(100);
/// How long a daemon may not take a message. It takes them in microseconds.
const PASS_LIMIT: Duration = Duration::from_secs(1);
/// Messages to the daemon that may wait.
const BACKLOG: usize = 16;
/// Observations in one message.
const MOST_OBSERVATIONS: usize = 64;

/// Sent once: there is nothing more to wait for.
pub(super) struct Ready;

/// Why a conversation ended.
enum Ended {
    /// The attachment was dropped.
    Dropped,
    /// The daemon went, or was never there.
    Gone,
}

/// What the daemon heard last in this conversation.
#[derive(Default)]
struct LastSaid {
    /// When work was seen last, if we are busy as far as it knows.
    busy: Option<Instant>,
    /// The number of calls that had begun when we looked last: a gap between two calls is no rest.
    begun: u64,
    reported_at: Option<Instant>,
    reporter: Reporter,
}

pub(super) struct Background {
    shared: Arc<Shared>,
    options: Options,
    observations: mpsc::Receiver<(Layer, Observation)>,
    ready: Option<SyncSender<Ready>>,
}

impl Background {
    pub(super) fn new(
        shared: Arc<Shared>,
        options: Options,
        observations: mpsc::Receiver<(Layer, Observation)>,
        ready: SyncSender<Ready>,
    ) -> Self {
        Self { shared, options, observations, ready: Some(ready) }
    }

    /// Until the attachment is dropped.
    pub(super) fn run(mut self) {
        self.read_snapshot_file();
        // Without a runtime there is what the file said.
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(self.live());
    }

    fn read_snapshot_file(&self) {
        let Some(directory) = &self.options.state_directory else { return };
        let Ok(bytes) = std::fs::read(state::snapshot_file(directory)) else { return };
        let Ok(snapshot) = snapshot::decode(&bytes) else { return };
        // Numbers of another engine are no basis without a daemon that knows what they are worth.
        let own = self.options.engine.as_ref().map(v1::Engine::from);
        if own.is_none() || own == snapshot.engine {
            self.shared.take_snapshot(&snapshot, Basis::Snapshot);
        }
    }

    async fn live(&mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.converse(&mut pause).await {
                Ended::Dropped => return,
                Ended::Gone => self.shared.fall_back(),
            }
            self.ready.take();
            if self.wait(jittered(pause)).await {
                return;
            }
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Waits; whether the attachment was dropped meanwhile. Observations without a daemon are dropped.
    async fn wait(&mut self, pause: Duration) -> bool {
        let until = tokio::time::Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return false,
                observation = self.observations.recv() => if observation.is_none() { return true },
            }
        }
    }

    async fn converse(&mut self, pause: &mut Duration) -> Ended {
        let (say, requests) = mpsc::channel(BACKLOG);
        if say.try_send(request(Said::Hello(self.hello()))).is_err() {
            return Ended::Gone;
        }
        // An attached client that rests must not wake up to ask whether the daemon lives: the kernel closes the socket of a dead one.
        let deadlines = Deadlines { keep_alive: Duration::from_secs(3600), ..Deadlines::default() };
        let channel = channel(&self.options.socket, &deadlines);
        let mut client = AttachmentClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let attached = tokio::select! {
            attached = tokio::time::timeout(deadlines.call, client.attach(ReceiverStream::new(requests))) => attached,
            () = closed(&mut self.observations) => return Ended::Dropped,
        };
        match attached {
            Ok(Ok(told)) => self.pump(told.into_inner(), say, pause).await,
            _ => Ended::Gone,
        }
    }

    async fn pump(
        &mut self,
        mut told: Streaming<v1::AttachReply>,
        say: mpsc::Sender<v1::AttachRequest>,
        pause: &mut Duration,
    ) -> Ended {
        let mut said = LastSaid { begun: self.shared.activity.begun(), ..LastSaid::default() };
        self.shared.activity.nobody_told();
        loop {
            for message in self.news(&mut said) {
                if !pass(&say, request(message)).await {
                    return Ended::Gone;
                }
            }
            let resting = async {
                // Only while busy is there anything to look at again.
                match said.busy {
                    Some(seen) => tokio::time::sleep(REST.saturating_sub(seen.elapsed())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                message = told.message() => match message {
                    Ok(Some(message)) => {
                        *pause = FIRST_PAUSE;
                        self.take(&message);
                    }
                    Ok(None) | Err(Status { .. }) => return Ended::Gone,
                },
                observation = self.observations.recv() => match observation {
                    None => {
                        self.say_farewell(told, say, &mut said).await;
                        return Ended::Dropped;
                    }
                    Some(first) => if !pass(&say, self.batch(first)).await { return Ended::Gone },
                },
                () = self.shared.wake.notified() => {}
                () = resting => {}
            }
        }
    }

    /// What the daemon must hear now: that we turned busy or idle, and what the gates learned.
    fn news(&self, said: &mut LastSaid) -> Vec<Said> {
        let activity = &self.shared.activity;
        let mut news = Vec::new();
        let begun = activity.begun();
        // What is over already was work, too.
        let worked = activity.is_busy() || begun != said.begun;
        said.begun = begun;
        if worked && said.busy.replace(Instant::now()).is_none() {
            activity.busy_told();
            news.push(busy_or_idle(true));
        }
        if said.busy.is_some_and(|seen| seen.elapsed() >= REST) && activity.rest(begun) {
            said.busy = None;
            // A daemon doesn't tell resting clients whether others work, and says it anew to busy ones.
            self.shared.gates.contend(false, &self.shared.table.load());
            news.push(busy_or_idle(false));
            news.extend(self.report(said));
        }
        if said.busy.is_some() && said.reported_at.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
            news.extend(self.report(said));
        }
        news
    }

    fn report(&self, said: &mut LastSaid) -> Option<Said> {
        said.reported_at = Some(Instant::now());
        self.shared.gates.report(&mut said.reporter).map(Said::GateReport)
    }

    /// The last report. The daemon ends the stream when it has taken it.
    async fn say_farewell(
        &self,
        mut told: Streaming<v1::AttachReply>,
        say: mpsc::Sender<v1::AttachRequest>,
        said: &mut LastSaid,
    ) {
        let Some(report) = self.report(said) else { return };
        let taken = async {
            let _ = say.send(request(report)).await;
            drop(say);
            while let Ok(Some(_)) = told.message().await {}
        };
        let _ = tokio::time::timeout(FAREWELL, taken).await;
    }

    fn take(&mut self, message: &v1::AttachReply) {
        // A newer daemon tells more than this version knows.
        let known = self.shared.take(message);
        if known && let Some(ready) = self.ready.take() {
            let _ = ready.try_send(Ready);
        }
    }

    fn batch(&mut self, first: (Layer, Observation)) -> v1::AttachRequest {
        let mut splits = vec![wire(first)];
        while splits.len() < MOST_OBSERVATIONS
            && let Ok(next) = self.observations.try_recv()
        {
            splits.push(wire(next));
        }
        request(Said::Observations(v1::Observations { splits }))
    }

    fn hello(&self) -> v1::Hello {
        v1::Hello {
            pid: std::process::id(),
            name: self.options.name.clone(),
            version: VERSION.to_owned(),
            protocol: PROTOCOL,
            engine: self.options.engine.as_ref().map(Into::into),
            layers: self.options.layers.iter().map(|layer| (*layer).into()).collect(),
            typical_rows: self.options.typical_rows,
            worker: self.options.worker.as_ref().map(|worker| v1::ClientWorker {
                interpreter: worker.interpreter.to_string_lossy().into_owned(),
                environment: worker.environment.clone().into_iter().collect(),
            }),
        }
    }
}

/// Passes a message on. A daemon that doesn't take it in time hangs, which counts as gone: the attachment must be able to leave.
async fn pass(say: &mpsc::Sender<v1::AttachRequest>, message: v1::AttachRequest) -> bool {
    matches!(tokio::time::timeout(PASS_LIMIT, say.send(message)).await, Ok(Ok(())))
}

/// Waits until the attachment is dropped; observations meanwhile are dropped.
async fn closed(observations: &mut mpsc::Receiver<(Layer, Observation)>) {
    while observations.recv().await.is_some() {}
}

fn request(message: Said) -> v1::AttachRequest {
    v1::AttachRequest { message: Some(message) }
}

fn busy_or_idle(busy: bool) -> Said {
    let state = if busy { v1::ActivityState::Busy } else { v1::ActivityState::Idle };
    Said::Activity(v1::Activity { state: state.into() })
}

fn wire((layer, observation): (Layer, Observation)) -> v1::SplitObservation {
    let times = observation.finish_times;
    v1::SplitObservation {
        layer: Some(layer.into()),
        rows: observation.rows,
        secondary_rows: observation.secondary_rows,
        total_ms: observation.total_ms,
        primary_finish_ms: times.primary_ms,
        secondary_finish_ms: times.secondary_ms,
        secondary_waited_first: times.first_waited == Unit::Secondary,
    }
}

/// Between half of `pause` and all of it. The keys of the standard library's hash maps are random.
fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    pause.mul_f64(0.5 + (random >> 11) as f64 / (1u64 << 54) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_shortened_by_at_most_half() {
        let pause = Duration::from_secs(10);
        let some: Vec<Duration> = (0..200).map(|_| jittered(pause)).collect();
        assert!(some.iter().all(|jittered| (pause / 2..=pause).contains(jittered)));
        assert!(some.iter().max() > some.iter().min());
    }
}
