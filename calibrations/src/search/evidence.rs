//! What the samples of a search say: medians, pairs, and the times of each unit.

use crate::sample::{DropReason, Sample, Unit};
use crate::shape::Shape;
use crate::stats::median;

/// Median of the kept totals at `rows` (0: stock), in ms.
pub(super) fn total_ms(samples: &[Sample], rows: u32) -> Option<f64> {
    median(&kept_totals(samples, rows))
}

/// The kept totals at `rows`, in order.
pub(super) fn kept_totals(samples: &[Sample], rows: u32) -> Vec<f64> {
    samples
        .iter()
        .filter(|sample| sample.is_kept() && sample.secondary_rows == rows)
        .map(|s| s.total_ms)
        .collect()
}

/// Kept stock calls paired with kept split calls at `rows`, each used once, nearest in time first: (stock, split) in ms.
pub(super) fn pairs(samples: &[Sample], rows: u32) -> Vec<(f64, f64)> {
    let kept = |rows: u32| -> Vec<usize> {
        (0..samples.len())
            .filter(|&index| samples[index].is_kept() && samples[index].secondary_rows == rows)
            .collect()
    };
    let (stock, split) = (kept(0), kept(rows));
    let mut gaps: Vec<(usize, usize, usize)> =
        stock.iter().flat_map(|&a| split.iter().map(move |&b| (a.abs_diff(b), a, b))).collect();
    gaps.sort_unstable();
    let (mut used, mut pairs) = (vec![false; samples.len()], Vec::new());
    for (_, a, b) in gaps {
        if !used[a] && !used[b] {
            (used[a], used[b]) = (true, true);
            pairs.push((samples[a].total_ms, samples[b].total_ms));
        }
    }
    pairs
}

/// A unit's time per row in each split call that tells it exactly, as (secondary rows, ms per row, kept).
pub(super) fn per_row(samples: &[Sample], shape: Shape, unit: Unit) -> Vec<(u32, f64, bool)> {
    samples
        .iter()
        .filter(|sample| sample.secondary_rows > 0 && sample.secondary_rows < shape.rows())
        .filter(|sample| matches!(sample.dropped, None | Some(DropReason::FirstAfterChange)))
        .filter_map(|sample| {
            let rows = match unit {
                Unit::Primary => shape.rows() - sample.secondary_rows,
                Unit::Secondary => sample.secondary_rows,
            };
            let ms = sample.finish_times?.exact_ms(unit)?;
            (ms.is_finite() && ms > 0.0).then_some((
                sample.secondary_rows,
                ms / f64::from(rows),
                sample.is_kept(),
            ))
        })
        .collect()
}

/// The median over the kept values; over those of first calls where there is no kept one.
pub(super) fn median_per_row(values: &[(u32, f64, bool)]) -> Option<f64> {
    let of = |kept: bool| {
        let values: Vec<f64> = values.iter().filter(|value| value.2 == kept).map(|value| value.1).collect();
        median(&values)
    };
    of(true).or_else(|| of(false))
}
