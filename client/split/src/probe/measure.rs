//! The measuring.

use std::{cell::Cell, time::Instant};

use fusion_calibrations::{
    live::Observation,
    ratio::Ratio,
    rows::RowRule,
    sample::{FinishTimes, Unit},
    shape::{Layer, Layout, Shape, WeightFormat},
    stats,
};
use mlx_rs::{
    Array,
    ops::{self, indexing::IndexOp as _},
    transforms, with_stream,
};

use crate::{
    SplitError, Units, Weight,
    error::Doing as _,
    model::swiglu,
    operands::{noise, synthetic_weight},
    product::ms_since,
    split_matmul_sampled,
    weight::activation_dtype,
};

use super::{Probe, Scale, Timed, Timings, Verdict, Way};

const DOING: &str = "running the probe";

/// The paper's share, from which the search for the balance starts.
const FIRST_RATIO: f64 = 0.35;

/// How often a disturbed call is tried, while there are repetitions left: on a busy machine more would not help.
const ATTEMPTS: usize = 5;

pub(super) fn usual(units: &Units) -> Result<Scale, SplitError> {
    let (rows, format, rounds) =
        if units.is_on_gpu() { (2048, WeightFormat::F16, 20) } else { (256, WeightFormat::F32, 12) };
    // The order in which the paper keeps them.
    let layer = Layer::new(1600, 6400, format, Layout::InputsByOutputs)?;
    Ok(Scale { shape: layer.with_rows(rows)?, rounds })
}

pub(super) fn run(
    units: &Units,
    scale: Scale,
    mut progress: impl FnMut(usize, usize),
) -> Result<Probe, SplitError> {
    let Scale { shape, rounds } = scale;
    let inputs = Inputs::synthetic(units, shape)?;
    let (ratio, secondary_rows) = balance(units, &inputs)?;
    let repetitions = Cell::new(Way::ALL.len() * rounds / 2);
    let bench = Bench { units, inputs: &inputs, secondary_rows: secondary_rows as i32, repetitions };
    let relative_error = bench.relative_error()?;
    let mut timings = Timings::new();
    for round in 0..rounds {
        for way in order(round) {
            // The first call after a change of way bears its traces.
            bench.timed(way)?;
            timings.push(way, bench.undisturbed(way)?);
        }
        progress(round + 1, rounds);
    }
    let verdict = Verdict::of(&timings);
    Ok(Probe { shape, secondary_rows, ratio, timings, relative_error, verdict })
}

/// Each way comes first, second ... about equally often, and after different ones.
fn order(round: usize) -> Vec<Way> {
    let mut order = Way::ALL.to_vec();
    if round % 2 == 1 {
        order.reverse();
    }
    let shift = (round / 2 * 3) % order.len();
    order.rotate_left(shift);
    order
}

/// The balanced ratio and its rows, found from both units' finish times.
fn balance(units: &Units, inputs: &Inputs) -> Result<(Ratio, u32), SplitError> {
    let rule = if units.is_on_gpu() { RowRule::apple() } else { RowRule::default() };
    let mut ratio = Ratio::saturating(FIRST_RATIO);
    for _ in 0..3 {
        let rows = rule.secondary_rows(inputs.shape, ratio).max(1);
        let (mut primary, mut secondary) = (vec![], vec![]);
        for turn in 0..6 {
            let first = if turn % 2 == 0 { Unit::Primary } else { Unit::Secondary };
            let (_, sampled) = split_matmul_sampled(units, &inputs.rows, &inputs.up, rows, first)?;
            let Some(Observation { finish_times, .. }) = sampled.map(|sampled| sampled.observation) else {
                continue;
            };
            primary.extend(FinishTimes::exact_ms(&finish_times, Unit::Primary));
            secondary.extend(FinishTimes::exact_ms(&finish_times, Unit::Secondary));
        }
        let Some((primary, secondary)) = stats::median(&primary).zip(stats::median(&secondary)) else {
            break;
        };
        let primary = primary / f64::from(inputs.shape.rows() - rows);
        let secondary = secondary / f64::from(rows);
        ratio = Ratio::saturating(primary / (primary + secondary));
    }
    Ok((ratio, rule.secondary_rows(inputs.shape, ratio).max(1)))
}

struct Inputs {
    shape: Shape,
    /// `[M, K]`.
    rows: Array,
    gate: Weight,
    up: Weight,
    down: Weight,
}

impl Inputs {
    fn synthetic(units: &Units, shape: Shape) -> Result<Self, SplitError> {
        let layer = shape.layer();
        let (k, n, format) = (layer.inputs(), layer.outputs(), layer.format());
        let down = Layer::new(n, k, format, layer.layout())?;
        with_stream(units.primary(), || {
            Ok(Self {
                shape,
                rows: noise(&[shape.rows() as i32, k as i32], activation_dtype(format), 0)?,
                gate: synthetic_weight(layer, 1)?,
                up: synthetic_weight(layer, 2)?,
                down: synthetic_weight(down, 3)?,
            })
        })
    }

