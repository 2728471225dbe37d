//! The gates of an attachment: decided on and told by inference threads without waiting, kept in step with the daemon by the background thread.
//!
//! Regions with the same arms share a gate. What it would do next is published for each bucket, so that a decision is one read; only a call that may explore asks
//! the gate itself. Its lock is only ever *tried* by inference threads: who doesn't get it runs what was published, and leaves the call in a queue for the next.
//!
//! Taking a call in costs about a microsecond, so that calls shorter than [`PROMPT_MS`] are sampled: a queue full of them every [`SAMPLE_EVERY_MS`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crossbeam_queue::ArrayQueue;
use fusion_calibrations::gate::{
    Activity, Arm, ArmSet, Bucket, Call, Decision, Explanation, Gate, GateOptions, GateState, Lease,
    RegionKey, RegionState, Surroundings, WorkloadId,
};
use fusion_calibrations::lookup::DECODE_ROWS;
use fusion_proto::{MAX_GATE_REGIONS, bucket, gate_state, v1};

use super::table::Table;

/// Calls that may wait to be taken in.
const WAITING: usize = 64;
/// A call that took at least this long is taken in at once, in ms: that costs less than a hundredth of it.
const PROMPT_MS: f64 = 0.2;
/// Pause between two samples of shorter calls, in ms.
const SAMPLE_EVERY_MS: f64 = 250.0;
/// Bit of a published plan: the gate may explore, so it must be asked.
const MAY_EXPLORE: u8 = 1 << 2;
/// A plan that wasn't published yet.
const UNSEEN: u8 = u8::MAX;
/// No arm has this code.
const UNLOCKED: u8 = u8::MAX;
/// Tries for the lock at a bucket's first call: a few microseconds, once.
const FIRST_TRIES: u32 = 200;

/// Turns the monotonic clock into ms since 1970.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    unix_at_start_ms: AtomicU64,
}

impl Clock {
    fn new() -> Self {
        let clock = Self { start: Instant::now(), unix_at_start_ms: AtomicU64::new(0) };
        clock.adjust();
        clock
    }

    /// The clocks part while the machine sleeps.
    fn adjust(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_start = now.as_secs_f64() * 1e3 - self.start.elapsed().as_secs_f64() * 1e3;
        self.unix_at_start_ms.store(at_start.to_bits(), Ordering::Relaxed);
    }

    pub(super) fn unix_ms(&self, at: Instant) -> f64 {
        let since = at.saturating_duration_since(self.start).as_secs_f64() * 1e3;
        f64::from_bits(self.unix_at_start_ms.load(Ordering::Relaxed)) + since
    }
}

/// What inference threads know of a bucket without the lock.
#[derive(Debug)]
struct BucketView {
    /// Rows of its first call; 0 before that.
    rows: AtomicU32,
    /// The code of the arm that runs next, and [`MAY_EXPLORE`]; or [`UNSEEN`].
    plan: AtomicU8,
    /// Whether any layer would be split.
    splits: AtomicBool,
    /// The code of the arm that a person locked, or [`UNLOCKED`], as the gate was told.
    locked: AtomicU8,
}

impl BucketView {
    fn new() -> Self {
        Self {
            rows: AtomicU32::new(0),
            plan: AtomicU8::new(UNSEEN),
            splits: AtomicBool::new(false),
            locked: AtomicU8::new(UNLOCKED),
        }
    }
}

/// What a region consists of.
#[derive(Debug)]
pub(super) struct Composition {
    pub(super) name: String,
    /// Places in the table, and how often each layer runs.
    pub(super) parts: Vec<(usize, u32)>,
    pub(super) other_ms: f64,
}

/// A region of one gate.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) composition: Composition,
    id: WorkloadId,
    place: usize,
    /// Calls of fewer rows can't win by splitting.
    break_even: AtomicU32,
    buckets: Box<[BucketView]>,
}

impl Workload {
    pub(super) fn place(&self) -> usize {
        self.place
    }

