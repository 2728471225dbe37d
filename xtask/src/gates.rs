//! `cargo xtask gates`: our gate and the paper's on models of the recorded machines, sustained, from the same cool start.

use anyhow::{Context, Result, bail};
use clap::Args;
use fusion_calibrations::gate::arena::{self, BlockMachine, Cell, Ours, Player};
use fusion_calibrations::gate::opponent::PaperGate;
use fusion_calibrations::gate::{Arm, ArmSet, GateState};
use serde::Serialize;

/// Below this, a gate that is never slower than stock failed.
const FLOOR: f64 = 0.99;
/// Gain of the split from which on it must be used, and how well.
const CLEAR_GAIN: f64 = 1.15;
const USED: f64 = 0.97;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Virtual minutes that stock works on each block
    #[arg(long, default_value_t = 20.0, value_parser = minutes)]
    minutes: f64,
    /// Runs per block
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Without the compiled arm, as MLX-LM
    #[arg(long)]
    two_arms: bool,
    /// One JSON document instead of a table
    #[arg(long)]
    json: bool,
}

fn minutes(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|minutes| (0.1..=600.0).contains(minutes))
        .ok_or_else(|| format!("{text} is not a number of minutes between 0.1 and 600"))
}

/// Speeds are stock's time over the player's for the same calls from the same state: mean over the seeds, and the worst of them.
#[derive(Debug, Serialize)]
struct CellResult {
    chip: String,
    model: String,
    rows: u32,
    recorded_speed_up: f64,
    calls: u64,
    best_arm: String,
    best_fixed: f64,
    cold: Speed,
    predicted: Speed,
    kept: Speed,
    paper: Speed,
    /// Calls of the split, of those of `predicted`, as a share.
    split_share: f64,
    /// What exploration was charged, first calls included, as a share of the time, worst seed.
    explored_share: f64,
}

#[derive(Debug, Serialize, Clone, Copy)]
struct Speed {
    mean: f64,
    worst: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    about: &'static str,
    minutes: f64,
    seeds: u64,
    cells: Vec<CellResult>,
    summary: Summary,
}

/// Over all blocks, means over the seeds.
#[derive(Debug, Serialize)]
struct Summary {
    worst_against_stock: Gates,
    worst_seed_against_stock: Gates,
    mean_against_stock: Gates,
    worst_against_best_fixed_where_split_wins_clearly: Gates,
}

#[derive(Debug, Serialize)]
struct Gates {
    cold: f64,
    predicted: f64,
    kept: f64,
    paper: f64,
}

/// Plays every recorded block and prints how fast each gate was.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let arms = if arguments.two_arms { ArmSet::mlx_lm() } else { ArmSet::all() };
    let cells: Vec<CellResult> = arena::cells()
        .iter()
        .map(|cell| {
            play(cell, arms, arguments).with_context(|| format!("can't play {} {}", cell.chip, cell.rows))
        })
        .collect::<Result<_>>()?;
    if cells.is_empty() {
        bail!("no recorded blocks: this build is broken, please report it");
    }
    let report = Report {
        about: "modelled: recorded block times with the machine models' heat, first calls and noise",
        minutes: arguments.minutes,
        seeds: arguments.seeds,
        summary: summary(&cells),
        cells,
    };
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

/// All times of one block: per player, per seed.
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

fn play(cell: &Cell, arms: ArmSet, arguments: &Arguments) -> Result<CellResult> {
    let calls = (arguments.minutes * 60_000.0 / cell.eager_ms).ceil() as u64;
    let block = |seed| BlockMachine::new(cell, seed).context("the chip isn't shipped");
    let mut times = Times::default();
    for seed in 0..arguments.seeds {
        for arm in Arm::ALL.into_iter().filter(|arm| arms.has(*arm)) {
            times.fixed[usize::from(arm.code())]
                .push(Player::Fixed(arm).play_block(&mut block(seed)?, calls).ms);
        }
        let mut paper = Player::Paper(PaperGate::new(arms));
        times.paper.push(paper.play_block(&mut block(seed)?, calls).ms);
        let mut ours = |prediction, kept: Option<&GateState>| -> Result<(f64, GateState)> {
            let ours = Ours::new(cell.options(arms), cell.rows, prediction, kept);
            let mut player = Player::Ours(Box::new(ours));
            let played = player.play_block(&mut block(seed)?, calls);
            let Player::Ours(ours) = player else { bail!("a player doesn't change") };
            let ledger = ours.gate.ledger();
            times.split_share = played.by_arm[0] as f64 / played.calls as f64;
            let share = (ledger.charged_ms() + ledger.free_ms()) / ledger.time_ms();
            times.explored_share = times.explored_share.max(share);
            Ok((played.ms, ours.gate.export()))
        };
        let (cold, state) = ours(None, None)?;
        let (kept, _) = ours(cell.prediction(), Some(&state))?;
        let (predicted, _) = ours(cell.prediction(), None)?;
        times.cold.push(cold);
        times.kept.push(kept);
        times.predicted.push(predicted);
    }
    Ok(result(cell, calls, &times))
}

