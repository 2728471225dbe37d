//! What all processes' gates know together, who may explore, and what a person decided.
//!
//! ```text
//! client's report --> reset since? dropped : merged (a lattice join) --> worth telling? --> version + 1 --> every stream, the snapshot file
//!                 \-> lease book: time and cost in, at most one lease out, none while the snapshot file can't be written
//! ```
//!
//! A state belongs to one chip and one engine. A reset leaves a tombstone: beliefs of a later epoch without content. Since a report that was under way
//! could bring the old standing back, clients say which reset they followed last, and what they report of older days is dropped.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use fusion_calibrations::chip::Chip;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::gate::{
    Arm, ArmState, Bucket, GateState, LeaseBook, LeaseReport, RegionKey, RegionState, Standing,
};
use fusion_proto::{MAX_GATE_LOCKS, MAX_GATE_REGIONS, MAX_WORKLOAD_BYTES, bucket, gate_state, v1};
use tokio::sync::watch;

/// Share of the clients' time that exploring may cost.
const EPSILON: f64 = 0.01;
/// What may be lost before any client worked, in ms: a trial's first calls.
const STARTER_MS: f64 = 100.0;
/// The largest lease, in ms.
const MOST_MS: f64 = 10_000.0;
/// What a client did since its last report is less than a day's work; a report of more is a fault of it.
const LONGEST_REPORT_MS: f64 = 86_400_000.0;
/// Resets that are remembered for clients that were away.
const MOST_RESETS: usize = 256;
/// Change of an arm's level that clients are told of (logarithm): a third of the gate's margin.
const WORTH_TELLING: f64 = 0.01;

/// Chip and engine that a state belongs to, by their keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Home {
    chip: String,
    engine: String,
}

impl Home {
    /// The home of what runs on `chip` with `engine`.
    pub fn new(chip: &Chip, engine: &Engine) -> Self {
        Self { chip: chip.key(), engine: engine.key() }
    }
}

/// Why a person's decision isn't taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// A name that no workload has.
    #[error(
        "a workload's name has 1 to {MAX_WORKLOAD_BYTES} bytes, this one has {0}: see 'fusionctl gates list'"
    )]
    Name(usize),
    /// Too many locks.
    #[error("{MAX_GATE_LOCKS} locks are set already: unlock some")]
    TooManyLocks,
}

/// Which calls of a workload are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    workload: String,
    bucket: Option<Bucket>,
}

impl Scope {
    /// All calls of a workload, or those of about as many rows as `rows`.
    ///
    /// # Errors
    /// [`GateError::Name`].
    pub fn new(workload: String, rows: Option<u32>) -> Result<Self, GateError> {
        match workload.len() {
            1..=MAX_WORKLOAD_BYTES => Ok(Self { workload, bucket: rows.map(Bucket::of) }),
            other => Err(GateError::Name(other)),
        }
    }

    fn holds(&self, key: &RegionKey) -> bool {
        self.workload == key.workload && self.bucket.is_none_or(|bucket| bucket == key.bucket)
    }

    fn wire_bucket(&self) -> Option<u32> {
        self.bucket.map(|bucket| bucket.index().into())
    }
}

#[derive(Debug, Default)]
struct Known {
    state: GateState,
    /// The version that a region was last told with.
    versions: HashMap<RegionKey, u64>,
}

#[derive(Debug)]
struct Inner {
    homes: BTreeMap<Home, Known>,
    locks: Vec<(Scope, Arm)>,
    locks_version: u64,
    resets: Vec<(u64, Scope)>,
    book: LeaseBook,
    last_write: LastWrite,
}

/// What became of the last attempt to write this down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastWrite {
    Done,
    Failed,
}

/// Everything of gates that outlives a process.
#[derive(Debug)]
pub struct Gates {
    inner: Mutex<Inner>,
    version: watch::Sender<u64>,
}

/// What one client was told so far.
#[derive(Debug, Default)]
pub struct Told {
    version: u64,
    locks_version: Option<u64>,
    last_reset: u64,
}