    /// From how many rows on a thought is worth it. A person's lock holds for small calls too, and two stock arms differ at any size.
    fn weigh(&self, arms: ArmSet, table: &Table, kept: &Kept) {
        let Composition { name, parts, other_ms } = &self.composition;
        let always = kept.has_lock(name) || (arms.has(Arm::Compiled) && arms.has(Arm::Eager));
        let margin = GateOptions::new(arms, table.cooling).margin;
        let rows = if always { 0 } else { table.break_even(parts, *other_ms, margin) };
        self.break_even.store(rows, Ordering::Relaxed);
    }

    /// The gate forgot what it was told of locks.
    fn unlocked(&self) {
        self.buckets.iter().for_each(|view| view.locked.store(UNLOCKED, Ordering::Relaxed));
    }

    fn view(&self, rows: u32) -> &BucketView {
        &self.buckets[usize::from(Bucket::of(rows).index())]
    }

    /// Rows of the first call of each bucket that was called.
    fn seen(&self) -> impl Iterator<Item = u32> {
        self.buckets.iter().map(|view| view.rows.load(Ordering::Relaxed)).filter(|rows| *rows > 0)
    }

    /// Whether calls of so few rows aren't worth a thought.
    pub(super) fn bypasses(&self, rows: u32) -> bool {
        rows <= DECODE_ROWS || rows < self.break_even.load(Ordering::Relaxed)
    }
}

/// A call that was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) place: usize,
    pub(super) call: Call,
}

/// Split calls that taught something, of one bucket.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    calls: u64,
    rows: u64,
    ms: f64,
}

#[derive(Debug)]
struct Inner {
    gate: Gate,
    engine: String,
    workloads: Vec<(Arc<Workload>, Box<[Tally]>)>,
    /// Time and cost in earlier gates, and what the daemon knows of both.
    reported_ms: (f64, f64),
}

/// One gate, and what waits for it.
#[derive(Debug)]
pub(super) struct ArmGate {
    arms: ArmSet,
    inner: Mutex<Inner>,
    ended: ArrayQueue<Ended>,
    /// When short calls were sampled last, as bits of ms since 1970.
    sampled_at_ms: AtomicU64,
    /// The exploring call: there is at most one in the air, and it is never lost, since it must be paid for.
    explored: ArrayQueue<Ended>,
}

/// What the daemon, or its file, says of gates.
#[derive(Debug, Default)]
struct Kept {
    state: GateState,
    locks: Vec<v1::GateLock>,
    last_reset: u64,
}

impl Kept {
    fn lock(&self, name: &str, rows: u32) -> Option<Arm> {
        let number = u32::from(Bucket::of(rows).index());
        let of_workload = self.locks.iter().filter(|lock| lock.workload == name);
        let nearest = of_workload
            .filter(|lock| lock.bucket.is_none_or(|bucket| bucket == number))
            .max_by_key(|lock| lock.bucket.is_some());
        nearest.and_then(|lock| lock.arm().known())
    }

    fn has_lock(&self, name: &str) -> bool {
        self.locks.iter().any(|lock| lock.workload == name)
    }
}

/// Every gate of an attachment.
#[derive(Debug)]
pub(super) struct Gates {
    gates: Mutex<Vec<Arc<ArmGate>>>,
    kept: Mutex<Kept>,
    /// Odd while another process is busy.
    contention: AtomicU32,
    pub(super) clock: Clock,
}

impl Gates {
    pub(super) fn new() -> Self {
        Self {
            gates: Mutex::default(),
            kept: Mutex::default(),
            contention: AtomicU32::new(0),
            clock: Clock::new(),
        }
    }

    /// Odd while another process is busy; changes whenever that does.
    pub(super) fn contention(&self) -> u32 {
        self.contention.load(Ordering::Relaxed)
    }

    fn is_contended(&self) -> bool {
        self.contention() % 2 == 1
    }

    fn all(&self) -> Vec<Arc<ArmGate>> {
        lock(&self.gates).clone()
    }

