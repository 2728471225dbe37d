//! Machine models: the five recorded chips as arithmetic.
//!
//! A model returns durations in virtual time; it never waits. Rates, contention, overhead and cliffs come from the chip's file; heat,
//! first calls, eviction and noise from the constants here, each with its evidence. Numbers that come from here carry
//! [`Pair::Modelled`](crate::chip::Pair::Modelled).

pub mod block;

use crate::chip::Cooling;
use crate::chips::{self, ChipPrior};
use crate::lines::Lines;
use crate::noise::Noise;
use crate::sample::{FinishTimes, Sample, Unit};
use crate::search::Ask;
use crate::shape::Shape;

/// How much longer the secondary unit's part takes at a cliff: 2-6 times on all five chips (`cpu_pow2_cliff`).
const CLIFF_FACTOR: f64 = 3.0;
/// Default relative standard deviation of a unit's time.
pub const DEVIATION: f64 = 0.015;
/// Heat that stock makes, where a split makes 1: the M1 alone goes from 97.9 to 104.7 ms in 120 calls, split from 72 to 87 (`sustained`).
const STOCK_HEAT: f64 = 0.4;
/// A first call on a hot machine: the unit that rested is faster (`convergence`: 0.90 on M1 and M4 Pro).
const FIRST_CALL_HOT: f64 = 0.9;
/// Time to read evicted memory back, in ms a GiB: an SSD's 2.5 GiB/s. A working set that doesn't fit is read back each call.
const RELOAD_MS_PER_GIB: f64 = 400.0;

/// What heat and rest do to one chip.
#[derive(Debug, Clone, Copy)]
struct Temper {
    /// Slow-down of the primary unit at full heat, as a share.
    primary: f64,
    /// Slow-down of the secondary unit at full heat.
    secondary: f64,
    /// Time constant of heating up and cooling down, in ms.
    constant_ms: f64,
    /// The first call after the other arm on a cool machine, over a steady one.
    first_call: f64,
}

/// Read off `sustained`, `convergence` and `first_call_after_probe`: late over first calls of split and of stock.
fn temper(prior: &ChipPrior) -> Temper {
    let (primary, secondary, first_call) = match prior.name.as_str() {
        "m1" => (0.08, 0.25, 1.10),
        "m2" => (0.05, 0.20, 1.20),
        "m3-pro" => (0.03, 0.05, 1.14),
        "m4" => (0.02, 0.03, 1.08),
        "m4-pro" => (0.14, 0.30, 1.05),
        _ => (0.05, 0.15, 1.10),
    };
    let constant_ms = match chips::cooling(&prior.model_identifier) {
        Cooling::Passive => 60_000.0,
        Cooling::Active | Cooling::Unknown => 120_000.0,
    };
    Temper { primary, secondary, constant_ms, first_call }
}

/// A modelled machine with its state: heat, the arm that ran last, free memory and the virtual clock.
#[derive(Debug, Clone)]
pub struct Machine {
    prior: ChipPrior,
    temper: Temper,
    noise: Noise,
    deviation: f64,
    now_ms: f64,
    heat: f64,
    last_was_split: Option<bool>,
    free_bytes: Option<u64>,
    /// How many times as long the primary and the secondary unit's parts take as on the recorded chip.
    slowdown: (f64, f64),
}

impl Machine {
    /// The model of a shipped chip ("m1", "m2", "m3-pro", "m4", "m4-pro"), cool, with all its memory; `None` for other names.
    pub fn named(name: &str, seed: u64) -> Option<Self> {
        let prior = chips::find(name)?.clone();
        Some(Self {
            temper: temper(&prior),
            noise: Noise::for_use(seed, name),
            prior,
            deviation: DEVIATION,
            now_ms: 0.0,
            heat: 0.0,
            last_was_split: None,
            free_bytes: None,
            slowdown: (1.0, 1.0),
        })
    }

    /// The chip's file that it is made from.
    pub fn prior(&self) -> &ChipPrior {
        &self.prior
    }

    /// Virtual time since the start, in ms.
    pub fn now_ms(&self) -> f64 {
        self.now_ms
    }

    /// Heat between 0 (cool) and 1 (what endless splitting comes to).
    pub fn heat(&self) -> f64 {
        self.heat
    }

    /// Relative standard deviation of a unit's time; 0 also does away with accidents.
    pub fn set_deviation(&mut self, deviation: f64) {
        self.deviation = deviation;
    }

    /// Memory that is left to the process; a working set above it is read back from disk each call. `None` is plenty.
    pub fn set_free_bytes(&mut self, free: Option<u64>) {
        self.free_bytes = free;
    }

    /// Makes each unit's parts take so many times as long as on the recorded chip: another power source, another engine.
    pub fn set_slowdown(&mut self, primary: f64, secondary: f64) {
        self.slowdown = (primary, secondary);
    }

