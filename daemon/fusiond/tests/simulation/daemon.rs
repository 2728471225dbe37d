//! The daemon in virtual time: its real planner, canary, table, knowledge and gates, driven as `planner` says that it is to be driven.

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
use fusion_calibrations::shape::{Layer, Shape, WeightFormat};
use fusion_proto::v1;
use fusion_proto::v1::attach_reply::Message;
use fusiond::clients::Introduction;
use fusiond::clocks;
use fusiond::gates::{Gates, Home, News, Told};
use fusiond::knowledge::{Knowledge, Running};
use fusiond::planner::canary::{Pace, References};
use fusiond::planner::{
    ClientActivity, Decision, Inputs, Interest, Moment, Planner, Policy, Want, WorkerState,
};
use fusiond::recalibration::{Recent, Served, client_shapes, kept_text};
use fusiond::table::{self, Identity, Table};

use crate::client::{CHUNK, Client};
use crate::disk::Disk;
use crate::world::World;

/// A model that is configured, but that nobody runs.
const CONFIGURED: &str = "llama-3.2-1b";

/// An attached client, and what it was told.
struct Attached {
    introduction: Introduction,
    layers: Vec<v1::LayerKnowledge>,
    gates: Told,
}

/// What a client reported of its gates.
pub struct Reported {
    /// Time of its calls since the last report, in ms.
    pub time_ms: f64,
    /// What exploring was charged, in ms.
    pub charged_ms: f64,
    /// What exploring may cost from now on, the lease that the client got included, in ms.
    pub may_cost_ms: f64,
}