    /// The region of this name and these arms: a new one, or the one that there is.
    pub(super) fn region(
        &self,
        composition: Composition,
        arms: ArmSet,
        table: &Table,
    ) -> (Arc<ArmGate>, Arc<Workload>) {
        let kept = lock(&self.kept);
        let mut gates = lock(&self.gates);
        let gate = match gates.iter().find(|gate| gate.arms == arms) {
            Some(gate) => Arc::clone(gate),
            None => {
                let gate = Arc::new(ArmGate::new(arms, table, self.is_contended()));
                gates.push(Arc::clone(&gate));
                gate
            }
        };
        let workload = gate.workload(composition, table, &kept);
        (gate, workload)
    }

    /// The table changed, or the conditions.
    pub(super) fn learn(&self, table: &Table) {
        let kept = lock(&self.kept);
        for gate in self.all() {
            gate.learn(table, &kept, self.is_contended());
        }
        self.clock.adjust();
    }

    /// Takes in what a daemon or its file says: resets first, then states, then locks. `whole` replaces what was kept.
    pub(super) fn take(&self, news: &GateNews<'_>, whole: bool, table: &Table) {
        let mut kept = lock(&self.kept);
        let engine = table.engine.clone().unwrap_or_default();
        if whole || kept.state.engine != engine {
            kept.state = GateState { engine: engine.clone(), regions: Vec::new() };
        }
        let last_reset = kept.last_reset;
        for reset in news.resets.iter().filter(|reset| reset.number > last_reset) {
            kept.last_reset = kept.last_reset.max(reset.number);
            kept.state.regions.retain(|region| !is_reset(&region.key, reset));
            self.all().iter().for_each(|gate| gate.reset(reset, &kept, table));
        }
        let mut received = GateState { engine, regions: Vec::new() };
        let own = |state: &&v1::GateState| {
            state.engine_key == received.engine && table.chip.as_ref() == Some(&state.chip_key)
        };
        let states: Vec<GateState> = news.states.iter().filter(own).map(GateState::from).collect();
        for state in &states {
            // They are of the same engine.
            let _ = received.merge(state);
        }
        let _ = kept.state.merge(&received);
        if let Some(locks) = news.locks {
            kept.locks.clone_from(&locks.locks);
        }
        for gate in self.all() {
            gate.import(&received, &kept, table);
        }
    }

    /// Whether another process is busy.
    pub(super) fn contend(&self, contended: bool, table: &Table) {
        if contended == self.is_contended() {
            return;
        }
        self.contention.fetch_add(1, Ordering::Relaxed);
        for gate in self.all() {
            let mut inner = gate.lock();
            inner.gate.surround(surroundings(table, contended));
            inner.publish_all();
        }
    }

    /// A lease takes the place of the last one, in equal parts for all gates.
    pub(super) fn lease(&self, ms: f64) {
        let gates = self.all();
        for gate in &gates {
            let mut inner = gate.lock();
            inner.gate.revoke();
            inner.gate.grant(Lease { ms: ms / gates.len() as f64 });
            inner.publish_all();
        }
    }

    /// Nothing may be explored any more.
    pub(super) fn revoke(&self) {
        for gate in self.all() {
            let mut inner = gate.lock();
            inner.gate.revoke();
            inner.publish_all();
        }
    }

    /// What to tell the daemon. Whoever explores nothing gives its lease back.
    pub(super) fn report(&self, reporter: &mut Reporter) -> Option<v1::GateReport> {
        let mut report = v1::GateReport { last_reset: lock(&self.kept).last_reset, ..Default::default() };
        let mut changed = Vec::new();
        let mut engine = None;
        for gate in self.all() {
            let mut inner = gate.lock();
            gate.drain(&mut inner);
            inner.add_to(&mut report);
            inner.publish_all();
            if inner.engine.is_empty() {
                continue;
            }
            engine = Some(inner.engine.clone());
            for region in inner.gate.export().regions {
                if changed.len() < MAX_GATE_REGIONS && reporter.is_new(&region) {
                    changed.push(region);
                }
            }
        }
        if !report.wants_lease {
            self.revoke();
            report.lease_left_ms = 0.0;
        }
        let state = engine.map(|engine| gate_state("", &engine, &changed));
        report.state = state.filter(|state| !state.regions.is_empty());
        let news = report.state.is_some() || report.time_ms > 0.0 || report.wants_lease != reporter.wanted;
        reporter.wanted = report.wants_lease;
        (news || report.wants_lease).then_some(report)
    }
}