    /// Lets `ms` pass without work: the machine cools.
    pub fn rest(&mut self, ms: f64) {
        self.pass(ms, 0.0);
        self.last_was_split = None;
    }

    fn pass(&mut self, ms: f64, load: f64) {
        self.now_ms += ms;
        self.heat = load + (self.heat - load) * (-ms / self.temper.constant_ms).exp();
    }

    /// The lines of `shape` as they are now, heat included; `None` for weight formats that were never recorded.
    pub fn lines(&self, shape: Shape) -> Option<Lines> {
        let cool = self.prior.lines(shape.layer(), None)?;
        let (primary, secondary) = (
            self.slowdown.0 * (1.0 + self.temper.primary * self.heat),
            self.slowdown.1 * (1.0 + self.temper.secondary * self.heat),
        );
        Some(Lines {
            primary_ms_per_row: cool.primary_ms_per_row * primary,
            secondary_ms_per_row: cool.secondary_ms_per_row * secondary,
            overhead_ms: cool.overhead_ms,
            stock_ms_per_row: cool.stock_ms_per_row * primary,
        })
    }

    /// Each part's time without noise: (primary, secondary, joining) in ms. The secondary part and joining are 0 for stock.
    fn parts(&self, shape: Shape, secondary_rows: u32) -> Option<(f64, f64, f64)> {
        let lines = self.lines(shape)?;
        if secondary_rows == 0 {
            return Some((lines.stock_ms(shape.rows()), 0.0, 0.0));
        }
        let cliff = if self.prior.row_rule.is_cliff(secondary_rows, shape.layer().inputs()) {
            CLIFF_FACTOR
        } else {
            1.0
        };
        Some((
            lines.primary_ms_per_row * f64::from(shape.rows().saturating_sub(secondary_rows)),
            lines.secondary_ms_per_row * f64::from(secondary_rows) * cliff,
            lines.overhead_ms,
        ))
    }

    /// Time of a call in the present state, without noise, in ms.
    pub fn expected_ms(&self, shape: Shape, secondary_rows: u32) -> Option<f64> {
        let (primary, secondary, joining) = self.parts(shape, secondary_rows)?;
        Some(primary.max(secondary) + joining)
    }

    /// Makes one call: returns what it took and moves the virtual clock and the heat on. `None` for weight formats that were never
    /// recorded.
    pub fn call(&mut self, shape: Shape, ask: Ask) -> Option<Sample> {
        let secondary_rows = ask.secondary_rows();
        let splits = secondary_rows > 0;
        let (primary, secondary, joining) = self.parts(shape, secondary_rows)?;
        let first = match self.last_was_split {
            Some(last) if last == splits => 1.0,
            _ => self.temper.first_call + (FIRST_CALL_HOT - self.temper.first_call) * self.heat,
        };
        let reload = self.reload_ms(shape);
        let accident = if self.deviation > 0.0 { self.noise.call_factor(0.0) } else { 1.0 };
        let noisy = |part: f64, noise: &mut Noise, deviation: f64| {
            part * first * accident * (deviation * noise.normal()).exp() + reload
        };
        let primary = noisy(primary, &mut self.noise, self.deviation);
        let secondary = if splits { noisy(secondary, &mut self.noise, self.deviation) } else { 0.0 };
        let total_ms = primary.max(secondary) + joining;
        let finish_times = match ask {
            Ask::Stock => None,
            Ask::Split { first_waited, .. } => Some(waited(primary, secondary, first_waited)),
        };
        self.pass(total_ms, if splits { 1.0 } else { STOCK_HEAT });
        self.last_was_split = Some(splits);
        Some(Sample { secondary_rows, total_ms, finish_times, dropped: None })
    }

    fn reload_ms(&self, shape: Shape) -> f64 {
        let excess = self.free_bytes.map_or(0, |free| shape.working_set_bytes().saturating_sub(free));
        excess as f64 / f64::from(1u32 << 30) * RELOAD_MS_PER_GIB
    }
}

