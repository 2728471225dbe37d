//! One gate, and the calls that wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use crossbeam_queue::ArrayQueue;
use fusion_calibrations::gate::{
    Activity, Arm, ArmSet, Bucket, Call, Decision, Explanation, Gate, GateOptions, GateState, RegionState,
    Surroundings,
};
use fusion_proto::v1;

use super::workload::{BucketView, Composition, MAY_EXPLORE, UNLOCKED, UNSEEN, Workload};
use super::{Gates, Kept, is_reset, lock};
use crate::attach::table::Table;

/// Calls that may wait to be taken in.
const WAITING: usize = 64;
/// A call that took at least this long is taken in at once, in ms: that costs less than a hundredth of it.
const PROMPT_MS: f64 = 0.2;
/// Pause between two samples of shorter calls, in ms.
const SAMPLE_EVERY_MS: f64 = 250.0;
/// Tries for the lock at a bucket's first call: a few microseconds, once.
const FIRST_TRIES: u32 = 200;

/// A call that was made.
#[derive(Debug, Clone, Copy)]
pub(in crate::attach) struct Ended {
    pub(in crate::attach) place: usize,
    pub(in crate::attach) call: Call,
}

/// Split calls that taught something, of one bucket.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    calls: u64,
    rows: u64,
    ms: f64,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) gate: Gate,
    pub(super) engine: String,
    workloads: Vec<(Arc<Workload>, Box<[Tally]>)>,
    /// Time and cost in earlier gates, and what the daemon knows of both.
    reported_ms: (f64, f64),
}

/// One gate, and what waits for it.
#[derive(Debug)]
pub(in crate::attach) struct ArmGate {
    pub(super) arms: ArmSet,
    inner: Mutex<Inner>,
    ended: ArrayQueue<Ended>,
    /// When short calls were sampled last, as bits of ms since 1970.
    sampled_at_ms: AtomicU64,
    /// The exploring call: there is at most one in the air, and it is never lost, since it must be paid for.
    explored: ArrayQueue<Ended>,
}

impl Inner {
    /// Adds time, cost, wishes and savings to a report.
    pub(super) fn add_to(&mut self, report: &mut v1::GateReport) {
        let ledger = self.gate.ledger();
        let (time, charged) = (ledger.time_ms(), ledger.charged_ms() + ledger.free_ms());
        report.time_ms += (time - self.reported_ms.0).max(0.0);
        // It falls when heat was forgiven; what was said stands.
        report.charged_ms += (charged - self.reported_ms.1).max(0.0);
        self.reported_ms = (time, charged.max(self.reported_ms.1));
        report.lease_left_ms += self.gate.ledger().lease_ms();
        for (workload, tallies) in &self.workloads {
            for rows in workload.seen() {
                let Some(explanation) = self.gate.explain(workload.id, rows) else { continue };
                report.wants_lease |= matches!(explanation.activity, Activity::Trying(_));
                let tally = tallies[usize::from(Bucket::of(rows).index())];
                if let Some(reference_ms) = explanation.reference_ms {
                    let per_row = reference_ms / f64::from(explanation.bucket.first_rows());
                    report.saved_ms += per_row * tally.rows as f64 - tally.ms;
                    report.split_calls += tally.calls;
                }
            }
        }
    }

    /// Prepares a bucket for calls.
    fn open(&mut self, workload: &Workload, rows: u32, table: &Table, kept: &Kept) {
        let Composition { name, parts, other_ms } = &workload.composition;
        let (prediction, splits) = table.predict(parts, *other_ms, rows);
        workload.view(rows).splits.store(splits, Ordering::Relaxed);
        self.gate.predict(workload.id, rows, Some(prediction));
        // Locking interrupts a trial, so it isn't repeated.
        let lock = kept.lock(name, rows);
        let code = lock.map_or(UNLOCKED, Arm::code);
        if workload.view(rows).locked.swap(code, Ordering::Relaxed) != code {
            self.gate.lock(workload.id, rows, lock);
        }
    }

    /// The same for every bucket that was called: the budget, the lease or the machine changed.
    pub(super) fn publish_all(&self) {
        for (workload, _) in &self.workloads {
            workload.seen().for_each(|rows| publish(&self.gate, workload, rows));
        }
    }

    fn each(&mut self, mut act: impl FnMut(&mut Self, &Workload)) {
        for place in 0..self.workloads.len() {
            let workload = Arc::clone(&self.workloads[place].0);
            act(self, &workload);
        }
    }
}