/// A running daemon.
pub struct Daemon {
    /// Decides.
    pub planner: Planner,
    /// What is served.
    pub table: Arc<Table>,
    /// Who measures.
    pub identity: Identity,
    /// What it believes of the machine: what the sensors say, corrected by the canary.
    pub conditions: Conditions,
    knowledge: Knowledge,
    gates: Gates,
    references: References,
    /// What the last canary said, and when by the monotonic clock.
    pace: Option<(Pace, Duration)>,
    last_look: (Moment, Duration),
    attached: BTreeMap<usize, Attached>,
    recent: Recent,
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
        let (conditions, kept) = (world.conditions(), disk.kept());
        Self {
            planner: Planner::new(policy, kept.planner, world.wall(), conditions),
            knowledge: Knowledge::new(Arc::clone(&table)),
            identity: Identity {
                chip: world.chip.clone(),
                engine: world.engine(),
                units: "a machine model".to_owned(),
            },
            table,
            conditions,
            gates,
            references: disk.references(),
            pace: None,
            last_look: (world.wall(), world.monotonic()),
            attached: BTreeMap::new(),
            recent: kept.recent,
            activity: ClientActivity::Idle { since: None },
            wants: None,
        }
    }

    /// Reads clocks and sensors; whether there is news for the planner.
    pub fn look(&mut self, world: &World) -> bool {
        let look = (world.wall(), world.monotonic());
        let wall = (look.0 >= self.last_look.0).then(|| look.0.since(self.last_look.0));
        let jumped = clocks::part(look.1.saturating_sub(self.last_look.1), wall);
        self.last_look = look;
        if jumped {
            self.planner.clock_jumped(look.0);
        }
        let conditions = self.believed(world);
        self.planner.see(look.0, conditions);
        let changed = std::mem::replace(&mut self.conditions, conditions) != conditions;
        if changed {
            self.wants = None;
        }
        jumped || changed
    }

    /// What is believed of the machine now.
    pub fn believed(&self, world: &World) -> Conditions {
        match self.pace {
            Some((pace, at)) => pace.corrects_after(world.monotonic() - at, world.conditions()),
            None => world.conditions(),
        }
    }

    /// A canary's calls.
    pub fn hear(&mut self, calls_ms: &[f64], world: &World, disk: &mut Disk) {
        let engine = self.identity.engine.key();
        if let Some(pace) = self.references.judge(&engine, calls_ms) {
            self.pace = Some((pace, world.monotonic()));
            disk.keep_references(&self.references);
        }
    }

    /// The products run with another engine now.
    pub fn engine_changed(&mut self, engine: Engine) {
        self.identity.engine = engine;
        self.planner.engine_changed();
        self.wants = None;
    }

    /// A client attaches: it is told everything.
    pub fn attach(&mut self, number: usize, client: &Client) {
        let (introduction, mut told) = (client.introduction.clone(), Told::default());
        let layers = self.knowledge_of(client);
        let News { gates, locks, resets } = self.gates.since(&mut told, Some(&self.home(client)));
        let snapshot = v1::Snapshot {
            chip: Some((&self.identity.chip).into()),
            engine: Some((&self.identity.engine).into()),
            conditions: Some(self.conditions.into()),
            row_rule: Some((&self.table.row_rule(&self.identity.chip)).into()),
            layers: layers.clone(),
            gates,
            gate_locks: locks,
            gate_resets: resets,
            ..Default::default()
        };
        client.copy.take(&reply(Message::Snapshot(snapshot)));
        self.attached.insert(number, Attached { introduction, layers, gates: told });
        self.wants = None;
    }

    /// A client leaves.
    pub fn detach(&mut self, number: usize) {
        self.attached.remove(&number);
        self.gates.leave(number as u64);
        self.wants = None;
    }

    /// A client turned busy or idle.
    pub fn turn(&mut self, activity: ClientActivity) {
        self.activity = activity;
    }

    /// Tells a client what changed.
    pub fn inform(&mut self, number: usize, client: &Client) {
        let (layers, home) = (self.knowledge_of(client), self.home(client));
        let Some(attached) = self.attached.get_mut(&number) else { return };
        let before = std::mem::replace(&mut attached.layers, layers);
        let changed = attached.layers.iter().zip(before).filter(|(now, before)| *now != before);
        let changed: Vec<v1::LayerKnowledge> = changed.map(|(now, _)| now.clone()).collect();
        let News { gates, locks, resets } = self.gates.since(&mut attached.gates, Some(&home));
        let delta = v1::Delta {
            conditions: Some(self.conditions.into()),
            layers: changed,
            gates,
            gate_locks: locks,
            gate_resets: resets,
            ..Default::default()
        };
        client.copy.take(&reply(Message::Delta(delta)));
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

    /// Who holds the lease to explore.
    pub fn explorer(&self) -> Option<usize> {
        self.gates.holder().map(|number| number as usize)
    }

    /// A client's gates report; it may get a lease.
    pub fn report(&mut self, number: usize, client: &mut Client, disk: &mut Disk) -> Option<Reported> {
        let report = client.copy.report()?;
        let mut leased = self.gates.report(number as u64, Some(&self.home(client)), &report);
        let whole = self.gates.whole("");
        let written = disk.keep_gates(v1::Snapshot {
            gates: whole.gates,
            gate_locks: whole.locks,
            gate_resets: whole.resets,
            exploration_available_ms: Some(self.may_explore_ms()),
            ..Default::default()
        });
        if written {
            self.gates.written();
        } else {
            self.gates.not_written();
            leased = None;
        }
        if let Some(ms) = leased {
            lease(client, ms);
        }
        Some(Reported {
            time_ms: report.time_ms,
            charged_ms: report.charged_ms,
            may_cost_ms: self.may_explore_ms() + leased.unwrap_or_default(),
        })
    }

    /// What exploring may still cost, without what is leased, in ms.
    pub fn may_explore_ms(&self) -> f64 {
        self.gates.exploration_available_ms()
    }

    /// What to do now.
    pub fn decide(&mut self, world: &World, disk: &mut Disk) -> Decision {
        let now = world.wall();
        let mut news = false;
        for attached in self.attached.values() {
            news |= self.recent.see(&attached.introduction, now);
        }
        if news {
            self.wants = None;
            disk.keep(self.kept(now));
        }
        let wants = match self.wants.take() {
            Some(wants) => wants,
            None => self.wants(now),
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

    /// The text of its file, between two jobs.
    pub fn kept(&self, now: Moment) -> String {
        kept_text(&self.planner.state(now), &self.recent).unwrap()
    }

    /// The text of its file while a job runs.
    pub fn kept_during(&self, now: Moment, job: &fusiond::planner::Job) -> String {
        kept_text(&self.planner.state_during(now, job), &self.recent).unwrap()
    }

    /// What is wanted now.
    pub fn wants(&mut self, now: Moment) -> Vec<Want> {
        let configured = models::find(CONFIGURED).unwrap().layers(WeightFormat::F16).unwrap();
        let configured = configured.iter().map(|layer| layer.layer.with_rows(CHUNK).unwrap());
        let recent = self.recent.shapes(now);
        let attached = self.attached.values().flat_map(|attached| client_shapes(&attached.introduction));
        let of = |interest| move |shape: Shape| (shape, interest);
        let wanted: Vec<(Shape, Interest)> = attached
            .map(of(Interest::Attached))
            .chain(recent.into_iter().map(of(Interest::Recent)))
            .chain(configured.map(of(Interest::Configured)))
            .collect();
        let (records, rule) =
            (self.table.of_chip(&self.identity.chip), self.table.row_rule(&self.identity.chip));
        let served =
            Served { identity: &self.identity, records: &records, rule: &rule, conditions: self.conditions };
        served.wants(wanted)
    }

    /// A record was stored: it is served from now on.
    pub fn committed(&mut self, record: &Record, now: Moment) {
        let before = self.served_lines(record.estimate.shape);
        self.table.insert(record.clone());
        self.knowledge.committed(record);
        self.planner.measured(now, &record.estimate, before.as_ref());
        self.wants = None;
    }

    fn served_lines(&self, shape: Shape) -> Option<Lines> {
        let (records, rule) =
            (self.table.of_chip(&self.identity.chip), self.table.row_rule(&self.identity.chip));
        let Identity { chip, engine, .. } = &self.identity;
        table::answer(&records, &Query { shape, chip, engine, conditions: self.conditions }, &rule).lines
    }

    fn knowledge_of(&self, client: &Client) -> Vec<v1::LayerKnowledge> {
        self.knowledge.of(self.running(&client.engine), &client.introduction.layers, CHUNK)
    }

    fn home(&self, client: &Client) -> Home {
        Home::new(&self.identity.chip, &client.engine)
    }

    fn running<'a>(&'a self, engine: &'a Engine) -> Running<'a> {
        Running { chip: &self.identity.chip, engine, conditions: self.conditions }
    }
}

/// A client is told of its lease; 0 if another one has it now.
pub fn lease(client: &Client, ms: f64) {
    let gate_lease = Some(v1::GateLease { ms });
    client.copy.take(&reply(Message::Delta(v1::Delta { gate_lease, ..Default::default() })));
}

fn reply(message: Message) -> v1::AttachReply {
    v1::AttachReply { message: Some(message) }
}
