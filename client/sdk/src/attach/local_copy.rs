//! An attachment without its thread, its socket and its clock.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::shape::Layer;
use fusion_proto::v1;
use fusion_proto::v1::attach_reply::Message as Told;
use tokio::sync::Notify;

use super::Basis;
use super::activity::Activity;
use super::answers::Answers;
use super::gates::{GateNews, Gates, Reporter};
use super::table::Table;

/// What inference threads and the background thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) table: ArcSwap<Table>,
    /// Guards of [`super::Attachment::busy`] that are held, and calls in the air.
    pub(super) activity: Activity,
    /// Which arm each region runs.
    pub(super) gates: Gates,
    /// Wakes the background thread when the first guard is taken, and when the attachment is dropped.
    pub(super) wake: Notify,
}

impl Shared {
    pub(super) fn new(table: Table) -> Self {
        Self {
            table: ArcSwap::from_pointee(table),
            activity: Activity::default(),
            gates: Gates::new(),
            wake: Notify::new(),
        }
    }

    /// Takes in what a daemon told; whether this version knows what it means.
    pub(super) fn take(&self, reply: &v1::AttachReply) -> bool {
        match &reply.message {
            Some(Told::Snapshot(snapshot)) => self.take_snapshot(snapshot, Basis::Attached),
            Some(Told::Delta(delta)) => self.take_delta(delta),
            None => return false,
        }
        true
    }

    /// Takes in a snapshot, of a daemon or of the file that it left.
    pub(super) fn take_snapshot(&self, snapshot: &v1::Snapshot, basis: Basis) {
        self.learn(self.table.load().with_snapshot(snapshot, basis));
        let (states, locks) = (&snapshot.gates, snapshot.gate_locks.as_ref());
        self.take_gates(&GateNews { states, locks, resets: &snapshot.gate_resets }, true);
    }

    fn take_delta(&self, delta: &v1::Delta) {
        if delta.conditions.is_some() || !delta.layers.is_empty() {
            self.learn(self.table.load().with_delta(delta));
        }
        if delta.gate_locks.is_some() || !delta.gates.is_empty() || !delta.gate_resets.is_empty() {
            let (states, resets) = (&delta.gates, &delta.gate_resets);
            self.take_gates(&GateNews { states, locks: delta.gate_locks.as_ref(), resets }, false);
        }
        if let Some(contended) = delta.contended {
            self.gates.contend(contended, &self.table.load());
        }
        if let Some(lease) = &delta.gate_lease {
            self.gates.lease(lease.ms);
        }
    }

    fn learn(&self, table: Table) {
        self.gates.learn(&table);
        self.table.store(Arc::new(table));
    }

    fn take_gates(&self, news: &GateNews<'_>, whole: bool) {
        self.gates.take(news, whole, &self.table.load());
    }

    /// The daemon went. What was known stays in use, but nobody says whether another process is busy or explores.
    pub(super) fn fall_back(&self) {
        self.activity.nobody_told();
        self.gates.revoke();
        let table = self.table.load();
        self.gates.contend(false, &table);
        if table.basis == Basis::Attached {
            self.table.store(Arc::new(table.with_basis(Basis::Snapshot)));
        }
    }
}

/// The local copy of what a daemon knows, driven by hand: what is told goes in, answers and reports come out. An [`super::Attachment`] is this with a thread that
/// speaks with the daemon. For whoever brings another clock or another transport: the simulation of days in virtual time does.
#[derive(Debug)]
pub struct LocalCopy {
    answers: Answers,
    reporter: Reporter,
}

impl LocalCopy {
    /// Knows nothing of `layers` yet: every answer is stock. `engine` runs the products (`None`: that of the daemon's worker), and the process needs
    /// `working_set_bytes` at once, if it can say.
    pub fn new(layers: &[Layer], engine: Option<&Engine>, working_set_bytes: Option<u64>) -> Self {
        Self { answers: Answers::new(layers, engine, working_set_bytes), reporter: Reporter::default() }
    }

    /// Takes in what the daemon told.
    pub fn take(&self, reply: &v1::AttachReply) {
        self.answers.shared.take(reply);
    }

    /// The daemon went: what was known stays in use, and nothing is explored.
    pub fn lose_daemon(&mut self) {
        self.answers.shared.fall_back();
        self.reporter = Reporter::default();
    }

    /// What to tell the daemon of the gates, if there is news.
    pub fn report(&mut self) -> Option<v1::GateReport> {
        self.answers.shared.gates.report(&mut self.reporter)
    }
}

impl Deref for LocalCopy {
    type Target = Answers;

    fn deref(&self) -> &Answers {
        &self.answers
    }
}
