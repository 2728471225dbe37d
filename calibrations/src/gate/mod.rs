//! The gate: which arm runs next, with a floor by budget.
//!
//! Per region (workload and row bucket) one arm *stands*; another is *tried* only while the [`Ledger`] and a [`Lease`] pay for it. It is a
//! conservative bandit (Wu, Shariff, Lattimore and Szepesvari 2016, "Conservative bandits"): the baseline is stock, and exploration
//! may cost at most a share of what the baseline would have taken. Pure: the caller makes the calls and brings the time.
//!
//! ```text
//! stock, reference known --(lease, ledger)--> a trial of one arm --(gain > 3 %, interval, longer than its heat)--> it stands
//!        ^                                        |  no gain shown: again after a wait that doubles      |
//!        +----------------------------------------+<------- its gain over the reference is lost --------+
//! ```
//!
//! * **The comparator** is stock *running alone*: an absolute reference from calls without a split for [`GateOptions::heat_memory_ms`] (for four times its
//!   length, after a short burst). It falls at once, and rises only after five heat memories alone and settled. Probes beside a running split bless the loser: on the M1 they read
//!   2738-4009 ms, stock alone takes 2552-2668, and the split reached 3400.
//! * **The first decision** comes from a [`Prediction`] or a kept [`GateState`]. Without a reference at most n0 = 3 calls follow it, then stock is looked at.
//! * **Leaving stock** takes 3 % and a 99 % interval, over a block longer than the heat memory. **Returning** takes no more than the loss of the gain:
//!   Page's test (1954) of each standing call against the reference, see [`drift`]. A kept or predicted split that exceeds stock's bound
//!   (three deviations above its reference) in one of its first trusted calls is stock at once.
//! * **Drift** of the active arm reopens what was refuted. Under memory pressure nothing else does.
//! * **Contended** calls cost what they cost (the ledger takes them) and teach nothing.
//!
//! # What is bounded
//!
//! Let T be the time of all calls, S what stock would have taken for them, epsilon = 1 %.
//!
//! **Pathwise, whatever the latencies** (the [`ledger`] gives the argument; a property test tries to break it): the exploring calls' excess over the reference is at
//! most `epsilon T + B`, where B is the excess of the first n0 = 3 exploring calls of each arm plus one call's excess. The latter can't be
//! bounded beforehand, since a call can't be stopped. B is spent once a machine, not once a process: `explored` is kept and merged, and one
//! process at a time holds the lease. Several calls in the air don't matter: only one of them explores.
//!
//! **Stationary arms.** Let sigma be the spread of one call, eta the error of the reference (with 16 calls and sigma = 1.5 %, 1.4 % at 99 %). Calls are of three kinds.
//! Stock costs nothing. Exploring is bounded above. A standing split that is no faster than `1 - 1.5 %` of the reference
//! moves Page's sum up by at least `1.5 % / sigma` a call on average, so it is sent back after about `n = 6.5 sigma / 1.5 %` calls (7; 3 if it
//! is far slower: z is clipped at 3). Each time it lost it waits twice as long, from 5 minutes, so up to T it stood wrongly at most
//! `log2(1 + T / 5 min)` times, and each of these needs its 99 % interval to have been wrong. Since the test sends back at 1.5 % of gain and
//! eta is less, what stays isn't slower than stock: with probability 1 - delta (1 % for the reference)
//!
//! ```text
//! T <= (S + B + n log2(1 + T / 5 min) gap) / (1 - epsilon)          gap: a losing split call less a stock call
//! ```
//!
//! An arm that stood for ten minutes before it lost starts its waits anew: at most one more `n gap` each ten minutes.
//!
//! **Arms that change C times.** Each change may cost its detection: `(C + 1) (B + n gap)` where the split became slower. Where *stock* became faster
//! while a split stands, only running stock shows it. If the split's own level moves too, that happens after at most 20 heat memories since the last look,
//! else after [`GateOptions::verify_every_ms`] (30 minutes), and the gap is lost for that long. If stock became slower nothing is lost against it.
//!
//! **What isn't bounded**: heat. What a split leaves in the machine makes later stock calls slower than if it had never run. For five heat memories after a trial this is
//! charged to it, which only stops exploration earlier; a machine that remembers longer loses the rest unseen. Regions are judged one by one: another
//! region's split is part of the surroundings.
//!
//! # What was measured
//!
//! `cargo xtask gates`, models of the 40 recorded blocks, all three arms, 5 seeds. Speed against all-stock, worst block, knowing nothing / the lines'
//! prediction / a kept state, and the paper's gate: 20 minutes 0.995 / 0.995 / 0.998, paper 0.973; 5 minutes 0.988 / 0.989 / 0.998, paper 0.962: in a short life the
//! first calls (B) weigh more, and only the kept state avoids them. Means are equal (1.058, 1.057, 1.057; 1.058): what the paper's gate loses where splitting
//! loses it gains back where its probes let a hot chip cool.
//!
//! Recorded cases are tests of this module: the
//! convergence runs, the discrete GPU (53 ms against 0.265: one call is lost, five in a million calls; the paper's gate is 21 times slower than
//! stock), the heat trap of the M1, and every block that gains 1.15 or more.