/// What was said of gates.
pub(super) struct GateNews<'a> {
    pub(super) states: &'a [v1::GateState],
    pub(super) locks: Option<&'a v1::GateLocks>,
    pub(super) resets: &'a [v1::GateReset],
}

/// What the daemon was told last.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    told: BTreeMap<RegionKey, RegionState>,
    wanted: bool,
}

impl Reporter {
    fn is_new(&mut self, region: &RegionState) -> bool {
        if self.told.get(&region.key) == Some(region) {
            return false;
        }
        let known = region.arms.iter().any(|arm| arm.observations > 0);
        if known {
            self.told.insert(region.key.clone(), region.clone());
        }
        known
    }
}

impl Inner {
    /// Adds time, cost, wishes and savings to a report.
    fn add_to(&mut self, report: &mut v1::GateReport) {
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
    fn publish_all(&self) {
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
    fn new(arms: ArmSet, table: &Table, contended: bool) -> Self {
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

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    pub(super) fn stock(&self) -> Arm {
        self.arms.stock()
    }

    fn workload(&self, composition: Composition, table: &Table, kept: &Kept) -> Arc<Workload> {
        let mut inner = self.lock();
        let known = inner.workloads.iter().find(|(known, _)| known.composition.name == composition.name);
        if let Some((known, _)) = known {
            return Arc::clone(known);
        }
        let workload = Arc::new(Workload {
            id: inner.gate.workload(&composition.name),
            place: inner.workloads.len(),
            break_even: AtomicU32::new(0),
            buckets: (0..Bucket::COUNT).map(|_| BucketView::new()).collect(),
            composition,
        });
        workload.weigh(self.arms, table, kept);
        inner.workloads.push((Arc::clone(&workload), vec![Tally::default(); Bucket::COUNT].into()));
        let state = of_workloads(&kept.state, &inner.workloads[workload.place..]);
        inner.gate.import(&state);
        workload
    }

    fn learn(&self, table: &Table, kept: &Kept, contended: bool) {
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

    fn reset(&self, reset: &v1::GateReset, kept: &Kept, table: &Table) {
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

    fn import(&self, state: &GateState, kept: &Kept, table: &Table) {
        let mut inner = self.lock();
        let own = of_workloads(state, &inner.workloads);
        inner.gate.import(&own);
        drop(inner);
        self.refresh(table, kept);
    }

    /// How to execute the next call. Doesn't wait, and allocates at a bucket's first call only.
    pub(super) fn decide(
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
    pub(super) fn take(&self, ended: Ended) {
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
    pub(super) fn abandon(&self, place: usize, decision: Decision) {
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

    fn drain(&self, inner: &mut Inner) {
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
    pub(super) fn explain(&self, workload: &Workload, rows: u32) -> Option<Explanation> {
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

fn surroundings(table: &Table, contended: bool) -> Surroundings {
    Surroundings { conditions: table.conditions.unwrap_or_default(), fits: table.fits(), contended }
}

fn of_workloads(state: &GateState, workloads: &[(Arc<Workload>, Box<[Tally]>)]) -> GateState {
    let own = |region: &&RegionState| {
        workloads.iter().any(|(workload, _)| workload.composition.name == region.key.workload)
    };
    GateState { engine: state.engine.clone(), regions: state.regions.iter().filter(own).cloned().collect() }
}

fn is_reset(key: &RegionKey, reset: &v1::GateReset) -> bool {
    key.workload == reset.workload && reset.bucket.is_none_or(|number| bucket(number) == Some(key.bucket))
}

/// A thread that panicked left a gate that is as good as before its call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
