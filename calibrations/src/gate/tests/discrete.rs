//! A discrete GPU: stock takes 0.265 ms, split 53 ms (`discrete_gpu.json`: 2048 x 1600 x 6400, f32).

use super::super::arena::{Ours, Player};
use super::super::opponent::PaperGate;
use super::super::{Arm, ArmSet};
use super::{gain, options};
use crate::noise::Noise;

const STOCK_MS: f64 = 0.265;
const SPLIT_MS: f64 = 53.15;

fn play(mut player: Player, calls: u64) -> (f64, [u64; 3], Player) {
    let (mut noise, mut now) = (Noise::new(5), 0.0);
    let played = player.play(calls, |arm| {
        let ms = if arm == Arm::Split { SPLIT_MS } else { STOCK_MS } * noise.call_factor(0.015);
        now += ms;
        Some((ms, now))
    });
    (played.ms, played.by_arm, player)
}

fn stock_ms(calls: u64) -> f64 {
    play(Player::Fixed(Arm::Eager), calls).0
}

#[test]
fn the_papers_gate_makes_everything_about_twenty_times_slower() {
    let (ms, _, _) = play(Player::Paper(PaperGate::new(ArmSet::mlx_lm())), 10_000);
    let slower = ms / stock_ms(10_000);
    assert!((18.0..23.0).contains(&slower), "{slower} times");
    println!("paper's gate {slower:.1} times slower than stock");
}

#[test]
fn ours_loses_one_call_and_then_one_percent_at_most() {
    for (calls, prediction) in
        [(100, None), (10_000, None), (1_000_000, None), (1_000_000, gain(0.8, 1.1, 1.3))]
    {
        let ours = Ours::new(options(ArmSet::mlx_lm()), 2048, prediction, None);
        let (ms, by_arm, player) = play(Player::Ours(Box::new(ours)), calls);
        let stock = stock_ms(calls);
        let lost = ms - stock;
        println!("{calls} calls: lost {lost:.0} ms of {stock:.0} ms, {} split calls", by_arm[0]);
        // Three first calls, epsilon, and an overdraft; noise of 2 % outliers on top.
        assert!(lost <= 3.0 * 1.5 * SPLIT_MS + 0.01 * stock + 1.5 * SPLIT_MS, "{lost} ms");
        let Player::Ours(ours) = player else { panic!() };
        assert_eq!(ours.explain().unwrap().standing, Arm::Eager);
    }
}

#[test]
fn a_wrong_prediction_costs_the_first_calls() {
    // Lines that lie: three calls in a row are split before stock is seen at all, then stock, then never again but by the ledger.
    let ours = Ours::new(options(ArmSet::mlx_lm()), 2048, gain(1.2, 1.3, 1.4), None);
    let (ms, by_arm, _) = play(Player::Ours(Box::new(ours)), 100_000);
    let lost = ms - stock_ms(100_000);
    println!("wrong prediction: lost {lost:.0} ms, {} split calls", by_arm[0]);
    assert!(lost <= 4.0 * 1.5 * SPLIT_MS + 0.01 * ms, "{lost}");
}