/// What to tell a client.
#[derive(Debug, Default, PartialEq)]
pub struct News {
    /// Regions that changed.
    pub gates: Vec<v1::GateState>,
    /// The locks, if they changed.
    pub locks: Option<v1::GateLocks>,
    /// Resets since.
    pub resets: Vec<v1::GateReset>,
}

impl News {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Gates {
    fn default() -> Self {
        let inner = Inner {
            homes: BTreeMap::new(),
            locks: Vec::new(),
            locks_version: 0,
            resets: Vec::new(),
            book: LeaseBook::new(EPSILON, STARTER_MS, MOST_MS),
            last_write: LastWrite::Done,
        };
        // Clients that were told nothing are at version 0.
        Self { inner: Mutex::new(inner), version: watch::Sender::new(1) }
    }
}

impl Gates {
    /// Takes over what a snapshot file holds; how many regions.
    pub fn restore(&self, snapshot: &v1::Snapshot) -> usize {
        let mut inner = self.inner();
        for wire in &snapshot.gates {
            let home = Home { chip: wire.chip_key.clone(), engine: wire.engine_key.clone() };
            let known = Known { state: wire.into(), versions: HashMap::new() };
            inner.homes.insert(home, known);
        }
        let locks = snapshot.gate_locks.iter().flat_map(|locks| &locks.locks);
        inner.locks = locks
            .filter_map(|lock| Some((scope(&lock.workload, lock.bucket)?, lock.arm().known()?)))
            .collect();
        inner.locks.truncate(MAX_GATE_LOCKS);
        let resets = snapshot.gate_resets.iter();
        inner.resets =
            resets.filter_map(|reset| Some((reset.number, scope(&reset.workload, reset.bucket)?))).collect();
        if let Some(ms) = snapshot.exploration_available_ms.filter(|ms| ms.is_finite()) {
            inner.book = LeaseBook::new(EPSILON, ms.clamp(-MOST_MS, MOST_MS), MOST_MS);
        }
        inner.homes.values().map(|known| known.state.regions.len()).sum()
    }

    /// The number that grows whenever there is something to tell.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Takes a client's report in. The lease that it gets, in ms, if it gets one.
    pub fn report(&self, client: u64, home: Option<&Home>, report: &v1::GateReport) -> Option<f64> {
        let mut inner = self.inner();
        if let (Some(home), Some(state)) = (home, &report.state) {
            self.learn(&mut inner, home, state, report.last_reset);
        }
        let sane = |ms: f64| if ms.is_finite() { ms.clamp(0.0, LONGEST_REPORT_MS) } else { 0.0 };
        let (time_ms, charged_ms) = (sane(report.time_ms), sane(report.charged_ms));
        inner.book.report(client, LeaseReport { time_ms, charged_ms });
        if inner.book.holder() == Some(client) {
            if report.wants_lease && report.lease_left_ms > 0.0 {
                return None;
            }
            inner.book.release(client);
        }
        if !report.wants_lease || inner.last_write == LastWrite::Failed {
            return None;
        }
        let lease = inner.book.request(client)?;
        // What is leased must not come back with a daemon that died meanwhile.
        self.version.send_modify(|version| *version += 1);
        Some(lease.ms)
    }

    /// What is to outlive the daemon is in the file.
    pub fn written(&self) {
        self.inner().last_write = LastWrite::Done;
    }

    /// It can't be written. Nobody explores until it can: a daemon that died meanwhile would come back with what it had leased.
    pub fn not_written(&self) {
        let mut inner = self.inner();
        inner.last_write = LastWrite::Failed;
        if let Some(holder) = inner.book.holder() {
            inner.book.release(holder);
            self.version.send_modify(|version| *version += 1);
        }
    }

    /// Whether the last attempt to write it succeeded, or none was made.
    pub fn is_written(&self) -> bool {
        self.inner().last_write == LastWrite::Done
    }

    /// What exploring may still cost, in ms, without what is leased.
    pub fn exploration_available_ms(&self) -> f64 {
        self.inner().book.available_ms()
    }

    /// A client left, or doesn't explore any more.
    pub fn leave(&self, client: u64) {
        self.inner().book.release(client);
    }

