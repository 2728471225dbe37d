//! The arena: gates on recorded blocks, in virtual time, from the same heat.
//!
//! A block takes what was recorded for it, arm by arm; heat, first calls and noise are those of the chip's [machine model](crate::machine). The recorded medians
//! were taken in the middle of 60 calls, so the cool block is somewhat faster. Everything printed from here is *modelled*.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::chips;
use crate::machine::Machine;
use crate::sample::Unit;
use crate::search::Ask;
use crate::shape::{Layer, Layout, Shape, WeightFormat};

use super::opponent::PaperGate;
use super::{Arm, ArmSet, Call, Gate, GateOptions, GateState, LayerPart, LeaseBook, LeaseReport, Prediction};

const CELLS: &str = include_str!("../../data/recorded/gate_cells.json");
/// Calls after which the recorded median stands: 10 warm ones and half of 50.
const RECORDED_AFTER: usize = 35;

/// A recorded block of one chip.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// "m4-pro".
    pub chip: String,
    /// "llama" or "gpt2-xl".
    pub model: String,
    /// Rows (tokens).
    pub rows: u32,
    /// Stock, in ms.
    pub eager_ms: f64,
    /// Stock compiled, in ms.
    pub compiled_ms: f64,
    /// Every layer split at its calibrated ratio, in ms.
    pub split_ms: f64,
    /// repository@commit:path.
    pub source: String,
}

#[derive(Deserialize)]
struct File {
    #[allow(dead_code)]
    about: String,
    cells: Vec<Cell>,
}

static PARSED: LazyLock<Vec<Cell>> =
    LazyLock::new(|| serde_json::from_str::<File>(CELLS).map(|file| file.cells).unwrap_or_default());

/// All 40 recorded blocks.
pub fn cells() -> &'static [Cell] {
    &PARSED
}

impl Cell {
    /// The linear layers of the block: inputs, outputs, how often.
    fn layers(&self) -> [(u32, u32, u32); 3] {
        if self.model == "llama" {
            [(4096, 4096, 4), (4096, 14_336, 2), (14_336, 4096, 1)]
        } else {
            [(1600, 1600, 4), (1600, 6400, 1), (6400, 1600, 1)]
        }
    }

    fn shapes(&self) -> impl Iterator<Item = (Shape, u32)> {
        let rows = self.rows;
        self.layers().into_iter().filter_map(move |(inputs, outputs, times)| {
            let layer = Layer::new(inputs, outputs, WeightFormat::F16, Layout::default()).ok()?;
            Some((layer.with_rows(rows).ok()?, times))
        })
    }

    /// What the chip's lines predict for the block, by the row rule. `None` if no layer is worth splitting.
    pub fn prediction(&self) -> Option<Prediction> {
        let prior = chips::find(&self.chip)?;
        let mut parts = Vec::new();
        for (shape, times) in self.shapes() {
            let lines = prior.lines(shape.layer(), None)?;
            let rows = prior.row_rule.best_rows(shape, &lines);
            parts.push(LayerPart { lines, rows: self.rows, secondary_rows: rows, times });
        }
        let linear: f64 =
            parts.iter().map(|part| f64::from(part.times) * part.lines.stock_ms(part.rows)).sum();
        Prediction::of_region(&parts, (self.eager_ms - linear).max(0.0), true)
    }

    /// The gate's options for a client on this chip.
    pub fn options(&self, arms: ArmSet) -> GateOptions {
        let cooling = chips::find(&self.chip)
            .map_or(crate::chip::Cooling::Unknown, |prior| chips::cooling(&prior.model_identifier));
        GateOptions::new(arms, cooling)
    }
}

/// A recorded block on the model of its chip.
#[derive(Debug, Clone)]
pub struct BlockMachine {
    machine: Machine,
    stock: Shape,
    split: Shape,
    secondary_rows: u32,
    scale: [f64; 3],
}

impl BlockMachine {
    /// `cell`, cool. `None` if the chip isn't shipped.
    pub fn new(cell: &Cell, seed: u64) -> Option<Self> {
        let machine = Machine::named(&cell.chip, seed)?;
        let layer = Layer::new(4096, 14_336, WeightFormat::F16, Layout::default()).ok()?;
        let lines = machine.prior().lines(layer, None)?;
        let share = lines.balanced_ratio().get();
        let rows = |ms: f64, per_row: f64| (ms / per_row).round().max(2.0) as u32;
        // One product that takes as long as the block, so that the model's clock and heat run as with the block.
        let stock = layer.with_rows(rows(cell.eager_ms, lines.stock_ms_per_row)).ok()?;
        let split = layer
            .with_rows(rows(cell.split_ms - lines.overhead_ms, lines.primary_ms_per_row * (1.0 - share)))
            .ok()?;
        let wanted = (f64::from(split.rows()) * share) as u32;
        let secondary_rows = machine.prior().row_rule.nearest_allowed(split, wanted).max(1);
        let mut block = Self { machine, stock, split, secondary_rows, scale: [1.0; 3] };
        let recorded = [cell.split_ms, cell.compiled_ms, cell.eager_ms];
        for arm in Arm::ALL {
            block.scale[arm.index()] = recorded[arm.index()] / block.warmed_up_ms(arm)?;
        }
        Some(block)
    }

    /// What the model takes in the middle of a recorded run, before scaling.
    fn warmed_up_ms(&self, arm: Arm) -> Option<f64> {
        let mut quiet = self.clone();
        quiet.machine.set_deviation(0.0);
        for _ in 0..RECORDED_AFTER {
            quiet.call(arm)?;
        }
        quiet.expected_ms(arm)
    }

