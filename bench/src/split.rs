//! How much faster a split is than one unit, where both are equal.

use anyhow::Result;
use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_calibrations::stats::{CONFIDENCE, Interval, ratio_of_pairs};
use fusion_frames::Request;

use crate::figure::{Figure, Limit};
use crate::worker::Worker;

/// Pairs that count, at most.
const PAIRS: usize = 30;
/// Rounds at most: disturbed calls are made again only so often.
const ROUNDS: usize = 120;

/// Ratio 0.5 of 1024 x 2048 x 2048, f32. Each round times stock, split, stock: a pair in balanced order, and an A/A pair.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let shape = Shape::parse("1024x2048x2048", WeightFormat::F32, Layout::default())?;
    let mut worker = Worker::start(&["--pair", "development"], shape)?;
    let split = Request::Split { secondary_rows: shape.rows() / 2, secondary_first: false };
    let (mut pairs, mut own, mut disturbed) = (Vec::new(), Vec::new(), 0);
    for _ in 0..5 {
        worker.time(&Request::Stock)?;
        worker.time(&split)?;
    }
    for _ in 0..ROUNDS {
        let calls = [worker.time(&Request::Stock)?, worker.time(&split)?, worker.time(&Request::Stock)?];
        if calls.iter().any(|(_, quiet)| !quiet) {
            disturbed += 1;
            continue;
        }
        let [(before, _), (split, _), (after, _)] = calls;
        // One pair a round: a call that counted twice would count as two samples.
        pairs.push(((before * after).sqrt(), split));
        own.push((before, after));
        if pairs.len() >= PAIRS {
            break;
        }
    }
    let Some(interval) = ratio_of_pairs(&pairs, CONFIDENCE) else {
        let nothing = Interval { low: f64::NEG_INFINITY, value: 0.0, high: f64::INFINITY };
        let figure = Figure::new(
            "split at 0.5 of 1024x2048x2048 f32",
            nothing,
            "times stock",
            Limit::AtLeast(1.8),
            0,
            None,
        );
        return Ok(vec![figure.note(format!("all {disturbed} rounds were disturbed by other processes"))]);
    };
    let figure = Figure::new(
        "split at 0.5 of 1024x2048x2048 f32",
        interval,
        "times stock",
        Limit::AtLeast(1.8),
        pairs.len(),
        ratio_of_pairs(&own, CONFIDENCE),
    );
    let raw = pairs.iter().map(|(stock, split)| stock / split).collect();
    Ok(vec![figure.note(format!("{disturbed} rounds disturbed and dropped")).raw(raw)])
}
