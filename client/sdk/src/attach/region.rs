//! A region for inference threads: which arm, and how long it took.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use fusion_calibrations::gate::{Arm, Call, Decision, Explanation};

use super::activity::Mark;
use super::gates::{ArmGate, Ended, Workload};
use super::local_copy::Shared;

/// A region of an attachment: one workload, whatever its rows. Cheap to clone; clones are the same region.
#[derive(Debug, Clone)]
pub struct RegionHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) gate: Arc<ArmGate>,
    pub(super) workload: Arc<Workload>,
}

/// How a call is executed, and what its time will mean.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use = "the gate waits for what came of an exploring call: record or abandon it"]
pub struct Decided {
    decision: Decision,
    rows: u32,
    /// Calls of few rows are stock, and nobody is interested in how long they take.
    timed: bool,
}

impl Decided {
    /// How to execute the call.
    pub fn arm(&self) -> Arm {
        self.decision.arm
    }

    /// Whether it is made to learn.
    pub fn explores(&self) -> bool {
        self.decision.explore
    }
}

impl RegionHandle {
    /// Decides how a call of `rows` rows is executed, for a caller that times it: [`Self::record`] or [`Self::abandon`] it. [`Self::begin`] does both.
    pub fn decide(&self, rows: u32) -> Decided {
        let timed = !self.workload.bypasses(rows);
        let decision = if timed {
            let table = || self.shared.table.load_full();
            self.gate.decide(&self.shared.gates, &self.workload, rows, table)
        } else {
            Decision { arm: self.gate.stock(), explore: false }
        };
        Decided { decision, rows, timed }
    }

    /// Takes in how long a call took, in ms, and when it ended, in ms since 1970. What `overlapped` with other work costs what it cost, but teaches nothing.
    pub fn record(&self, decided: Decided, ms: f64, ended_at_unix_ms: f64, overlapped: bool) {
        let Decided { decision, rows, timed } = decided;
        if timed {
            let call = Call { decision, rows, ms, ended_at_ms: ended_at_unix_ms, contended: overlapped };
            self.gate.take(Ended { place: self.workload.place(), call });
        }
    }

    /// A call wasn't made, or not as decided.
    pub fn abandon(&self, decided: Decided) {
        self.gate.abandon(self.workload.place(), decided.decision);
    }

    /// The name of the workload.
    pub fn name(&self) -> &str {
        &self.workload.composition.name
    }

    /// Decides how a call of `rows` rows is executed, and times it until the guard ends. The process is busy meanwhile.
    ///
    /// Never waits. Allocates at the first call of about so many rows, and never again. Calls of few rows, as in decoding, are stock and not timed.
    pub fn begin(&self, rows: u32) -> CallGuard<'_> {
        Self::begin_for(Cow::Borrowed(self), rows)
    }

    /// [`Self::begin`] with a guard that may outlive this handle: for bindings of other languages.
    pub fn begin_owned(&self, rows: u32) -> CallGuard<'static> {
        Self::begin_for(Cow::Owned(self.clone()), rows)
    }

    fn begin_for(region: Cow<'_, Self>, rows: u32) -> CallGuard<'_> {
        let shared = &region.shared;
        let (mark, wake) = shared.activity.begin();
        if wake {
            shared.wake.notify_one();
        }
        let decided = region.decide(rows);
        let contention = shared.gates.contention();
        let begun_at = decided.timed.then(Instant::now);
        CallGuard { region, decided, mark, contention, begun_at, open: true }
    }

    /// The arm that a call of `rows` rows would get now, without making one: for showing. [`Self::begin`] decides.
    pub fn arm(&self, rows: u32) -> Arm {
        let decided = self.decide(rows);
        self.abandon(decided);
        decided.arm()
    }

    pub(super) fn explain(&self, rows: u32) -> Option<Explanation> {
        self.gate.explain(&self.workload, rows)
    }
}

/// A call in the air. Dropping it ends it; while its thread panics, that abandons it.
#[derive(Debug)]
#[must_use = "dropping this at once records a call of no time"]
pub struct CallGuard<'a> {
    region: Cow<'a, RegionHandle>,
    decided: Decided,
    mark: Mark,
    contention: u32,
    begun_at: Option<Instant>,
    open: bool,
}

impl CallGuard<'_> {
    /// How to execute this call. With [`Arm::Split`], [`super::Answers::secondary_rows`] says how each layer is split.
    pub fn arm(&self) -> Arm {
        self.decided.arm()
    }

    /// Whether this call is made to learn.
    pub fn explores(&self) -> bool {
        self.decided.explores()
    }

    /// The result is there: the time counts. Call it between materialised boundaries only.
    pub fn end(mut self) {
        self.finish();
    }

    /// The call wasn't made, or not as decided: nothing counts.
    pub fn abandon(mut self) {
        self.forget();
    }

    fn finish(&mut self) {
        self.open = false;
        let ended_at = self.begun_at.map(|begun_at| (begun_at, Instant::now()));
        let shared = &self.region.shared;
        let overlapped = shared.activity.end(self.mark);
        let Some((begun_at, ended_at)) = ended_at else { return };
        let contention = shared.gates.contention();
        let contended = overlapped || contention % 2 == 1 || contention != self.contention;
        let ms = ended_at.duration_since(begun_at).as_secs_f64() * 1e3;
        self.region.record(self.decided, ms, shared.gates.clock.unix_ms(ended_at), contended);
    }

    fn forget(&mut self) {
        self.open = false;
        self.region.shared.activity.end(self.mark);
        self.region.abandon(self.decided);
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        if std::thread::panicking() { self.forget() } else { self.finish() }
    }
}
