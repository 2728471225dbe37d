//! An inference process: it runs blocks of a model, as the real gate and the served lines say, and reports what it sees.

use fusion_calibrations::chip::Chip;
use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::gate::{
    Arm, ArmSet, Call, Gate, GateOptions, GateState, LayerPart, Lease, Prediction, Surroundings, WorkloadId,
};
use fusion_calibrations::lines::Lines;
use fusion_calibrations::live::Observation;
use fusion_calibrations::lookup::predicted_rows;
use fusion_calibrations::models;
use fusion_calibrations::rows::RowRule;
use fusion_calibrations::sample::Unit;
use fusion_calibrations::search::Ask;
use fusion_calibrations::shape::{Layer, Shape, WeightFormat};
use fusion_proto::{gate_state, v1};

use crate::world::World;

/// The models that clients run.
pub const MODELS: [&str; 2] = ["llama-3.1-8b", "qwen2.5-7b"];
/// A chunk of MLX-LM's prefill.
pub const CHUNK: u32 = 2048;

/// The distinct layers of a block, and how often each occurs.
pub fn layers(model: &str) -> Vec<(Layer, u32)> {
    let layers = models::find(model).unwrap().layers(WeightFormat::F16).unwrap();
    layers.iter().map(|layer| (layer.layer, layer.per_block() as u32)).collect()
}

/// What the daemon tells a client.
pub struct News {
    /// What is known of its layers, in its order.
    pub layers: Vec<v1::LayerKnowledge>,
    /// How rows are shared.
    pub rule: RowRule,
    /// The state of the machine.
    pub conditions: Conditions,
}

/// What one call showed.
pub struct Outcome {
    /// How it was executed.
    pub arm: Arm,
    /// How much longer the served rows take than the best, in truth, as a share.
    pub regret: f64,
    /// Time of the call, in ms.
    pub ms: f64,
    /// What stock would have taken, in truth and without noise, in ms.
    pub stock_ms: f64,
    /// What it reports: one product of each layer that was split.
    pub observations: Vec<(Layer, Observation)>,
    pub note: String,
}

/// A running process.
pub struct Client {
    /// Its number.
    pub pid: u32,
    /// Its layers, and how often a block runs each.
    pub parts: Vec<(Layer, u32)>,
    /// The engine it started with.
    pub engine: Engine,
    gate: Gate,
    workload: WorkloadId,
    news: Option<News>,
    /// Split calls so far: they take turns in which unit is waited for first.
    turn: u32,
    last_split: Option<bool>,
    reported: (f64, f64),
}

impl Client {
    /// A process that just started.
    pub fn new(number: usize, chip: &Chip, engine: Engine) -> Self {
        let mut gate = Gate::new(GateOptions::new(ArmSet::mlx_lm(), chip.cooling), engine.key());
        let workload = gate.workload(MODELS[number]);
        Self {
            pid: 4711 + number as u32,
            parts: layers(MODELS[number]),
            engine,
            gate,
            workload,
            news: None,
            turn: 0,
            last_split: None,
            reported: (0.0, 0.0),
        }
    }

    /// Takes in what the daemon tells.
    pub fn learn(&mut self, news: News) {
        let conditions = news.conditions;
        self.news = Some(news);
        self.gate.surround(Surroundings { conditions, ..Surroundings::default() });
        let prediction = self.predict(CHUNK);
        self.gate.predict(self.workload, CHUNK, prediction);
    }

    /// Takes in what all processes' gates know.
    pub fn learn_gates(&mut self, state: &GateState) {
        self.gate.import(state);
    }

    /// Takes a lease.
    pub fn grant(&mut self, ms: f64) {
        self.gate.grant(Lease { ms });
    }

    /// It begins to work after a rest.
    pub fn wake(&mut self) {
        self.last_split = None;
    }

    /// What its gate tells the daemon.
    pub fn report(&mut self) -> v1::GateReport {
        let ledger = self.gate.ledger();
        let total = (ledger.time_ms(), ledger.charged_ms() + ledger.free_ms());
        let (time_ms, charged_ms) = (total.0 - self.reported.0, (total.1 - self.reported.1).max(0.0));
        self.reported = (total.0, total.1.max(self.reported.1));
        let lease_left_ms = ledger.lease_ms();
        let state = self.gate.export();
        v1::GateReport {
            state: Some(gate_state("", &state.engine, &state.regions)),
            time_ms,
            charged_ms,
            wants_lease: lease_left_ms <= 0.0,
            lease_left_ms,
            ..Default::default()
        }
    }

    /// The rows that are served for a layer: what `fusion-client` answers with the same knowledge.
    fn served_rows(&self, place: usize, rows: u32) -> u32 {
        let Some(news) = &self.news else { return 0 };
        let Some(knowledge) = news.layers.get(place) else { return 0 };
        let at = |measured: &&v1::MeasuredRows| measured.rows == rows;
        let above = |measured: &&v1::MeasuredRows| measured.rows > rows;
        if let Some(measured) = knowledge.measured.iter().find(at) {
            return measured.secondary_rows;
        }
        let next = knowledge.measured.iter().filter(above).min_by_key(|measured| measured.rows);
        match (&knowledge.lines, next) {
            (_, Some(next)) if next.secondary_rows == 0 => 0,
            (Some(lines), _) => predicted_rows(self.shape(place, rows), &Lines::from(lines), &news.rule),
            (None, _) => 0,
        }
    }