pub mod arena;
mod arm;
mod belief;
mod beliefs;
mod bucket;
pub mod drift;
mod explain;
pub mod ledger;
mod level;
pub mod opponent;
mod options;
mod predict;
mod region;
mod state;
pub mod tournament;

use std::sync::atomic::{AtomicBool, Ordering};

use crate::conditions::Conditions;

pub use arm::{Arm, ArmSet, ArmSetError};
pub use bucket::Bucket;
pub use explain::{Activity, ArmExplanation, Basis, Explanation};
pub use ledger::{Lease, LeaseBook, LeaseReport, Ledger};
pub use level::{Level, WINDOW};
pub use options::{GateOptions, heat_memory_ms};
pub use predict::{LayerPart, Prediction};
use region::Region;
pub use state::{ArmState, GateState, MergeError, RegionKey, RegionState, Standing};

/// A workload that was registered with [`Gate::workload`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkloadId(usize);

/// What the next call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decision {
    /// How to execute it.
    pub arm: Arm,
    /// Whether that is to learn. At most one exploring call of a gate is in the air: record it, or [`Gate::abandon`] it.
    pub explore: bool,
}

/// A call that was made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Call {
    /// What [`Gate::decide`] said.
    pub decision: Decision,
    /// Rows.
    pub rows: u32,
    /// Time between materialised boundaries, in ms.
    pub ms: f64,
    /// When it ended, in ms since any fixed moment; since 1970 (UTC) if states are to be kept.
    pub ended_at_ms: f64,
    /// Another process kept a unit busy meanwhile. The call costs what it cost, but teaches nothing.
    pub contended: bool,
}

/// The state of the machine around the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surroundings {
    /// The daemon's sensors.
    pub conditions: Conditions,
    /// Whether the working set fits in what is available.
    pub fits: bool,
    /// Whether another process is busy now: nothing is tried meanwhile.
    pub contended: bool,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self { conditions: Conditions::default(), fits: true, contended: false }
    }
}

#[derive(Debug)]
struct Workload {
    name: String,
    break_even_rows: u32,
    regions: Vec<Option<Box<Region>>>,
}

/// One process' gate.
///
/// [`Gate::decide`] is two array reads and a comparison: no allocation, no lock, no search. [`Gate::record`] is of constant time and
/// allocates only at the first call of a region and when conditions change.
#[derive(Debug)]
pub struct Gate {
    options: GateOptions,
    engine: String,
    ledger: Ledger,
    surroundings: Surroundings,
    workloads: Vec<Workload>,
    now_ms: f64,
    exploring: AtomicBool,
}

impl Gate {
    /// A gate that knows nothing. `engine` is [`crate::engine::Engine::key`] of the running process.
    pub fn new(options: GateOptions, engine: impl Into<String>) -> Self {
        Self {
            ledger: Ledger::new(options.epsilon),
            options,
            engine: engine.into(),
            surroundings: Surroundings::default(),
            workloads: Vec::new(),
            now_ms: 0.0,
            exploring: AtomicBool::new(false),
        }
    }

    /// The constants it decides with.
    pub fn options(&self) -> &GateOptions {
        &self.options
    }