/// What waiting for one unit after the other shows: the second wait returns no earlier than the first.
fn waited(primary: f64, secondary: f64, first_waited: Unit) -> FinishTimes {
    let later = primary.max(secondary);
    match first_waited {
        Unit::Primary => FinishTimes { primary_ms: primary, secondary_ms: later, first_waited },
        Unit::Secondary => FinishTimes { primary_ms: later, secondary_ms: secondary, first_waited },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{Options, Search, Start, Step};
    use crate::shape::{Layer, Layout, WeightFormat};

    const NAMES: [&str; 5] = ["m1", "m2", "m3-pro", "m4", "m4-pro"];

    fn shape(rows: u32, inputs: u32, outputs: u32) -> Shape {
        Layer::new(inputs, outputs, WeightFormat::F16, Layout::default()).unwrap().with_rows(rows).unwrap()
    }

    /// Rows that the search stands at after `splits` split calls, and at its end.
    fn search(name: &str, shape: Shape, seed: u64, splits: usize) -> (u32, u32, u32) {
        let mut machine = Machine::named(name, seed).unwrap();
        let rule = machine.prior().row_rule.clone();
        let options = Options { start: Start::Cold, rule, seed, ..Options::default() };
        let mut search = Search::new(shape, options);
        let mut after = 0;
        loop {
            match search.next() {
                Step::Measure(ask) => {
                    search.tell(machine.call(shape, ask).unwrap()).unwrap();
                    if search.samples().iter().filter(|s| s.secondary_rows > 0).count() == splits
                        && after == 0
                    {
                        after = search.standing_rows().unwrap();
                    }
                }
                Step::Done(outcome) => {
                    // A search that needed fewer split calls stands where it ended.
                    let end = outcome.secondary_rows;
                    return (if after == 0 { end } else { after }, end, search.calls());
                }
            }
        }
    }

    #[test]
    fn four_split_calls_find_the_best_rows_on_every_model() {
        for name in NAMES {
            let (mut after_four, mut at_end, mut runs) = (0.0, 0.0, 0.0);
            for shape in [shape(2048, 4096, 4096), shape(2048, 4096, 14336), shape(4096, 14336, 4096)] {
                let cool = Machine::named(name, 0).unwrap();
                let best = (1..shape.rows())
                    .step_by(4)
                    .map(|rows| cool.expected_ms(shape, rows).unwrap())
                    .fold(f64::INFINITY, f64::min);
                for seed in 0..40 {
                    let (after, end, calls) = search(name, shape, seed, 4);
                    assert!(calls <= 12, "{calls} calls");
                    assert!(end > 0, "{name} {shape} seed {seed}: no split was chosen");
                    after_four += cool.expected_ms(shape, after).unwrap() / best - 1.0;
                    at_end += cool.expected_ms(shape, end).unwrap() / best - 1.0;
                    runs += 1.0;
                }
            }
            println!(
                "{name}: mean regret {:.4} after four split calls, {:.4} at the end",
                after_four / runs,
                at_end / runs
            );
            assert!(after_four / runs <= 0.005, "{name}: {}", after_four / runs);
        }
    }

    #[test]
    fn sustained_load_slows_and_rest_recovers() {
        let shape = shape(8192, 14336, 4096);
        let mut machine = Machine::named("m4-pro", 1).unwrap();
        let ask = Ask::Split { secondary_rows: 3000, first_waited: Unit::Primary };
        let cool = machine.expected_ms(shape, 3000).unwrap();
        for _ in 0..2000 {
            machine.call(shape, ask).unwrap();
        }
        let hot = machine.expected_ms(shape, 3000).unwrap();
        assert!((1.1..1.4).contains(&(hot / cool)), "{}", hot / cool);
        let shifted = machine.lines(shape).unwrap().balanced_ratio();
        machine.rest(1e6);
        assert!(machine.lines(shape).unwrap().balanced_ratio() > shifted);
        assert!((machine.expected_ms(shape, 3000).unwrap() / cool - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_working_set_that_does_not_fit_costs_and_cliffs_show() {
        let shape = shape(8192, 14336, 4096);
        let mut machine = Machine::named("m2", 1).unwrap();
        machine.set_deviation(0.0);
        let roomy = machine.call(shape, Ask::Stock).unwrap().total_ms;
        machine.set_free_bytes(Some(0));
        assert!(machine.call(shape, Ask::Stock).unwrap().total_ms > roomy);
        assert!(machine.expected_ms(shape, 4096).unwrap() > 2.0 * machine.expected_ms(shape, 4080).unwrap());
    }

    #[test]
    fn a_slower_unit_wants_fewer_rows() {
        let shape = shape(2048, 4096, 4096);
        let mut machine = Machine::named("m2", 1).unwrap();
        let (before, stock) = (machine.lines(shape).unwrap(), machine.expected_ms(shape, 0).unwrap());
        machine.set_slowdown(1.0, 2.0);
        assert!(machine.lines(shape).unwrap().balanced_ratio() < before.balanced_ratio());
        assert_eq!(machine.expected_ms(shape, 0).unwrap(), stock);
        machine.set_slowdown(2.0, 2.0);
        assert!((machine.expected_ms(shape, 0).unwrap() / stock - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_seed_is_a_machine() {
        let run = |seed| {
            let mut machine = Machine::named("m3-pro", seed).unwrap();
            machine.call(shape(1024, 4096, 4096), Ask::Stock).unwrap().total_ms
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert!(Machine::named("m9", 1).is_none());
    }
}