impl ArmGate {
    pub(super) fn new(arms: ArmSet, table: &Table, contended: bool) -> Self {
        let engine = table.engine.clone().unwrap_or_default();
        let inner = Inner {
            gate: new_gate(arms, &engine, table, contended),
            engine,
            workloads: Vec::new(),
            reported_ms: (0.0, 0.0),
        };
        Self {
            arms,
            inner: Mutex::new(inner),
            ended: ArrayQueue::new(WAITING),
            explored: ArrayQueue::new(1),
            sampled_at_ms: AtomicU64::new(0),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    pub(in crate::attach) fn stock(&self) -> Arm {
        self.arms.stock()
    }

    pub(super) fn workload(&self, composition: Composition, table: &Table, kept: &Kept) -> Arc<Workload> {
        let mut inner = self.lock();
        let known = inner.workloads.iter().find(|(known, _)| known.composition.name == composition.name);
        if let Some((known, _)) = known {
            return Arc::clone(known);
        }
        let id = inner.gate.workload(&composition.name);
        let workload = Arc::new(Workload::new(id, inner.workloads.len(), composition));
        workload.weigh(self.arms, table, kept);
        inner.workloads.push((Arc::clone(&workload), vec![Tally::default(); Bucket::COUNT].into()));
        let state = of_workloads(&kept.state, &inner.workloads[workload.place..]);
        inner.gate.import(&state);
        workload
    }

    pub(super) fn learn(&self, table: &Table, kept: &Kept, contended: bool) {
        let engine = table.engine.clone().unwrap_or_default();
        let mut inner = self.lock();
        if inner.engine != engine {
            // What was learned with another engine stays with the daemon; places and numbers stay the same.
            inner.gate = new_gate(self.arms, &engine, table, contended);
            inner.engine = engine;
            inner.reported_ms = (0.0, 0.0);
            inner.each(|inner, workload| {
                inner.gate.workload(&workload.composition.name);
                workload.unlocked();
            });
        }
        inner.gate.surround(surroundings(table, contended));
        drop(inner);
        self.refresh(table, kept);
    }

    /// What the table says decides the break-even of each workload, and what its called buckets are predicted to gain.
    fn refresh(&self, table: &Table, kept: &Kept) {
        // Without the lock: this goes through all layers at all row counts.
        let workloads: Vec<_> =
            self.lock().workloads.iter().map(|(workload, _)| Arc::clone(workload)).collect();
        workloads.iter().for_each(|workload| workload.weigh(self.arms, table, kept));
        self.lock().each(|inner, workload| {
            for rows in workload.seen() {
                inner.open(workload, rows, table, kept);
            }
        });
        self.lock().publish_all();
    }

    pub(super) fn reset(&self, reset: &v1::GateReset, kept: &Kept, table: &Table) {
        let mut inner = self.lock();
        // What ended before is forgotten, too.
        self.drain(&mut inner);
        let known = inner.gate.export().regions;
        inner.each(|inner, workload| {
            let of_workload = known.iter().filter(|region| region.key.workload == workload.composition.name);
            for region in of_workload.filter(|region| is_reset(&region.key, reset)) {
                inner.gate.reset(workload.id, region.key.bucket.first_rows());
            }
            workload.unlocked();
            for rows in workload.seen() {
                inner.open(workload, rows, table, kept);
            }
        });
        // The next call is decided by nothing older.
        inner.publish_all();
    }

    pub(super) fn import(&self, state: &GateState, kept: &Kept, table: &Table) {
        let mut inner = self.lock();
        let own = of_workloads(state, &inner.workloads);
        inner.gate.import(&own);
        drop(inner);
        self.refresh(table, kept);
    }

    /// How to execute the next call. Doesn't wait, and allocates at a bucket's first call only.
    pub(in crate::attach) fn decide(
        &self,
        gates: &Gates,
        workload: &Workload,
        rows: u32,
        table: impl FnOnce() -> Arc<Table>,
    ) -> Decision {
        let view = workload.view(rows);
        let mut plan = view.plan.load(Ordering::Relaxed);
        if plan == UNSEEN {
            self.first_call(gates, workload, rows, table);
            plan = view.plan.load(Ordering::Relaxed);
        }
        if plan != UNSEEN
            && plan & MAY_EXPLORE != 0
            && let Ok(inner) = self.inner.try_lock()
        {
            return ask(&inner.gate, workload, view, rows);
        }
        let arm = Arm::from_code(plan & !MAY_EXPLORE).unwrap_or(self.arms.stock());
        Decision { arm, explore: false }
    }

    fn first_call(&self, gates: &Gates, workload: &Workload, rows: u32, table: impl FnOnce() -> Arc<Table>) {
        for _ in 0..FIRST_TRIES {
            if let (Ok(kept), Ok(mut inner)) = (gates.kept.try_lock(), self.inner.try_lock()) {
                workload.view(rows).rows.store(rows, Ordering::Relaxed);
                inner.open(workload, rows, &table(), &kept);
                return publish(&inner.gate, workload, rows);
            }
            std::hint::spin_loop();
        }
    }

    /// Takes a call that was made. Doesn't wait.
    pub(in crate::attach) fn take(&self, ended: Ended) {
        let Call { ms, decision, ended_at_ms, .. } = ended.call;
        let at_once = ms >= PROMPT_MS || decision.explore;
        if decision.explore {
            self.explored.force_push(ended);
        } else if at_once {
            self.ended.force_push(ended);
        } else if self.ended.push(ended).is_ok() || ended_at_ms < self.next_sample_ms() {
            return;
        }
        if let Ok(mut inner) = self.inner.try_lock() {
            self.sampled_at_ms.store(ended_at_ms.to_bits(), Ordering::Relaxed);
            self.drain(&mut inner);
        }
    }

    fn next_sample_ms(&self) -> f64 {
        f64::from_bits(self.sampled_at_ms.load(Ordering::Relaxed)) + SAMPLE_EVERY_MS
    }

    /// A call that was decided on wasn't made, or didn't end. Doesn't wait.
    pub(in crate::attach) fn abandon(&self, place: usize, decision: Decision) {
        if !decision.explore {
            return;
        }
        match self.inner.try_lock() {
            Ok(inner) => inner.gate.abandon(decision),
            // A call without a time is abandoned when it is taken in.
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => {
                let call = Call { decision, rows: 0, ms: 0.0, ended_at_ms: 0.0, contended: true };
                self.explored.force_push(Ended { place, call });
            }
        }
    }

    pub(super) fn drain(&self, inner: &mut Inner) {
        while let Some(Ended { place, call }) = self.explored.pop().or_else(|| self.ended.pop()) {
            let Inner { gate, workloads, .. } = inner;
            let Some((workload, tallies)) = workloads.get_mut(place) else { continue };
            if call.decision.arm == Arm::Split && !call.contended {
                let tally = &mut tallies[usize::from(Bucket::of(call.rows).index())];
                tally.calls += 1;
                tally.rows += u64::from(call.rows);
                tally.ms += call.ms;
            }
            gate.record(workload.id, &call);
            if call.rows > 0 {
                publish(gate, workload, call.rows);
            }
        }
    }

    /// Why calls of `rows` rows are executed as they are. Waits for the lock.
    pub(in crate::attach) fn explain(&self, workload: &Workload, rows: u32) -> Option<Explanation> {
        let mut inner = self.lock();
        self.drain(&mut inner);
        inner.gate.explain(workload.id, rows)
    }
}

/// What the gate decides; stock where nothing would be split, which is stock by another name.
fn ask(gate: &Gate, workload: &Workload, view: &BucketView, rows: u32) -> Decision {
    let decision = gate.decide(workload.id, rows);
    if decision.arm != Arm::Split || view.splits.load(Ordering::Relaxed) {
        return decision;
    }
    gate.abandon(decision);
    Decision { arm: gate.options().arms.stock(), explore: false }
}

/// Publishes what the gate would do next with a call of so many rows.
fn publish(gate: &Gate, workload: &Workload, rows: u32) {
    let view = workload.view(rows);
    let first = ask(gate, workload, view, rows);
    let plan = if first.explore {
        // As long as that one is in the air, the gate says what runs otherwise.
        let standing = ask(gate, workload, view, rows);
        gate.abandon(first);
        standing.arm.code() | MAY_EXPLORE
    } else {
        first.arm.code()
    };
    view.plan.store(plan, Ordering::Relaxed);
}

fn new_gate(arms: ArmSet, engine: &str, table: &Table, contended: bool) -> Gate {
    let mut gate = Gate::new(GateOptions::new(arms, table.cooling), engine);
    gate.surround(surroundings(table, contended));
    gate
}

pub(super) fn surroundings(table: &Table, contended: bool) -> Surroundings {
    Surroundings { conditions: table.conditions.unwrap_or_default(), fits: table.fits(), contended }
}

fn of_workloads(state: &GateState, workloads: &[(Arc<Workload>, Box<[Tally]>)]) -> GateState {
    let own = |region: &&RegionState| {
        workloads.iter().any(|(workload, _)| workload.composition.name == region.key.workload)
    };
    GateState { engine: state.engine.clone(), regions: state.regions.iter().filter(own).cloned().collect() }
}
