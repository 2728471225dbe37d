//! `--self-test`: one paragraph for a person.

use anyhow::Result;
use fusion_calibrations::{
    sample::{FinishTimes, Unit},
    shape::{Layout, Shape, WeightFormat},
};
use fusion_split::{Operands, Timing, Units, identity};

/// Large enough that two units pay on any machine, small enough to take about a second.
const SHAPE: &str = "1024x2048x2048";

/// Pairs of one stock call and one split call.
const PAIRS: usize = 15;

/// Times the product with and without an even split, interleaved, and says what came of it.
///
/// # Errors
/// If MLX fails.
pub(crate) fn run(units: &Units) -> Result<String> {
    let shape = Shape::parse(SHAPE, WeightFormat::F32, Layout::default())?;
    let operands = Operands::synthetic(units, shape, 1)?;
    let rows = shape.rows() / 2;
    // The first call of each arm only warms up; its results are compared.
    let (_, whole) = units.stock(&operands)?;
    let (_, joined) = units.split(&operands, rows, Unit::Primary)?;
    let error = units.compare(&joined, &whole)?;
    let (mut stock, mut split) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let first = if pair % 2 == 0 { Unit::Primary } else { Unit::Secondary };
        stock.push(units.stock(&operands)?.0);
        split.push(units.split(&operands, rows, first)?.0);
    }
    Ok(report(units, shape, rows, &stock, &split, error)?)
}

fn report(
    units: &Units,
    shape: Shape,
    rows: u32,
    stock: &[Timing],
    split: &[Timing],
    error: f64,
) -> Result<String, fusion_split::SplitError> {
    let median_of =
        |timings: &[Timing], value: fn(&Timing) -> Option<f64>| median(timings.iter().filter_map(value));
    let (stock_ms, split_ms) =
        (median_of(stock, |t| Some(t.total_ms)), median_of(split, |t| Some(t.total_ms)));
    let exact = |unit| median(split.iter().filter_map(|t| FinishTimes::exact_ms(&t.finish_times?, unit)));
    let delay: f64 = stock.iter().chain(split).filter_map(|t| t.run_queue_delay_ms).sum();
    Ok(format!(
        "{chip}: {description}. {engine}.\n\
         {shape}: {stock_ms:.1} ms on the primary unit alone, {split_ms:.1} ms with {rows} rows on the secondary unit \
         ({primary:.1} ms primary, {secondary:.1} ms secondary): {speed_up:.2} times as fast. Medians of {pairs} interleaved \
         pairs; the units waited {delay:.1} ms for a core in all; relative error {error:.1e}, at most {bound:.1e} is allowed.",
        chip = identity::chip(units),
        description = units.description(),
        engine = identity::engine()?,
        primary = exact(Unit::Primary),
        secondary = exact(Unit::Secondary),
        speed_up = stock_ms / split_ms,
        pairs = stock.len(),
        bound = shape.layer().format().relative_error_bound(shape.layer().inputs()),
    ))
}

/// The middle of an odd number of values, the upper middle of an even one; NaN of none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_found() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert!(median(std::iter::empty()).is_nan());
    }
}