    /// Who explores.
    pub fn holder(&self) -> Option<u64> {
        self.inner().book.holder()
    }

    fn learn(&self, inner: &mut Inner, home: &Home, wire: &v1::GateState, last_reset: u64) {
        // A client whose engine was changed under it reports what belongs elsewhere.
        if wire.engine_key != home.engine {
            return;
        }
        let mut reported = GateState::from(wire);
        let resets = &inner.resets;
        reported.regions.retain(|region| {
            !resets.iter().any(|(number, scope)| *number > last_reset && scope.holds(&region.key))
        });
        let known = inner.homes.entry(home.clone()).or_insert_with(|| Known {
            state: GateState { engine: home.engine.clone(), regions: Vec::new() },
            versions: HashMap::new(),
        });
        let before: Vec<Option<RegionState>> =
            reported.regions.iter().map(|region| find(&known.state, &region.key).cloned()).collect();
        if known.state.merge(&reported).is_err() {
            return;
        }
        let changed: Vec<RegionKey> = reported
            .regions
            .into_iter()
            .zip(before)
            .filter(|(region, before)| is_news(before.as_ref(), find(&known.state, &region.key)))
            .map(|(region, _)| region.key)
            .collect();
        known.forget_the_oldest();
        if !changed.is_empty() {
            let next = *self.version.borrow() + 1;
            known.versions.extend(changed.into_iter().map(|key| (key, next)));
            self.version.send_replace(next);
        }
    }

    /// Forgets a workload everywhere; the number of regions that something was known of. `now_ms` since 1970.
    pub fn reset(&self, scope: Scope, now_ms: u64) -> usize {
        let mut inner = self.inner();
        let next = *self.version.borrow() + 1;
        let mut forgotten = 0;
        for known in inner.homes.values_mut() {
            for region in known.state.regions.iter_mut().filter(|region| scope.holds(&region.key)) {
                forget(region);
                known.versions.insert(region.key.clone(), next);
                forgotten += 1;
            }
        }
        // Numbers are times, so that they grow even if the state directory was lost.
        let number = inner.resets.last().map_or(0, |(number, _)| number + 1).max(now_ms);
        inner.resets.retain(|(_, old)| *old != scope);
        inner.resets.push((number, scope));
        if inner.resets.len() > MOST_RESETS {
            inner.resets.remove(0);
        }
        self.version.send_replace(next);
        forgotten
    }

    /// Decides, or with `None` doesn't any more.
    ///
    /// # Errors
    /// [`GateError::TooManyLocks`].
    pub fn lock(&self, scope: Scope, arm: Option<Arm>) -> Result<(), GateError> {
        let mut inner = self.inner();
        let all_rows = scope.bucket.is_none();
        // What is said of all rows replaces what was said of some.
        inner.locks.retain(|(old, _)| *old != scope && !(all_rows && old.workload == scope.workload));
        if let Some(arm) = arm {
            if inner.locks.len() >= MAX_GATE_LOCKS {
                return Err(GateError::TooManyLocks);
            }
            inner.locks.push((scope, arm));
        }
        inner.locks_version += 1;
        self.version.send_modify(|version| *version += 1);
        Ok(())
    }

    /// What a client on `home` doesn't know yet.
    pub fn since(&self, told: &mut Told, home: Option<&Home>) -> News {
        let inner = self.inner();
        let version = *self.version.borrow();
        let known = home.and_then(|home| Some((home, inner.homes.get(home)?)));
        let gates = known.map(|(home, known)| {
            let new = known.state.regions.iter().filter(|region| known.version(&region.key) > told.version);
            gate_state(&home.chip, &home.engine, new)
        });
        let locks = (told.locks_version != Some(inner.locks_version)).then(|| inner.wire_locks());
        let resets: Vec<v1::GateReset> =
            inner.resets.iter().filter(|(number, _)| *number > told.last_reset).map(wire_reset).collect();
        let last_reset = resets.last().map_or(told.last_reset, |reset| reset.number);
        *told = Told { version, locks_version: Some(inner.locks_version), last_reset };
        News { gates: gates.filter(|state| !state.regions.is_empty()).into_iter().collect(), locks, resets }
    }