    /// What exploration cost so far, and may cost.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The workload called `name`, registered if it is new.
    pub fn workload(&mut self, name: &str) -> WorkloadId {
        let at = self.workloads.iter().position(|workload| workload.name == name).unwrap_or_else(|| {
            let regions = (0..Bucket::COUNT).map(|_| None).collect();
            self.workloads.push(Workload { name: name.to_owned(), break_even_rows: 0, regions });
            self.workloads.len() - 1
        });
        WorkloadId(at)
    }

    /// Calls of `workload` with fewer `rows` bypass the gate. [`GateOptions::bypass_rows`] holds for all.
    pub fn break_even(&mut self, workload: WorkloadId, rows: u32) {
        if let Some(workload) = self.workloads.get_mut(workload.0) {
            workload.break_even_rows = rows;
        }
    }

    /// What the region of `rows` rows is predicted to gain; `None` if nothing is known.
    pub fn predict(&mut self, workload: WorkloadId, rows: u32, prediction: Option<Prediction>) {
        let now_ms = self.now_ms;
        self.with_region(workload, rows, |region, options| region.predict(prediction, now_ms, options));
    }

    /// Always `arm` in this region, until unlocked with `None`. An arm that the client can't run is ignored.
    pub fn lock(&mut self, workload: WorkloadId, rows: u32, arm: Option<Arm>) {
        let now_ms = self.now_ms;
        let arm = arm.filter(|arm| self.options.arms.has(*arm));
        self.with_region(workload, rows, |region, options| region.set_lock(arm, now_ms, options));
    }

    /// Forgets what this process knows of the region, but not what its first calls cost.
    pub fn reset(&mut self, workload: WorkloadId, rows: u32) {
        let (surroundings, now_ms) = (self.surroundings, self.now_ms);
        self.with_region(workload, rows, |region, options| {
            let mut fresh = Region::new(options, surroundings);
            for (new, old) in fresh.beliefs.arms.iter_mut().zip(&region.beliefs.arms) {
                new.explored = old.explored;
                new.epoch = old.epoch.saturating_add(1);
            }
            fresh.prediction = region.prediction;
            fresh.replan(now_ms, options);
            *region = fresh;
        });
    }

    /// Lets this process explore. Without a lease it never does.
    pub fn grant(&mut self, lease: Lease) {
        self.ledger.grant(lease);
    }

    /// Takes the lease back; returns what is left of it, in ms.
    pub fn revoke(&mut self) -> f64 {
        self.ledger.revoke()
    }

    /// The machine's state, as it is now.
    pub fn surround(&mut self, surroundings: Surroundings) {
        self.surroundings = surroundings;
        let (options, now_ms) = (&self.options, self.now_ms);
        for region in self.workloads.iter_mut().flat_map(|workload| &mut workload.regions).flatten() {
            region.surround(surroundings, now_ms, options);
        }
    }

    /// How to execute the next call of `rows` rows. Answers stock for a workload of another gate.
    pub fn decide(&self, workload: WorkloadId, rows: u32) -> Decision {
        let stock = Decision { arm: self.options.arms.stock(), explore: false };
        let Some(workload) = self.workloads.get(workload.0) else { return stock };
        if rows <= self.options.bypass_rows || rows < workload.break_even_rows {
            return stock;
        }
        let Some(region) = &workload.regions[usize::from(Bucket::of(rows).index())] else { return stock };
        let plan = &region.plan;
        let explores = plan.explore.filter(|_| {
            let expected_ms = plan.expected_ms_per_row * f64::from(rows);
            self.ledger.permits(expected_ms, plan.free) && !self.exploring.swap(true, Ordering::Relaxed)
        });
        match explores {
            Some(arm) => Decision { arm, explore: true },
            None => Decision { arm: plan.arm, explore: false },
        }
    }

    /// An exploring call was decided on and not made, or didn't end.
    pub fn abandon(&self, decision: Decision) {
        if decision.explore {
            self.exploring.store(false, Ordering::Relaxed);
        }
    }