    fn shape(&self, place: usize, rows: u32) -> Shape {
        self.parts[place].0.with_rows(rows).unwrap()
    }

    fn predict(&self, rows: u32) -> Option<Prediction> {
        let news = self.news.as_ref()?;
        let fresh = news.layers.iter().all(|layer| layer.stale_reason.is_empty());
        let part = |(place, (_, times)): (usize, &(Layer, u32))| {
            let lines = Lines::from(news.layers[place].lines.as_ref()?);
            Some(LayerPart { lines, rows, secondary_rows: self.served_rows(place, rows), times: *times })
        };
        let parts: Vec<LayerPart> = self.parts.iter().enumerate().filter_map(part).collect();
        Prediction::of_region(&parts, 0.0, fresh)
    }

    /// Runs a block over `rows` rows.
    pub fn call(&mut self, world: &mut World, rows: u32) -> Outcome {
        let served: Vec<u32> = (0..self.parts.len()).map(|place| self.served_rows(place, rows)).collect();
        let (regret, stock_ms) = self.judge(world, rows, &served);
        if rows != CHUNK {
            let prediction = self.predict(rows);
            self.gate.predict(self.workload, rows, prediction);
        }
        let decision = self.gate.decide(self.workload, rows);
        let mut note = String::new();
        if std::env::var_os("TRACE").is_some() {
            for (place, served) in served.iter().enumerate() {
                let truth = world.machine.lines(self.shape(place, rows)).unwrap();
                let told = self.news.as_ref().and_then(|news| news.layers[place].lines.as_ref().map(Lines::from));
                if let Some(told) = told {
                    note += &format!(" [{served} best {:.0} told/true g {:+.3} c {:+.3}", f64::from(rows) * truth.balanced_ratio().get(), (told.primary_ms_per_row / truth.primary_ms_per_row).ln(), (told.secondary_ms_per_row / truth.secondary_ms_per_row).ln());
                }
            }
        }
        let began_ms = world.now_ms();
        let mut observations = Vec::new();
        for (place, secondary_rows) in served.into_iter().enumerate() {
            let secondary_rows = if decision.arm == Arm::Split { secondary_rows } else { 0 };
            let (layer, times) = self.parts[place];
            let mut sampled = false;
            for time in 0..times {
                let truth = world.machine.lines(layer.with_rows(rows).unwrap()).unwrap();
                let seen = self.product(world, layer, rows, secondary_rows);
                if let (0, Some(seen), true) = (time, &seen, std::env::var_os("TRACE").is_some()) {
                    let exact = |unit, n: u32, t: f64| seen.finish_times.exact_ms(unit).map(|ms| (ms / f64::from(n) / t).ln());
                    note += &format!(" <{:?} {:+.3?} {:+.3?}>", self.turn % 2, exact(Unit::Primary, rows - secondary_rows, truth.primary_ms_per_row), exact(Unit::Secondary, secondary_rows, truth.secondary_ms_per_row));
                }
                // The first product after a change of arm is not trusted.
                let splits = secondary_rows > 0;
                let trusted = self.last_split.replace(splits) == Some(splits);
                if trusted && !std::mem::replace(&mut sampled, trusted) {
                    observations.extend(seen.map(|seen| (layer, seen)));
                }
            }
        }
        self.turn = self.turn.wrapping_add(u32::from(decision.arm == Arm::Split));
        let ms = world.now_ms() - began_ms;
        let ended_at_ms = world.wall().unix_ms() as f64;
        self.gate.record(self.workload, &Call { decision, rows, ms, ended_at_ms, contended: false });
        Outcome { arm: decision.arm, regret, ms, stock_ms, observations, note }
    }

    fn product(
        &self,
        world: &mut World,
        layer: Layer,
        rows: u32,
        secondary_rows: u32,
    ) -> Option<Observation> {
        let shape = layer.with_rows(rows).unwrap();
        let first_waited = if self.turn.is_multiple_of(2) { Unit::Primary } else { Unit::Secondary };
        let ask = match secondary_rows {
            0 => Ask::Stock,
            secondary_rows => Ask::Split { secondary_rows, first_waited },
        };
        let sample = world.machine.call(shape, ask).unwrap();
        let finish_times = sample.finish_times?;
        Some(Observation { rows, secondary_rows, total_ms: sample.total_ms, finish_times })
    }

    /// In truth: what the served rows lose against the best, and what stock takes, in ms.
    fn judge(&self, world: &World, rows: u32, served: &[u32]) -> (f64, f64) {
        let rule = &world.machine.prior().row_rule;
        let (mut taken, mut best, mut stock) = (0.0, 0.0, 0.0);
        for (place, served) in served.iter().enumerate() {
            let (shape, times) = (self.shape(place, rows), f64::from(self.parts[place].1));
            let truth = world.machine.lines(shape).unwrap();
            let expected = |rows: u32| world.machine.expected_ms(shape, rows).unwrap();
            let balance = f64::from(rows) * truth.balanced_ratio().get();
            let optimum = [balance.floor() as u32, balance.ceil() as u32, rule.best_rows(shape, &truth)]
                .into_iter()
                .map(expected)
                .fold(expected(0), f64::min);
            taken += times * expected(*served);
            best += times * optimum;
            stock += times * expected(0);
        }
        (taken / best - 1.0, stock)
    }
}