    fn product(&self, x: &Array) -> Result<Array, SplitError> {
        self.up.product(x)
    }

    fn ffn(&self, x: &Array) -> Result<Array, SplitError> {
        self.down.product(&swiglu(&self.gate.product(x)?, &self.up.product(x)?)?)
    }
}

struct Bench<'a> {
    units: &'a Units,
    inputs: &'a Inputs,
    secondary_rows: i32,
    /// How many disturbed calls may still be repeated.
    repetitions: Cell<usize>,
}

impl Bench<'_> {
    /// One call during which no other process held a unit's core, if one of several is: else the one with the least of it.
    fn undisturbed(&self, way: Way) -> Result<Timed, SplitError> {
        let mut best = self.timed(way)?;
        for _ in 1..ATTEMPTS {
            let left = self.repetitions.get();
            if !best.is_disturbed() || left == 0 {
                break;
            }
            self.repetitions.set(left - 1);
            let next = self.timed(way)?;
            if next.delay_ms < best.delay_ms {
                best = next;
            }
        }
        Ok(best)
    }

    fn timed(&self, way: Way) -> Result<Timed, SplitError> {
        let delay = self.units.run_queue_delay();
        let start = Instant::now();
        self.call(way)?;
        let ms = ms_since(start);
        Ok(Timed { ms, delay_ms: self.units.delay_since(delay).unwrap_or_default() })
    }

    /// The materialised result.
    fn call(&self, way: Way) -> Result<Array, SplitError> {
        let ready = &self.inputs.rows;
        let result = match way {
            Way::ReadyWhole | Way::ReadyWholeAgain => self.whole(ready, Inputs::product),
            Way::ReadySplit => self.split(ready, Inputs::product),
            Way::LazyWhole => self.whole(&self.made()?, Inputs::product),
            Way::LazySplit => self.split(&self.made()?, Inputs::product),
            Way::BoundaryWhole => self.whole(&self.materialised()?, Inputs::product),
            Way::BoundarySplit => self.split(&self.materialised()?, Inputs::product),
            Way::FfnReadyWhole => self.whole(ready, Inputs::ffn),
            Way::FfnReadySplit => self.split(ready, Inputs::ffn),
            Way::FfnLazyWhole => self.whole(&self.made()?, Inputs::ffn),
            Way::FfnLazySplit => self.split(&self.made()?, Inputs::ffn),
        }?;
        transforms::eval([&result]).doing(DOING)?;
        Ok(result)
    }

    /// An input that the primary unit has yet to make: what every layer after the first gets.
    fn made(&self) -> Result<Array, SplitError> {
        with_stream(self.units.primary(), || {
            let rows = &self.inputs.rows;
            let zero = Array::from_f32(0.0).as_dtype(rows.dtype())?;
            ops::maximum(rows, &zero)
        })
        .doing(DOING)
    }

    fn materialised(&self) -> Result<Array, SplitError> {
        let made = self.made()?;
        transforms::eval([&made]).doing(DOING)?;
        Ok(made)
    }

    fn whole(&self, x: &Array, work: Work) -> Result<Array, SplitError> {
        with_stream(self.units.primary(), || work(self.inputs, x))
    }

    /// Both parts and their joining in one graph, as in the paper.
    fn split(&self, x: &Array, work: Work) -> Result<Array, SplitError> {
        let rows = self.inputs.shape.rows() as i32;
        // Ballast of an asymmetric pair; at the balance there are always enough rows for it.
        let worked = (self.units.worked_rows(self.secondary_rows as u32) as i32).min(rows);
        let secondary = with_stream(self.units.secondary(), || {
            let part = work(self.inputs, &x.index(0..worked))?;
            Ok::<_, SplitError>(if worked == self.secondary_rows {
                part
            } else {
                part.index(0..self.secondary_rows)
            })
        })?;
        with_stream(self.units.primary(), || {
            let primary = work(self.inputs, &x.index(self.secondary_rows..rows))?;
            ops::concatenate(&[&secondary, &primary], 0).doing(DOING)
        })
    }

    fn relative_error(&self) -> Result<f64, SplitError> {
        let pairs = [
            (Way::ReadySplit, Way::ReadyWhole),
            (Way::LazySplit, Way::LazyWhole),
            (Way::BoundarySplit, Way::BoundaryWhole),
            (Way::FfnReadySplit, Way::FfnReadyWhole),
            (Way::FfnLazySplit, Way::FfnLazyWhole),
        ];
        pairs.iter().try_fold(0.0, |worst: f64, (split, whole)| {
            Ok(worst.max(self.units.relative_error(&self.call(*split)?, &self.call(*whole)?)?))
        })
    }
}

type Work = fn(&Inputs, &Array) -> Result<Array, SplitError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_way_and_orders_differ() {
        let rounds: Vec<Vec<Way>> = (0..12).map(order).collect();
        for round in &rounds {
            assert!(Way::ALL.iter().all(|way| round.iter().filter(|other| *other == way).count() == 1));
        }
        assert!((1..12).all(|round| rounds[round] != rounds[round - 1]));
    }
}