    /// Takes a call that was made. Calls that bypass the gate only pass time.
    pub fn record(&mut self, workload: WorkloadId, call: &Call) {
        self.abandon(call.decision);
        if !(call.ms > 0.0 && call.ms.is_finite() && call.ended_at_ms.is_finite()) {
            return;
        }
        self.now_ms = self.now_ms.max(call.ended_at_ms);
        self.ledger.pass(call.ms);
        let break_even = self.workloads.get(workload.0).map_or(0, |workload| workload.break_even_rows);
        if call.rows <= self.options.bypass_rows || call.rows < break_even {
            return;
        }
        let mut ledger = std::mem::replace(&mut self.ledger, Ledger::new(0.0));
        self.with_region(workload, call.rows, |region, options| region.record(call, &mut ledger, options));
        self.ledger = ledger;
    }

    fn with_region(&mut self, workload: WorkloadId, rows: u32, act: impl FnOnce(&mut Region, &GateOptions)) {
        let (options, surroundings) = (&self.options, self.surroundings);
        if let Some(workload) = self.workloads.get_mut(workload.0) {
            let region = workload.regions[usize::from(Bucket::of(rows).index())]
                .get_or_insert_with(|| Box::new(Region::new(options, surroundings)));
            act(region, options);
        }
    }

    /// What this gate knows, to be kept and merged.
    pub fn export(&self) -> GateState {
        let stock = self.options.arms.stock();
        let mut regions = Vec::new();
        for workload in &self.workloads {
            for (index, region) in workload.regions.iter().enumerate() {
                let (Some(region), Some(bucket)) = (region, Bucket::from_index(index as u8)) else {
                    continue;
                };
                regions.extend(region.all_beliefs().map(|(conditions, beliefs)| {
                    let (arms, standing) = beliefs.export(stock);
                    let key = RegionKey { workload: workload.name.clone(), bucket, conditions };
                    RegionState { key, arms, standing }
                }));
            }
        }
        regions.sort_by(|a, b| a.key.cmp(&b.key));
        GateState { engine: self.engine.clone(), regions }
    }

    /// Takes in a kept or merged state. Of another engine's only the warning is taken: stock first.
    pub fn import(&mut self, state: &GateState) {
        let now_ms = self.now_ms;
        let same_engine = state.engine == self.engine;
        for kept in &state.regions {
            let workload = self.workload(&kept.key.workload);
            self.with_region(workload, kept.key.bucket.first_rows(), |region, options| {
                if same_engine {
                    region.import(kept.key.conditions, &kept.arms, kept.standing, now_ms, options);
                } else {
                    region.import_stale(now_ms, options);
                }
            });
        }
    }

    /// Why the region of `rows` rows is executed as it is; `None` if it was never called, predicted or imported.
    pub fn explain(&self, workload: WorkloadId, rows: u32) -> Option<Explanation> {
        let workload = self.workloads.get(workload.0)?;
        let bucket = Bucket::of(rows);
        let region = workload.regions[usize::from(bucket.index())].as_ref()?;
        let first = bucket.first_rows();
        let bypassed = rows <= self.options.bypass_rows || rows < workload.break_even_rows;
        let basis = match region.locked() {
            _ if bypassed => Basis::Bypass,
            Some(_) => Basis::Locked,
            None => region.beliefs.basis,
        };
        let arms = Arm::ALL
            .into_iter()
            .filter(|arm| self.options.arms.has(*arm))
            .map(|arm| {
                let belief = &region.beliefs.arms[arm.index()];
                ArmExplanation {
                    arm,
                    ms: belief.level.map(|level| level.ms(first)),
                    deviation: belief.level.map(|level| level.deviation),
                    observations: belief.observations,
                    explored: belief.explored,
                    failures: belief.failures,
                }
            })
            .collect();
        Some(Explanation {
            workload: workload.name.clone(),
            bucket,
            standing: region.locked().unwrap_or(region.beliefs.standing),
            basis,
            activity: region.activity(),
            pressed: region.pressed(),
            prediction: region.prediction,
            reference_ms: region.reference().map(|level| level.ms(first)),
            gain: region.split_gain().map(|gain| [gain.low.exp(), gain.value.exp(), gain.high.exp()]),
            loss_alarm: region.loss_alarm(),
            arms,
            balance_ms: self.ledger.balance_ms(),
            lease_ms: self.ledger.lease_ms(),
        })
    }
}

#[cfg(test)]
mod tests;
