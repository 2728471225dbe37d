//! FusionML's convergence runs: 210 calls of the paper's gate at 8192 rows, stock alone before and after.

use serde::Deserialize;

use super::super::arena::{self, BlockMachine, Ours, Player};
use super::super::{Arm, ArmSet, Call, Decision, Gate};
use crate::stats::median;

#[derive(Deserialize)]
struct Recording {
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    chip: String,
    rows: u32,
    stock_before_ms: f64,
    stock_after_ms: f64,
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    split_ms: Vec<f64>,
    probe_ms: f64,
}

fn run(chip: &str) -> Run {
    let text = include_str!("../../../data/recorded/convergence.json");
    let recording: Recording = serde_json::from_str(text).unwrap();
    recording.runs.into_iter().find(|run| run.chip == chip).unwrap()
}

/// A split that stands, with stock alone as its reference, is shown the recorded calls: after how many is it sent back?
fn calls_until_sent_back(run: &Run) -> Option<usize> {
    let mut gate = Gate::new(super::options(ArmSet::all()), "recorded");
    let workload = gate.workload("block");
    let (mut now_ms, eager) = (0.0, Decision { arm: Arm::Eager, explore: false });
    for call in 0..10 {
        let ms = if call % 2 == 0 { run.stock_before_ms } else { run.stock_after_ms };
        now_ms += ms;
        gate.record(
            workload,
            &Call { decision: eager, rows: run.rows, ms, ended_at_ms: now_ms, contended: false },
        );
    }
    gate.predict(workload, run.rows, super::gain(1.1, 1.2, 1.3));
    assert_eq!(gate.decide(workload, run.rows).arm, Arm::Split);
    let split = Decision { arm: Arm::Split, explore: false };
    for (index, ms) in run.groups.iter().flat_map(|group| &group.split_ms).enumerate() {
        now_ms += ms;
        gate.record(
            workload,
            &Call { decision: split, rows: run.rows, ms: *ms, ended_at_ms: now_ms, contended: false },
        );
        if gate.decide(workload, run.rows).arm != Arm::Split {
            return Some(index + 1);
        }
    }
    None
}

#[test]
fn the_papers_probes_bless_the_loser_on_the_m1() {
    let run = run("m1");
    let split =
        median(&run.groups.iter().flat_map(|group| group.split_ms.clone()).collect::<Vec<_>>()).unwrap();
    let probe = median(&run.groups.iter().map(|group| group.probe_ms).collect::<Vec<_>>()).unwrap();
    assert!(split < 0.97 * probe, "its probes say that split wins");
    assert!(split > 1.1 * run.stock_after_ms, "stock alone says that it loses");
}

#[test]
fn the_m1_is_sent_back_at_once_and_the_winners_stay() {
    let sent_back = calls_until_sent_back(&run("m1"));
    println!("M1: sent back after {sent_back:?} of 189 split calls");
    assert!(sent_back.is_some_and(|calls| calls <= 10));
    assert_eq!(calls_until_sent_back(&run("m4")), None);
    // Its first group is as slow as stock (1236 ms against 1158-1232 ms), then it wins by 9 %.
    println!("M3 Pro: sent back after {:?}", calls_until_sent_back(&run("m3-pro")));
}

#[test]
fn clear_winners_are_used() {
    const SEEDS: u64 = 4;
    for cell in arena::cells().iter().filter(|cell| cell.eager_ms / cell.split_ms >= 1.15) {
        let calls = (600_000.0 / cell.eager_ms) as u64;
        let time = |player: &dyn Fn() -> Player| -> f64 {
            (0..SEEDS)
                .map(|seed| player().play_block(&mut BlockMachine::new(cell, seed).unwrap(), calls).ms)
                .sum()
        };
        let best = Arm::ALL.map(|arm| time(&|| Player::Fixed(arm))).into_iter().fold(f64::INFINITY, f64::min);
        let ours = |prediction| {
            time(&|| {
                Player::Ours(Box::new(Ours::new(cell.options(ArmSet::all()), cell.rows, prediction, None)))
            })
        };
        let (cold, predicted) = (best / ours(None), best / ours(cell.prediction()));
        println!("{} {} {}: cold {cold:.3}, predicted {predicted:.3}", cell.chip, cell.model, cell.rows);
        assert!(cold.min(predicted) >= 0.97, "{} {} {}", cell.chip, cell.model, cell.rows);
    }
}