fn result(cell: &Cell, calls: u64, times: &Times) -> CellResult {
    let stock = &times.fixed[usize::from(Arm::Eager.code())];
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
        cold: speed(&times.cold),
        predicted: speed(&times.predicted),
        kept: speed(&times.kept),
        paper: speed(&times.paper),
        split_share: times.split_share,
        explored_share: times.explored_share,
    }
}

fn gates(value: impl Fn(&dyn Fn(&CellResult) -> Speed) -> f64) -> Gates {
    Gates {
        cold: value(&|cell| cell.cold),
        predicted: value(&|cell| cell.predicted),
        kept: value(&|cell| cell.kept),
        paper: value(&|cell| cell.paper),
    }
}

fn summary(cells: &[CellResult]) -> Summary {
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    Summary {
        worst_against_stock: gates(|of| least(&mut cells.iter().map(|cell| of(cell).mean))),
        worst_seed_against_stock: gates(|of| least(&mut cells.iter().map(|cell| of(cell).worst))),
        mean_against_stock: gates(|of| {
            cells.iter().map(|cell| of(cell).mean).sum::<f64>() / cells.len() as f64
        }),
        worst_against_best_fixed_where_split_wins_clearly: gates(|of| {
            let clear = cells.iter().filter(|cell| cell.best_fixed >= CLEAR_GAIN);
            least(&mut clear.map(|cell| of(cell).mean / cell.best_fixed))
        }),
    }
}

fn print(report: &Report) {
    println!("{}; {} virtual minutes, {} seeds", report.about, report.minutes, report.seeds);
    println!("speed against all-stock (1 = stock); worst seed in brackets\n");
    println!(
        "{:<7} {:<8} {:>5} {:>8} {:>7}  {:>14}  {:>14} {:>14} {:>14} {:>14} {:>6} {:>7}",
        "chip",
        "model",
        "rows",
        "recorded",
        "calls",
        "best fixed",
        "cold",
        "predicted",
        "kept",
        "paper",
        "split%",
        "spent%"
    );
    for cell in &report.cells {
        let speed = |speed: Speed| format!("{:.3} ({:.3})", speed.mean, speed.worst);
        println!(
            "{:<7} {:<8} {:>5} {:>8.3} {:>7}  {:>5.3} {:>8}  {:>14} {:>14} {:>14} {:>14} {:>6.1} {:>7.2}",
            cell.chip,
            cell.model,
            cell.rows,
            cell.recorded_speed_up,
            cell.calls,
            cell.best_fixed,
            cell.best_arm,
            speed(cell.cold),
            speed(cell.predicted),
            speed(cell.kept),
            speed(cell.paper),
            100.0 * cell.split_share,
            100.0 * cell.explored_share
        );
    }
    let line = |name: &str, gates: &Gates| {
        println!(
            "{name}: ours cold {:.3}, predicted {:.3}, kept {:.3}; the paper's {:.3}",
            gates.cold, gates.predicted, gates.kept, gates.paper
        );
    };
    println!();
    line("worst block against stock", &report.summary.worst_against_stock);
    line("worst single run against stock", &report.summary.worst_seed_against_stock);
    line("mean against stock", &report.summary.mean_against_stock);
    line(
        "worst against the best fixed arm, where that gains 1.15 or more",
        &report.summary.worst_against_best_fixed_where_split_wins_clearly,
    );
    let ours = &report.summary.worst_against_stock;
    let floor = ours.cold.min(ours.predicted).min(ours.kept);
    let used = &report.summary.worst_against_best_fixed_where_split_wins_clearly;
    let used = used.cold.min(used.predicted).min(used.kept);
    println!("floor {FLOOR}: {}; used {USED}: {}", verdict(floor >= FLOOR), verdict(used >= USED));
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}