    /// Everything, for the file and for people; only of `workload` if that isn't empty.
    pub fn whole(&self, workload: &str) -> News {
        let inner = self.inner();
        let wanted = |name: &str| workload.is_empty() || workload == name;
        let gates = inner.homes.iter().map(|(home, known)| {
            let regions = known.state.regions.iter().filter(|region| wanted(&region.key.workload));
            gate_state(&home.chip, &home.engine, regions)
        });
        let mut locks = inner.wire_locks();
        locks.locks.retain(|lock| wanted(&lock.workload));
        News {
            gates: gates.filter(|state| !state.regions.is_empty()).collect(),
            locks: Some(locks),
            resets: inner.resets.iter().map(wire_reset).collect(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock panics")
    }
}

impl Inner {
    fn wire_locks(&self) -> v1::GateLocks {
        let lock = |(scope, arm): &(Scope, Arm)| v1::GateLock {
            workload: scope.workload.clone(),
            bucket: scope.wire_bucket(),
            arm: v1::Arm::from(*arm).into(),
        };
        v1::GateLocks { locks: self.locks.iter().map(lock).collect() }
    }
}

impl Known {
    fn version(&self, key: &RegionKey) -> u64 {
        // What was restored is as old as the daemon.
        self.versions.get(key).copied().unwrap_or(1)
    }

    fn forget_the_oldest(&mut self) {
        let regions = &mut self.state.regions;
        while regions.len() > MAX_GATE_REGIONS {
            let oldest = (0..regions.len()).min_by(|a, b| age(&regions[*a]).total_cmp(&age(&regions[*b])));
            let Some(oldest) = oldest else { return };
            self.versions.remove(&regions.remove(oldest).key);
        }
    }
}

fn age(region: &RegionState) -> f64 {
    region.arms.iter().map(|arm| arm.updated_at_ms).fold(f64::NEG_INFINITY, f64::max)
}

fn find<'a>(state: &'a GateState, key: &RegionKey) -> Option<&'a RegionState> {
    let at = state.regions.binary_search_by(|region| region.key.cmp(key)).ok()?;
    Some(&state.regions[at])
}

/// Whether a change matters to another process' decisions.
fn is_news(before: Option<&RegionState>, after: Option<&RegionState>) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return after.is_some() };
    let arm = |(before, after): (&ArmState, &ArmState)| {
        let level = match (before.level, after.level) {
            (Some(before), Some(after)) => (before.value - after.value).abs() > WORTH_TELLING,
            (before, after) => before.is_some() != after.is_some(),
        };
        level
            || (before.epoch, before.explored, before.failures)
                != (after.epoch, after.explored, after.failures)
    };
    before.standing != after.standing || before.arms.iter().zip(&after.arms).any(arm)
}

/// What is left of a region that is forgotten: nothing, but later than everything known, and what exploring it cost.
fn forget(region: &mut RegionState) {
    for arm in &mut region.arms {
        let (epoch, explored) = (arm.epoch.saturating_add(1), arm.explored);
        *arm = ArmState { epoch, explored, ..ArmState::default() };
    }
    region.standing = Standing { arm: Arm::Eager, changes: 0 };
}

fn scope(workload: &str, number: Option<u32>) -> Option<Scope> {
    let bucket = match number {
        None => None,
        Some(number) => Some(bucket(number)?),
    };
    Some(Scope { bucket, ..Scope::new(workload.to_owned(), None).ok()? })
}

