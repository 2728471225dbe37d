//! The daemon in virtual time: its real planner, table, knowledge and gates, driven as `planner` says that it is to be driven.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::lines::Lines;
use fusion_calibrations::live::Observation;
use fusion_calibrations::lookup::Query;
use fusion_calibrations::models;
use fusion_calibrations::record::Record;
use fusion_calibrations::search::points;
use fusion_calibrations::search::{Known as KnownStart, Start};
use fusion_calibrations::shape::{Layer, Shape, WeightFormat};
use fusion_proto::v1;
use fusiond::gates::{Gates, Home};
use fusiond::knowledge::{Knowledge, Running};
use fusiond::measure::Plan;
use fusiond::planner::{
    ClientActivity, Decision, Inputs, Interest, Job, Known, Moment, Planner, Policy, Want, WorkerState,
    measurable,
};
use fusiond::table::{self, Identity, Table};

use crate::client::{CHUNK, Client, News};
use crate::disk::Disk;
use crate::world::World;

/// A model that is configured, but that nobody runs.
const CONFIGURED: &str = "llama-3.2-1b";
/// Wall clock and monotonic clock may differ by so much between two looks; as in `measure`.
const CLOCK_GAP: Duration = Duration::from_millis(500);
/// For how long a client's layers count as recently used.
const RECENT: Duration = Duration::from_secs(7 * 24 * 3600);

/// A running daemon.
pub struct Daemon {
    /// Decides.
    pub planner: Planner,
    /// What is served.
    pub table: Arc<Table>,
    /// Who measures.
    pub identity: Identity,
    knowledge: Knowledge,
    gates: Gates,
    last_look: (Moment, Duration),
    conditions: Conditions,
    attached: BTreeMap<usize, Vec<Layer>>,
    recent: BTreeMap<usize, (Moment, Vec<Layer>)>,
    activity: ClientActivity,
    /// What is derived from table, conditions and clients, until one of them changes.
    wants: Option<Vec<Want>>,
}

impl Daemon {
    /// A daemon that starts with what the disk holds.
    pub fn start(policy: Policy, disk: &Disk, world: &World) -> Self {
        let table = Arc::new(Table::new(disk.read()));
        let gates = Gates::default();
        if let Some(snapshot) = disk.gates() {
            gates.restore(snapshot);
        }
        let conditions = world.conditions();
        Self {
            planner: Planner::new(policy, disk.planner(), world.wall(), conditions),
            knowledge: Knowledge::new(Arc::clone(&table)),
            identity: Identity {
                chip: world.chip.clone(),
                engine: world.engine(),
                units: "a machine model".to_owned(),
            },
            table,
            gates,
            last_look: (world.wall(), world.monotonic()),
            conditions,
            attached: BTreeMap::new(),
            recent: BTreeMap::new(),
            activity: ClientActivity::Idle { since: None },
            wants: None,
        }
    }

    /// Reads clocks and sensors; whether there is news for the planner.
    pub fn look(&mut self, world: &World) -> bool {
        let look = (world.wall(), world.monotonic());
        let backwards = look.0 < self.last_look.0;
        let gap = look.0.since(self.last_look.0).abs_diff(look.1.saturating_sub(self.last_look.1));
        self.last_look = look;
        let jumped = backwards || gap > CLOCK_GAP;
        if jumped {
            self.planner.clock_jumped(look.0);
        }
        let conditions = world.conditions();
        self.planner.see(look.0, conditions);
        let changed = std::mem::replace(&mut self.conditions, conditions) != conditions;
        if changed {
            self.forget_derived();
        }
        jumped || changed
    }

    /// The products run with another engine now.
    pub fn engine_changed(&mut self, engine: Engine) {
        self.identity.engine = engine;
        self.planner.engine_changed();
        self.forget_derived();
    }

    /// A client attaches.
    pub fn attach(&mut self, number: usize, client: &mut Client, world: &World) {
        let layers = client.parts.iter().map(|(layer, _)| *layer).collect();
        self.attached.insert(number, layers);
        self.forget_derived();
        self.inform(client, world);
        let home = Home::new(&self.identity.chip, &client.engine);
        for state in self.gates.since(&mut fusiond::gates::Told::default(), Some(&home)).gates {
            client.learn_gates(&(&state).into());
        }
    }

    /// A client leaves.
    pub fn detach(&mut self, number: usize, now: Moment) {
        if let Some(layers) = self.attached.remove(&number) {
            self.recent.insert(number, (now, layers));
        }
        self.gates.leave(number as u64);
        self.forget_derived();
    }

    /// A client turned busy or idle.
    pub fn turn(&mut self, activity: ClientActivity) {
        self.activity = activity;
    }

    /// Tells a client what is known.
    pub fn inform(&mut self, client: &mut Client, world: &World) {
        let layers: Vec<Layer> = client.parts.iter().map(|(layer, _)| *layer).collect();
        let running = self.running(&client.engine);
        let knowledge = self.knowledge.of(running, &layers, CHUNK);
        let rule = self.table.row_rule(&self.identity.chip);
        debug_assert_eq!(world.conditions(), self.conditions);
        client.learn(News { layers: knowledge, rule, conditions: self.conditions });
    }

