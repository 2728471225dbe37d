//! The trap of the M1 with 8 GB at 8192 rows: stock that is probed in the heat of the split reads up to 1.5 times its own time.

use super::super::arena::{Ours, Player};
use super::super::opponent::PaperGate;
use super::super::{Arm, ArmSet, GateOptions, Surroundings};
use super::gain;
use crate::chip::Cooling;
use crate::noise::Noise;

/// Fitted by eye to the recorded run: split 2612 rises to 3400 over 200 calls, probes of stock 2738 to 4009, stock alone 2552-2668 for 50 calls.
struct HeatTrap {
    heat: f64,
    warmth: f64,
    now_ms: f64,
    noise: Noise,
}

const HEATING_MS: f64 = 150_000.0;
/// Not recorded: how fast the machine forgets. The longer, the harder for any gate.
const COOLING_MS: f64 = 60_000.0;

fn passive() -> GateOptions {
    GateOptions::new(ArmSet::all(), Cooling::Passive)
}

impl HeatTrap {
    fn new(seed: u64) -> Self {
        Self { heat: 0.0, warmth: 0.0, now_ms: 0.0, noise: Noise::new(seed) }
    }

    fn call(&mut self, arm: Arm) -> (f64, f64) {
        let clean = match arm {
            Arm::Split => 2640.0 * (1.0 + 0.28 * self.heat),
            Arm::Compiled => 2590.0 * (1.0 + 0.035 * self.warmth + 0.5 * self.heat),
            Arm::Eager => 2560.0 * (1.0 + 0.035 * self.warmth + 0.5 * self.heat),
        };
        let ms = clean * self.noise.call_factor(0.01);
        let (target, constant) = if arm == Arm::Split { (1.0, HEATING_MS) } else { (0.0, COOLING_MS) };
        self.heat = target + (self.heat - target) * (-ms / constant).exp();
        self.warmth = 1.0 + (self.warmth - 1.0) * (-ms / HEATING_MS).exp();
        self.now_ms += ms;
        (ms, self.now_ms)
    }

    fn play(seed: u64, player: &mut Player, calls: u64) -> f64 {
        let mut machine = Self::new(seed);
        player.play(calls, |arm| Some(machine.call(arm))).ms
    }
}

fn speeds(calls: u64, ours: impl Fn() -> Ours) -> (f64, f64) {
    let mean = |player: &dyn Fn() -> Player| {
        (0..8)
            .map(|seed| {
                HeatTrap::play(seed, &mut Player::Fixed(Arm::Eager), calls)
                    / HeatTrap::play(seed, &mut player(), calls)
            })
            .sum::<f64>()
            / 8.0
    };
    (mean(&|| Player::Ours(Box::new(ours()))), mean(&|| Player::Paper(PaperGate::new(ArmSet::all()))))
}

#[test]
fn sustained_the_paper_blesses_the_loser_and_ours_does_not() {
    for calls in [210, 1000] {
        let (ours, paper) = speeds(calls, || Ours::new(passive(), 8192, None, None));
        println!("{calls} calls, knowing nothing: ours {ours:.4} of all-stock, the paper's {paper:.4}");
        assert!(ours >= 0.99, "{ours}");
        assert!(paper < 0.93, "{paper}");
    }
}

#[test]
fn a_prediction_that_heat_betrays_costs_little_and_pressure_locks_it_out() {
    let (ours, _) = speeds(1000, || Ours::new(passive(), 8192, gain(1.05, 1.15, 1.3), None));
    println!("1000 calls with a wrong prediction: ours {ours:.4} of all-stock");
    assert!(ours >= 0.99, "{ours}");
    let (ours, _) = speeds(210, || {
        let mut ours = Ours::new(passive(), 8192, gain(1.05, 1.15, 1.3), None);
        ours.gate.surround(Surroundings { fits: false, ..Surroundings::default() });
        ours
    });
    println!("210 calls under pressure: ours {ours:.4} of all-stock");
    assert!(ours >= 0.99, "{ours}");
}
