//! The gates of an attachment: decided on and told by inference threads without waiting, kept in step with the daemon by the background thread.
//!
//! Regions with the same arms share a gate. What it would do next is published for each bucket, so that a decision is one read; only a call that may explore asks
//! the gate itself. Its lock is only ever *tried* by inference threads: who doesn't get it runs what was published, and leaves the call in a queue for the next.
//!
//! Taking a call in costs about a microsecond, so that short calls are sampled: a queue full of them every quarter of a second (`arm_gate`).

mod arm_gate;
mod clock;
mod reporter;
mod workload;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fusion_calibrations::gate::{Arm, ArmSet, Bucket, GateState, Lease, RegionKey};
use fusion_proto::{MAX_GATE_REGIONS, bucket, gate_state, v1};

use super::table::Table;
use arm_gate::surroundings;
pub(super) use arm_gate::{ArmGate, Ended};
use clock::Clock;
pub(super) use reporter::Reporter;
pub(super) use workload::{Composition, Workload};

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

fn is_reset(key: &RegionKey, reset: &v1::GateReset) -> bool {
    key.workload == reset.workload && reset.bucket.is_none_or(|number| bucket(number) == Some(key.bucket))
}

/// A thread that panicked left a gate that is as good as before its call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
