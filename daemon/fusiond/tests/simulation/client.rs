//! An inference process: it runs blocks of a model, as the real client library says, and reports what it sees.

use fusion_calibrations::engine::Engine;
use fusion_calibrations::gate::{Arm, ArmSet};
use fusion_calibrations::live::Observation;
use fusion_calibrations::models;
use fusion_calibrations::sample::Unit;
use fusion_calibrations::search::Ask;
use fusion_calibrations::shape::{Layer, Shape, WeightFormat};
use fusion_client::attach::{LayerHandle, LocalCopy, RegionHandle};
use fusiond::clients::Introduction;

use crate::world::World;

/// The models that clients run.
pub const MODELS: [&str; 2] = ["llama-3.1-8b", "qwen2.5-7b"];
/// A chunk of MLX-LM's prefill.
pub const CHUNK: u32 = 2048;

/// What one call showed.
pub struct Outcome {
    /// How it was executed.
    pub arm: Arm,
    /// Whether that was to learn.
    pub explores: bool,
    /// Rows.
    pub rows: u32,
    /// The secondary unit's rows of each layer, as served.
    pub served: Vec<u32>,
    /// How much longer the served rows take than the best, in truth, as a share.
    pub regret: f64,
    /// Time of the call, in ms.
    pub ms: f64,
    /// What stock would have taken, in truth and without noise, in ms.
    pub stock_ms: f64,
    /// What it reports: one product of each layer that was split.
    pub observations: Vec<(Layer, Observation)>,
}

/// A layer of a block.
struct Part {
    layer: Layer,
    handle: LayerHandle,
    /// How often a block runs it.
    times: u32,
    /// How often it was observed: its units take turns in being waited for first.
    observed: u32,
}

/// A running process.
pub struct Client {
    /// Who it says it is.
    pub introduction: Introduction,
    /// The engine it started with.
    pub engine: Engine,
    /// What it knows.
    pub copy: LocalCopy,
    region: RegionHandle,
    parts: Vec<Part>,
    /// Whether the last product was split; `None` after a rest.
    last_was_split: Option<bool>,
}

impl Client {
    /// A process that just started.
    pub fn new(number: usize, engine: Engine) -> Self {
        let model = models::find(MODELS[number]).unwrap().layers(WeightFormat::F16).unwrap();
        let layers: Vec<Layer> = model.iter().map(|layer| layer.layer).collect();
        let copy = LocalCopy::new(&layers, Some(&engine), None);
        let part = |known: &models::ModelLayer| Part {
            layer: known.layer,
            handle: copy.layer(known.layer).unwrap(),
            times: known.per_block() as u32,
            observed: 0,
        };
        let parts: Vec<Part> = model.iter().map(part).collect();
        let composition: Vec<_> = parts.iter().map(|part| (part.handle, part.times)).collect();
        let region = copy.region(MODELS[number], ArmSet::mlx_lm(), &composition, 0.0);
        let introduction = Introduction {
            pid: 4711 + number as u32,
            name: MODELS[number].to_owned(),
            version: "simulated".to_owned(),
            engine: Some(engine.clone()),
            worker: None,
            layers,
            typical_rows: CHUNK,
        };
        Self { introduction, engine, copy, region, parts, last_was_split: None }
    }

    /// It begins to work after a rest, or rests.
    pub fn turn(&mut self) {
        self.last_was_split = None;
    }

    /// The rows that would be served now for a call of `rows` rows, layer by layer.
    pub fn served(&self, rows: u32) -> Vec<u32> {
        self.parts.iter().map(|part| self.copy.secondary_rows(part.handle, rows)).collect()
    }

    /// Runs a block over `rows` rows.
    pub fn call(&mut self, world: &mut World, rows: u32) -> Outcome {
        let served = self.served(rows);
        let (regret, stock_ms) = self.judge(world, rows, &served);
        let decided = self.region.decide(rows);
        let (arm, explores) = (decided.arm(), decided.explores());
        let began_ms = world.now_ms();
        let mut observations = Vec::new();
        for (place, secondary_rows) in served.iter().enumerate() {
            let secondary_rows = if arm == Arm::Split { *secondary_rows } else { 0 };
            observations.extend(self.products(world, place, rows, secondary_rows));
        }
        let ms = world.now_ms() - began_ms;
        self.region.record(decided, ms, world.wall().unix_ms() as f64, false);
        Outcome { arm, explores, rows, served, regret, ms, stock_ms, observations }
    }

    /// All products of one layer; what one of them showed. The first after a change of arm is not trusted.
    fn products(
        &mut self,
        world: &mut World,
        place: usize,
        rows: u32,
        secondary_rows: u32,
    ) -> Option<(Layer, Observation)> {
        let part = &mut self.parts[place];
        let shape = part.layer.with_rows(rows).unwrap();
        let first_waited = if part.observed.is_multiple_of(2) { Unit::Primary } else { Unit::Secondary };
        let ask = match secondary_rows {
            0 => Ask::Stock,
            secondary_rows => Ask::Split { secondary_rows, first_waited },
        };
        let mut shown = None;
        for _ in 0..part.times {
            let sample = world.machine.call(shape, ask).unwrap();
            let splits = secondary_rows > 0;
            let trusted = self.last_was_split.replace(splits) == Some(splits);
            if let Some(finish_times) = sample.finish_times.filter(|_| trusted) {
                let total_ms = sample.total_ms;
                shown = Some((part.layer, Observation { rows, secondary_rows, total_ms, finish_times }));
            }
        }
        part.observed += u32::from(shown.is_some());
        shown
    }

    /// In truth: what the served rows lose against the best, and what stock takes, in ms.
    pub fn judge(&self, world: &World, rows: u32, served: &[u32]) -> (f64, f64) {
        let rule = &world.machine.prior().row_rule;
        let (mut taken, mut best, mut stock) = (0.0, 0.0, 0.0);
        for (part, served) in self.parts.iter().zip(served) {
            let (shape, times): (Shape, _) = (part.layer.with_rows(rows).unwrap(), f64::from(part.times));
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
