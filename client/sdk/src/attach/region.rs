//! A region for inference threads: which arm, and how long it took.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use fusion_calibrations::gate::{Arm, Call, Decision, Explanation};

use super::Shared;
use super::activity::Mark;
use super::gates::{ArmGate, Ended, Workload};

/// A region of an attachment: one workload, whatever its rows. Cheap to clone; clones are the same region.
#[derive(Debug, Clone)]
pub struct RegionHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) gate: Arc<ArmGate>,
    pub(super) workload: Arc<Workload>,
}

impl RegionHandle {
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
        let Self { shared, gate, workload } = region.as_ref();
        let (mark, wake) = shared.activity.begin();
        if wake {
            shared.wake.notify_one();
        }
        let timed = !workload.bypasses(rows);
        let decision = if timed {
            gate.decide(&shared.gates, workload, rows, || shared.table.load_full())
        } else {
            Decision { arm: gate.stock(), explore: false }
        };
        let contention = shared.gates.contention();
        let begun_at = timed.then(Instant::now);
        CallGuard { region, decision, rows, mark, contention, begun_at, open: true }
    }

    /// The arm that a call of `rows` rows would get now, without making one: for showing. [`Self::begin`] decides.
    pub fn arm(&self, rows: u32) -> Arm {
        if self.workload.bypasses(rows) {
            return self.gate.stock();
        }
        let table = || self.shared.table.load_full();
        let decision = self.gate.decide(&self.shared.gates, &self.workload, rows, table);
        self.gate.abandon(self.workload.place(), decision);
        decision.arm
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
    decision: Decision,
    rows: u32,
    mark: Mark,
    contention: u32,
    begun_at: Option<Instant>,
    open: bool,
}

impl CallGuard<'_> {
    /// How to execute this call. With [`Arm::Split`], [`super::Attachment::secondary_rows`] says how each layer is split.
    pub fn arm(&self) -> Arm {
        self.decision.arm
    }

    /// Whether this call is made to learn.
    pub fn explores(&self) -> bool {
        self.decision.explore
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
        let RegionHandle { shared, gate, workload } = self.region.as_ref();
        let overlapped = shared.activity.end(self.mark);
        let Some((begun_at, ended_at)) = ended_at else { return };
        let contention = shared.gates.contention();
        let call = Call {
            decision: self.decision,
            rows: self.rows,
            ms: ended_at.duration_since(begun_at).as_secs_f64() * 1e3,
            ended_at_ms: shared.gates.clock.unix_ms(ended_at),
            contended: overlapped || contention % 2 == 1 || contention != self.contention,
        };
        gate.take(Ended { place: workload.place(), call });
    }

    fn forget(&mut self) {
        self.open = false;
        let RegionHandle { shared, gate, workload } = self.region.as_ref();
        shared.activity.end(self.mark);
        gate.abandon(workload.place(), self.decision);
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