fn wire_reset((number, scope): &(u64, Scope)) -> v1::GateReset {
    v1::GateReset { number: *number, workload: scope.workload.clone(), bucket: scope.wire_bucket() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_calibrations::gate::Level;

    fn home() -> Home {
        Home { chip: "a chip".to_owned(), engine: "an engine".to_owned() }
    }

    fn region(rows: u32, observations: u64, value: f64, changes: u32) -> RegionState {
        let level = Some(Level { value, deviation: 0.015, count: 16 });
        let arm = ArmState { observations, explored: 3, level, ..ArmState::default() };
        RegionState {
            key: RegionKey {
                workload: "w".to_owned(),
                bucket: Bucket::of(rows),
                conditions: Default::default(),
            },
            arms: [arm; 3],
            standing: Standing { arm: Arm::Split, changes },
        }
    }

    fn report(regions: &[RegionState], last_reset: u64) -> v1::GateReport {
        let state = Some(gate_state("", "an engine", regions));
        v1::GateReport { state, last_reset, ..Default::default() }
    }

    #[test]
    fn only_what_matters_is_told_and_only_once() {
        let (gates, mut told) = (Gates::default(), Told::default());
        assert_eq!(gates.since(&mut told, Some(&home())).gates, []);
        gates.report(1, Some(&home()), &report(&[region(512, 5, -4.0, 1)], 0));
        let news = gates.since(&mut told, Some(&home()));
        assert_eq!((news.gates[0].regions.len(), news.locks), (1, None));
        gates.report(1, Some(&home()), &report(&[region(512, 6, -4.005, 1)], 0));
        assert!(gates.since(&mut told, Some(&home())).is_empty());
        gates.report(1, Some(&home()), &report(&[region(512, 7, -4.1, 1)], 0));
        assert!(!gates.since(&mut told, Some(&home())).is_empty());
        // Another engine's is not taken.
        gates.report(
            1,
            Some(&Home { engine: "other".to_owned(), ..home() }),
            &report(&[region(64, 1, 0.0, 0)], 0),
        );
        assert_eq!(gates.whole("").gates.len(), 1);
    }

    #[test]
    fn a_reset_outlives_reports_that_were_under_way() {
        let gates = Gates::default();
        gates.report(1, Some(&home()), &report(&[region(512, 5, -4.0, 3), region(64, 5, -4.0, 3)], 0));
        let mut told = Told::default();
        gates.since(&mut told, Some(&home()));
        assert_eq!(gates.reset(Scope::new("w".to_owned(), Some(512)).unwrap(), 1000), 1);
        let news = gates.since(&mut told, Some(&home()));
        assert_eq!((news.resets.len(), news.resets[0].number), (1, 1000));
        gates.report(1, Some(&home()), &report(&[region(512, 6, -4.0, 3)], 0));
        let standing = |at: usize| gates.whole("").gates[0].regions[at].changes;
        assert_eq!((standing(0), standing(1)), (3, 0));
        gates.report(1, Some(&home()), &report(&[region(512, 6, -4.0, 4)], 1000));
        assert_eq!(standing(1), 4);
    }

    #[test]
    fn one_client_at_a_time_explores() {
        let gates = Gates::default();
        let wants = |left: f64, charged: f64| v1::GateReport {
            wants_lease: true,
            lease_left_ms: left,
            charged_ms: charged,
            ..Default::default()
        };
        assert_eq!(gates.report(1, None, &wants(0.0, 0.0)), Some(STARTER_MS));
        assert_eq!(gates.report(2, None, &wants(0.0, 0.0)), None);
        // It goes on with what it has; overdrawn, it gets nothing until somebody worked.
        assert_eq!(gates.report(1, None, &wants(60.0, 40.0)), None);
        assert_eq!(gates.report(1, None, &wants(-1.0, 61.0)), None);
        assert_eq!(gates.holder(), None);
        let work = v1::GateReport { time_ms: 1e4, ..wants(0.0, 0.0) };
        let lease = gates.report(2, None, &work).unwrap();
        assert!((lease - 99.0).abs() < 1e-9, "{lease}");
        gates.leave(2);
        assert_eq!(gates.holder(), None);
        gates.report(3, None, &v1::GateReport { time_ms: f64::INFINITY, ..Default::default() });
        assert!(gates.report(3, None, &wants(0.0, 0.0)).is_some_and(|lease| lease < 100.0));
    }

    #[test]
    fn a_restart_is_no_new_budget() {
        let wants = v1::GateReport { wants_lease: true, ..Default::default() };
        let gates = Gates::default();
        let news = gates.version();
        assert_eq!(gates.report(1, None, &wants), Some(STARTER_MS));
        assert!(news.has_changed().unwrap(), "what is leased is written down");
        let after = |exploration_available_ms| {
            let restored = Gates::default();
            restored.restore(&v1::Snapshot { exploration_available_ms, ..Default::default() });
            restored
        };
        let restored = after(Some(gates.exploration_available_ms()));
        assert_eq!(restored.report(2, None, &wants), None);
        let work = v1::GateReport { time_ms: 1e4, ..wants.clone() };
        assert!(restored.report(2, None, &work).is_some_and(|lease| (lease - 100.0).abs() < 1e-9));
        // A file of an older daemon, and a damaged one.
        assert_eq!(after(None).report(2, None, &wants), Some(STARTER_MS));
        assert_eq!(after(Some(f64::NAN)).report(2, None, &wants), Some(STARTER_MS));
        assert_eq!(after(Some(1e300)).exploration_available_ms(), MOST_MS);
        // A report that can't be is no end of exploring, nor the end of its limit.
        let faulty = after(Some(0.0));
        faulty.report(3, None, &v1::GateReport { charged_ms: 1e300, ..Default::default() });
        assert_eq!(faulty.exploration_available_ms(), -MOST_MS);
        faulty.report(3, None, &v1::GateReport { time_ms: 1e300, ..Default::default() });
        assert!(faulty.exploration_available_ms() <= EPSILON * LONGEST_REPORT_MS);
    }

    #[test]
    fn nobody_explores_while_it_cant_be_written_down() {
        let wants = v1::GateReport { wants_lease: true, lease_left_ms: 60.0, ..Default::default() };
        let gates = Gates::default();
        assert_eq!(gates.report(1, None, &wants), Some(STARTER_MS));
        let mut news = gates.version();
        gates.not_written();
        assert_eq!(gates.holder(), None);
        assert!(news.has_changed().unwrap(), "the holder is told");
        news.mark_unchanged();
        gates.not_written();
        assert_eq!(gates.report(1, None, &wants), None);
        assert!(!news.has_changed().unwrap(), "who asks in vain wakes nobody");
        assert!(!gates.is_written());
        gates.written();
        assert!(gates.is_written() && gates.report(1, None, &wants).is_some());
    }

    #[test]
    fn everything_comes_back_from_a_snapshot() {
        let gates = Gates::default();
        gates.report(1, Some(&home()), &report(&[region(512, 5, -4.0, 1)], 0));
        gates.lock(Scope::new("w".to_owned(), Some(512)).unwrap(), Some(Arm::Eager)).unwrap();
        gates.lock(Scope::new("v".to_owned(), None).unwrap(), Some(Arm::Split)).unwrap();
        gates.reset(Scope::new("v".to_owned(), None).unwrap(), 7);
        let whole = gates.whole("");
        let snapshot = v1::Snapshot {
            gates: whole.gates.clone(),
            gate_locks: whole.locks.clone(),
            gate_resets: whole.resets.clone(),
            ..Default::default()
        };
        let restored = Gates::default();
        assert_eq!(restored.restore(&snapshot), 1);
        assert_eq!(restored.whole(""), whole);
        assert_eq!(restored.since(&mut Told::default(), Some(&home())).gates, whole.gates);
        gates.lock(Scope::new("w".to_owned(), None).unwrap(), None).unwrap();
        assert_eq!(gates.whole("").locks.unwrap().locks.len(), 1);
        assert!(Scope::new(String::new(), None).is_err());
    }

    #[test]
    fn the_oldest_regions_go_first() {
        let mut known = Known::default();
        for number in 0..=MAX_GATE_REGIONS {
            let mut one = region(512, 1, 0.0, 0);
            one.key.workload = format!("{number:05}");
            one.arms[0].updated_at_ms = if number == 3 { -1.0 } else { 1.0 };
            known.state.regions.push(one);
        }
        known.forget_the_oldest();
        assert_eq!(known.state.regions.len(), MAX_GATE_REGIONS);
        assert!(known.state.regions.iter().all(|region| region.key.workload != "00003"));
    }
}