    /// A client's split call; whether the client should be told something.
    pub fn observe(&mut self, client: &Client, layer: Layer, observation: &Observation, now: Moment) -> bool {
        let running = self.running(&client.engine);
        let news = self.knowledge.observe(running, layer, observation);
        if let Some((stored, live)) = self.knowledge.correction(running, layer) {
            self.planner.observed(now, layer, &stored, &live);
        }
        news
    }

    /// A client's gate reports; the lease it gets.
    pub fn report(&mut self, number: usize, client: &mut Client, disk: &mut Disk) {
        let home = Home::new(&self.identity.chip, &client.engine);
        if let Some(ms) = self.gates.report(number as u64, Some(&home), &client.report()) {
            client.grant(ms);
        }
        let whole = self.gates.whole("");
        disk.keep_gates(v1::Snapshot {
            gates: whole.gates,
            gate_locks: whole.locks,
            gate_resets: whole.resets,
            ..Default::default()
        });
    }

    /// What to do now.
    pub fn decide(&mut self, world: &World) -> Decision {
        let now = world.wall();
        let wants = match self.wants.take() {
            Some(wants) => wants,
            None => self.derive_wants(now),
        };
        let decision = self.planner.decide(&Inputs {
            now,
            clients: self.activity,
            load: world.load,
            available_memory_bytes: Some(world.available_memory_bytes),
            lock: world.lock.clone(),
            worker: WorkerState::Free,
            hold: world.hold,
            wants: &wants,
        });
        self.wants = Some(wants);
        decision
    }

    /// What is wanted now.
    pub fn wants(&mut self, now: Moment) -> Vec<Want> {
        self.derive_wants(now)
    }

    /// What is known before `shape` is measured: as the daemon's jobs do it.
    pub fn plan(&self, job: &Job) -> Plan {
        let (shape, conditions) = (job.shape, job.conditions);
        let records = self.table.of_chip(&self.identity.chip);
        let rule = self.table.row_rule(&self.identity.chip);
        let query = Query { shape, chip: &self.identity.chip, engine: &self.identity.engine, conditions };
        let answer = table::answer(&records, &query, &rule);
        let start = match (answer.estimate, answer.lines) {
            (Some(estimate), _) if estimate.shape == shape => Start::Warm(KnownStart::from(estimate)),
            (_, Some(lines)) => Start::Prior(lines),
            _ => Start::Cold,
        };
        let before = self.table.exact(&self.identity, shape, conditions);
        let cliff_evidence =
            before.map(|record| points::cliff_evidence(&record.samples, shape)).unwrap_or_default();
        Plan { shape, start, rule, cliff_evidence, machine_ms: job.allowance_ms }
    }

    /// A record was stored: it is served from now on.
    pub fn committed(&mut self, record: &Record, now: Moment) {
        let before = self.answer(record.estimate.shape).1;
        self.table.insert(record.clone());
        self.knowledge.committed(record);
        self.planner.measured(now, &record.estimate, before.as_ref());
        self.forget_derived();
    }

    fn running<'a>(&'a self, engine: &'a Engine) -> Running<'a> {
        Running { chip: &self.identity.chip, engine, conditions: self.conditions }
    }

    fn forget_derived(&mut self) {
        self.wants = None;
    }

    fn answer(&self, shape: Shape) -> (Known, Option<Lines>) {
        let records = self.table.of_chip(&self.identity.chip);
        let rule = self.table.row_rule(&self.identity.chip);
        let query = Query {
            shape,
            chip: &self.identity.chip,
            engine: &self.identity.engine,
            conditions: self.conditions,
        };
        let answer = table::answer(&records, &query, &rule);
        (Known::of(&answer), answer.lines)
    }

    fn derive_wants(&mut self, now: Moment) -> Vec<Want> {
        let configured = models::find(CONFIGURED).unwrap().layers(WeightFormat::F16).unwrap();
        let mut interests: BTreeMap<Layer, Interest> =
            configured.iter().map(|layer| (layer.layer, Interest::Configured)).collect();
        let mut raise = |layers: &[Layer], interest: Interest| {
            for layer in layers {
                let known = interests.entry(*layer).or_insert(interest);
                *known = interest.max(*known);
            }
        };
        for (left, layers) in self.recent.values() {
            if now.since(*left) < RECENT {
                raise(layers, Interest::Recent);
            }
        }
        self.attached.values().for_each(|layers| raise(layers, Interest::Attached));
        interests
            .into_iter()
            .map(|(layer, interest)| {
                let served = layer.with_rows(CHUNK).unwrap();
                let shape = measurable(served, &self.answer(served).0);
                Want { shape, interest, known: self.answer(shape).0 }
            })
            .collect()
    }
}
