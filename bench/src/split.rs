//! How much faster a split is than one unit, where both are equal.

use anyhow::Result;
use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_calibrations::stats::{CONFIDENCE, Interval, ratio_of_pairs};
use fusion_frames::Request;

use crate::figure::{Figure, Limit};
use crate::worker::Worker;

/// Pairs that count, at most.
const PAIRS: usize = 80;
/// Rounds at most: disturbed calls are made again only so often.
const ROUNDS: usize = 240;

/// Ratio 0.5 of 1024 x 2048 x 2048, f32. Each round times both arms, in turn the one and the other first, and throws the first
/// call after a change of arm away, as every calibration does (see [`fusion_calibrations::search`]). Stock is timed twice:
/// one pair against the split, one against itself.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let shape = Shape::parse("1024x2048x2048", WeightFormat::F32, Layout::default())?;
    let mut worker = Worker::start(&["--pair", "development"], shape)?;
    let (mut pairs, mut own, mut disturbed) = (Vec::new(), Vec::new(), 0);
    for round in 0..ROUNDS {
        let calls = if round % 2 == 0 {
            let stock = kept(&mut worker, &Request::Stock, 2)?;
            stock.into_iter().chain(kept(&mut worker, &split(shape), 1)?).collect::<Vec<_>>()
        } else {
            let split = kept(&mut worker, &split(shape), 1)?;
            kept(&mut worker, &Request::Stock, 2)?.into_iter().chain(split).collect()
        };
        let [(before, true), (after, true), (split, true)] = calls[..] else {
            disturbed += 1;
            continue;
        };
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

fn split(shape: Shape) -> Request {
    Request::Split { secondary_rows: shape.rows() / 2, secondary_first: false }
}

/// `count` calls of one arm after one that is thrown away: each call's milliseconds, and whether nothing disturbed it.
fn kept(worker: &mut Worker, request: &Request, count: usize) -> Result<Vec<(f64, bool)>> {
    worker.time(request)?;
    (0..count).map(|_| worker.time(request)).collect()
}
