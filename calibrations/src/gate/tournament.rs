//! The tournament: every gate on every recorded block, for as many calls as stock makes in a given time, from the same cool start.
//!
//! *Modelled*, as all of the [arena](super::arena).

use serde::Serialize;

use super::arena::{BlockMachine, Cell, Ours, Player};
use super::opponent::PaperGate;
use super::{Arm, ArmSet, GateState};

/// Gain of the best fixed arm over stock from which on a gate must use it.
pub const CLEAR_GAIN: f64 = 1.15;

/// What is played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// Virtual time that stock works on each block, in minutes.
    pub minutes: f64,
    /// Runs a block.
    pub seeds: u64,
    /// What the client can run.
    pub arms: ArmSet,
}

/// Stock's time over a player's, for the same calls from the same state.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Speed {
    /// Mean over the seeds.
    pub mean: f64,
    /// The worst seed.
    pub worst: f64,
}

/// One value for each gate: ours knowing nothing, knowing the lines' prediction, knowing what an earlier run kept; and the paper's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gates<T> {
    /// Ours, knowing nothing.
    pub cold: T,
    /// Ours, with the prediction of the chip's lines.
    pub predicted: T,
    /// Ours, with that and the state that an earlier run left.
    pub kept: T,
    /// The paper's.
    pub paper: T,
}

impl<T: Copy> Gates<T> {
    /// One for each gate.
    fn each(value: impl Fn(fn(&Gates<Speed>) -> Speed) -> T) -> Self {
        Self {
            cold: value(|gates| gates.cold),
            predicted: value(|gates| gates.predicted),
            kept: value(|gates| gates.kept),
            paper: value(|gates| gates.paper),
        }
    }
}

impl Gates<f64> {
    /// The least of ours.
    pub fn least_of_ours(&self) -> f64 {
        self.cold.min(self.predicted).min(self.kept)
    }
}

/// What became of one block.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellResult {
    /// "m4-pro".
    pub chip: String,
    /// "llama" or "gpt2-xl".
    pub model: String,
    /// Rows (tokens).
    pub rows: u32,
    /// Recorded time of stock over the split's.
    pub recorded_speed_up: f64,
    /// Calls that each player made.
    pub calls: u64,
    /// The fixed arm that was fastest.
    pub best_arm: String,
    /// Its speed.
    pub best_fixed: f64,
    /// The gates' speeds.
    pub speeds: Gates<Speed>,
    /// Calls of the split, of those that our gate with a prediction made, as a share.
    pub split_share: f64,
    /// What exploration was charged, first calls included, as a share of the time, worst seed.
    pub explored_share: f64,
}

/// Over all blocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// The block with the least mean.
    pub worst_against_stock: Gates<f64>,
    /// The single run with the least speed.
    pub worst_seed_against_stock: Gates<f64>,
    /// The mean of all blocks.
    pub mean_against_stock: Gates<f64>,
    /// The least mean over the best fixed arm's speed, where that is [`CLEAR_GAIN`] or more.
    pub worst_against_best_fixed_where_it_gains_clearly: Gates<f64>,
}

impl Summary {
    /// The summary of some blocks.
    pub fn of(cells: &[CellResult]) -> Self {
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
        Self {
            worst_against_stock: Gates::each(|of| least(&mut cells.iter().map(|cell| of(&cell.speeds).mean))),
            worst_seed_against_stock: Gates::each(|of| {
                least(&mut cells.iter().map(|cell| of(&cell.speeds).worst))
            }),
            mean_against_stock: Gates::each(|of| {
                cells.iter().map(|cell| of(&cell.speeds).mean).sum::<f64>() / cells.len() as f64
            }),
            worst_against_best_fixed_where_it_gains_clearly: Gates::each(|of| {
                let clear = cells.iter().filter(|cell| cell.best_fixed >= CLEAR_GAIN);
                least(&mut clear.map(|cell| of(&cell.speeds).mean / cell.best_fixed))
            }),
        }
    }
}

/// All times of one block, in ms: per player, per seed.
#[derive(Default)]
struct Times {
    fixed: [Vec<f64>; 3],
    cold: Vec<f64>,
    predicted: Vec<f64>,
    kept: Vec<f64>,
    paper: Vec<f64>,
    split_share: f64,
    explored_share: f64,
}