    /// Time of a call in the present state, without noise, in ms.
    pub fn expected_ms(&self, arm: Arm) -> Option<f64> {
        let (shape, secondary) = self.product(arm);
        Some(self.machine.expected_ms(shape, secondary)? * self.scale[arm.index()])
    }

    fn product(&self, arm: Arm) -> (Shape, u32) {
        if arm.is_stock() { (self.stock, 0) } else { (self.split, self.secondary_rows) }
    }

    /// Makes one call; its time in ms.
    pub fn call(&mut self, arm: Arm) -> Option<f64> {
        let (shape, secondary_rows) = self.product(arm);
        let ask = match secondary_rows {
            0 => Ask::Stock,
            _ => Ask::Split { secondary_rows, first_waited: Unit::Primary },
        };
        Some(self.machine.call(shape, ask)?.total_ms * self.scale[arm.index()])
    }

    /// A call's time, and when it ended, both in ms.
    fn timed_call(&mut self, arm: Arm) -> Option<(f64, f64)> {
        Some((self.call(arm)?, self.now_ms()))
    }

    /// Virtual time, in ms.
    pub fn now_ms(&self) -> f64 {
        self.machine.now_ms()
    }
}

/// Who decides.
#[derive(Debug)]
pub enum Player {
    /// One arm for ever.
    Fixed(Arm),
    /// The paper's gate.
    Paper(PaperGate),
    /// Ours, with a daemon that leases.
    Ours(Box<Ours>),
}

/// Our gate with its daemon's lease book.
#[derive(Debug)]
pub struct Ours {
    /// The gate.
    pub gate: Gate,
    workload: super::WorkloadId,
    rows: u32,
    book: LeaseBook,
    reported: LeaseReport,
}

/// What may be lost to exploration on a machine before any client has worked, in ms.
pub const STARTER_MS: f64 = 5_000.0;
/// Largest lease, in ms.
pub const MOST_MS: f64 = 10_000.0;
/// The one client of the arena.
const CLIENT: u64 = 1;

impl Ours {
    /// A gate that knows at most a prediction and a kept state.
    pub fn new(
        options: GateOptions,
        rows: u32,
        prediction: Option<Prediction>,
        kept: Option<&GateState>,
    ) -> Self {
        let book = LeaseBook::new(options.epsilon, STARTER_MS, MOST_MS);
        let mut gate = Gate::new(options, "modelled");
        let workload = gate.workload("block");
        if let Some(state) = kept {
            gate.import(state);
        }
        gate.predict(workload, rows, prediction);
        Self { gate, workload, rows, book, reported: LeaseReport::default() }
    }

    /// What the gate says of its region.
    pub fn explain(&self) -> Option<super::Explanation> {
        self.gate.explain(self.workload, self.rows)
    }

    /// Makes `calls` calls on a block, from where it stands.
    pub fn play_block(&mut self, block: &mut BlockMachine, calls: u64) -> Played {
        play(calls, || self.play(&mut |arm| block.timed_call(arm)))
    }

    fn play(&mut self, call: &mut impl FnMut(Arm) -> Option<(f64, f64)>) -> Option<(Arm, f64)> {
        if self.gate.ledger().lease_ms() <= 0.0 {
            self.renew();
        }
        let decision = self.gate.decide(self.workload, self.rows);
        let (ms, ended_at_ms) = call(decision.arm)?;
        let call = Call { decision, rows: self.rows, ms, ended_at_ms, contended: false };
        self.gate.record(self.workload, &call);
        Some((decision.arm, ms))
    }

    fn renew(&mut self) {
        let ledger = self.gate.ledger();
        let now =
            LeaseReport { time_ms: ledger.time_ms(), charged_ms: ledger.charged_ms() + ledger.free_ms() };
        self.book.report(
            CLIENT,
            LeaseReport {
                time_ms: now.time_ms - self.reported.time_ms,
                charged_ms: now.charged_ms - self.reported.charged_ms,
            },
        );
        self.reported = now;
        self.book.release(CLIENT);
        if let Some(lease) = self.book.request(CLIENT) {
            self.gate.revoke();
            self.gate.grant(lease);
        }
    }
}

/// What a player did.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Played {
    /// Time of all calls, in ms.
    pub ms: f64,
    /// Calls.
    pub calls: u64,
    /// Calls per arm, by [`Arm::code`].
    pub by_arm: [u64; 3],
}

impl Player {
    /// Makes `calls` calls. `call` executes an arm and says how long it took and when it ended, in ms; `None` ends the game.
    pub fn play(&mut self, calls: u64, mut call: impl FnMut(Arm) -> Option<(f64, f64)>) -> Played {
        play(calls, || match self {
            Self::Fixed(arm) => call(*arm).map(|(ms, _)| (*arm, ms)),
            Self::Paper(gate) => {
                let arm = gate.decide();
                let (ms, _) = call(arm)?;
                gate.record(ms);
                Some((arm, ms))
            }
            Self::Ours(ours) => ours.play(&mut call),
        })
    }

    /// Makes `calls` calls on a block, from where it stands.
    pub fn play_block(&mut self, block: &mut BlockMachine, calls: u64) -> Played {
        self.play(calls, |arm| block.timed_call(arm))
    }
}

/// `calls` turns of a player, each an arm and its time in ms; `None` ends the game.
fn play(calls: u64, mut turn: impl FnMut() -> Option<(Arm, f64)>) -> Played {
    let mut played = Played::default();
    for (arm, ms) in (0..calls).map_while(|_| turn()) {
        played.ms += ms;
        played.calls += 1;
        played.by_arm[arm.index()] += 1;
    }
    played
}