/// Plays one block; `None` if its chip isn't shipped.
pub fn play(cell: &Cell, rules: Rules) -> Option<CellResult> {
    let calls = (rules.minutes * 60_000.0 / cell.eager_ms).ceil() as u64;
    let mut times = Times::default();
    for seed in 0..rules.seeds {
        for arm in Arm::ALL.into_iter().filter(|arm| rules.arms.has(*arm)) {
            let mut block = BlockMachine::new(cell, seed)?;
            times.fixed[arm.index()].push(Player::Fixed(arm).play_block(&mut block, calls).ms);
        }
        let mut paper = Player::Paper(PaperGate::new(rules.arms));
        times.paper.push(paper.play_block(&mut BlockMachine::new(cell, seed)?, calls).ms);
        let (cold, state) = play_ours(cell, rules, seed, calls, (None, None), &mut times)?;
        let (kept, _) = play_ours(cell, rules, seed, calls, (cell.prediction(), Some(&state)), &mut times)?;
        let (predicted, _) = play_ours(cell, rules, seed, calls, (cell.prediction(), None), &mut times)?;
        times.cold.push(cold);
        times.kept.push(kept);
        times.predicted.push(predicted);
    }
    Some(result(cell, calls, &times))
}

/// Our gate, with what it knows; its time in ms, and what it knows afterwards.
fn play_ours(
    cell: &Cell,
    rules: Rules,
    seed: u64,
    calls: u64,
    (prediction, kept): (Option<super::Prediction>, Option<&GateState>),
    times: &mut Times,
) -> Option<(f64, GateState)> {
    let mut block = BlockMachine::new(cell, seed)?;
    let mut ours = Ours::new(cell.options(rules.arms), cell.rows, prediction, kept);
    let played = ours.play_block(&mut block, calls);
    let ledger = ours.gate.ledger();
    times.split_share = played.by_arm[Arm::Split.index()] as f64 / played.calls as f64;
    let share = (ledger.charged_ms() + ledger.free_ms()) / ledger.time_ms();
    times.explored_share = times.explored_share.max(share);
    Some((played.ms, ours.gate.export()))
}

fn result(cell: &Cell, calls: u64, times: &Times) -> CellResult {
    let stock = &times.fixed[Arm::Eager.index()];
    let speed = |of: &[f64]| {
        let speeds: Vec<f64> = stock.iter().zip(of).map(|(stock, ms)| stock / ms).collect();
        Speed {
            mean: speeds.iter().sum::<f64>() / speeds.len() as f64,
            worst: speeds.iter().copied().fold(f64::INFINITY, f64::min),
        }
    };
    let fixed = Arm::ALL
        .into_iter()
        .zip(&times.fixed)
        .filter(|(_, ms)| !ms.is_empty())
        .map(|(arm, ms)| (arm, speed(ms).mean));
    let (best_arm, best_fixed) = fixed.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((Arm::Eager, 1.0));
    CellResult {
        chip: cell.chip.clone(),
        model: cell.model.clone(),
        rows: cell.rows,
        recorded_speed_up: cell.eager_ms / cell.split_ms,
        calls,
        best_arm: best_arm.to_string(),
        best_fixed,
        speeds: Gates {
            cold: speed(&times.cold),
            predicted: speed(&times.predicted),
            kept: speed(&times.kept),
            paper: speed(&times.paper),
        },
        split_share: times.split_share,
        explored_share: times.explored_share,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::arena;

    #[test]
    fn never_slower_than_stock_where_the_papers_gate_is_and_used_where_splitting_pays() {
        let rules = Rules { minutes: 20.0, seeds: 1, arms: ArmSet::all() };
        // The heat trap, and a chip whose split pays.
        let wanted =
            |cell: &&Cell| cell.rows == 8192 && cell.chip == "m1" || cell.rows == 4096 && cell.chip == "m4";
        let cells: Vec<CellResult> =
            arena::cells().iter().filter(wanted).map(|cell| play(cell, rules).unwrap()).collect();
        assert_eq!(cells.len(), 4);
        let summary = Summary::of(&cells);
        assert!(summary.worst_against_stock.least_of_ours() >= 0.99, "{summary:?}");
        assert!(summary.worst_against_stock.paper < 0.98, "{summary:?}");
        let used = summary.worst_against_best_fixed_where_it_gains_clearly.least_of_ours();
        assert!((0.97..1.1).contains(&used), "{summary:?}");
    }
}
