//! What the samples of a search say: medians, pairs, and the times of each unit.

use crate::sample::{DropReason, Sample, Unit};
use crate::shape::Shape;
use crate::stats::median;

/// A call this many times slower than another of the same rows was disturbed: nothing makes a matrix product too fast, and calls of one
/// session repeat within a few percent (FusionML's `prefill_cells`).
pub(super) const ACCIDENT_FACTOR: f64 = 1.2;
/// A time per row above this multiple of the median elsewhere is a cliff, if seen twice.
const CLIFF_FACTOR: f64 = 1.5;

/// Median of the usable totals at `rows` (0: stock), in ms.
pub(super) fn total_ms(samples: &[Sample], rows: u32) -> Option<f64> {
    median(&usable_totals(samples, rows))
}

/// The usable totals at `rows`, in order.
pub(super) fn usable_totals(samples: &[Sample], rows: u32) -> Vec<f64> {
    usable(samples, rows).into_iter().map(|index| samples[index].total_ms).collect()
}

/// Splits whose rows differ by no more than this share take about as long as each other.
const NEIGHBOURING_ROWS: f64 = 0.05;

/// A first call after a change of arm is no faster than this share of a later one (`convergence`, M1 and M4 Pro when hot).
const FASTEST_FIRST: f64 = 0.9;

/// Calls at one row count that splits of about as many rows are held against: more of them than this are no accidents.
pub(super) const DOUBTED_CALLS: usize = 2;

/// Indices of the calls at `rows` that are evidence: kept, and no accident. They are held against each other, against what the first call after
/// the change of arm allows, and, if there are but a few, against splits of about as many rows. A single one is held against a first call as it
/// is, which is otherwise not trusted.
pub(super) fn usable(samples: &[Sample], rows: u32) -> Vec<usize> {
    let kept: Vec<usize> = (0..samples.len())
        .filter(|&index| samples[index].secondary_rows == rows && samples[index].is_kept())
        .collect();
    let few = kept.len() <= DOUBTED_CALLS;
    let near = NEIGHBOURING_ROWS * f64::from(rows);
    let vouches = |sample: &Sample| -> Option<f64> {
        let apart = f64::from(sample.secondary_rows.abs_diff(rows));
        match sample.dropped {
            None if apart == 0.0 || (few && apart <= near) => Some(sample.total_ms),
            Some(DropReason::FirstAfterChange) if kept.len() == 1 && apart <= near => Some(sample.total_ms),
            Some(DropReason::FirstAfterChange) if apart == 0.0 => Some(sample.total_ms / FASTEST_FIRST),
            _ => None,
        }
    };
    let reference = samples.iter().filter_map(vouches).fold(f64::INFINITY, f64::min);
    kept.into_iter().filter(|&index| samples[index].total_ms <= reference * ACCIDENT_FACTOR).collect()
}

/// Usable stock calls paired with usable split calls at `rows`, each used once, nearest in time first: (stock, split) in ms.
pub(super) fn pairs(samples: &[Sample], rows: u32) -> Vec<(f64, f64)> {
    let (stock, split) = (usable(samples, 0), usable(samples, rows));
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
        .filter_map(|sample| {
            Some((sample.secondary_rows, ms_per_row(sample, shape, unit)?, sample.is_kept()))
        })
        .collect()
}

fn ms_per_row(sample: &Sample, shape: Shape, unit: Unit) -> Option<f64> {
    if sample.secondary_rows == 0
        || sample.secondary_rows >= shape.rows()
        || !matches!(sample.dropped, None | Some(DropReason::FirstAfterChange))
    {
        return None;
    }
    let rows = match unit {
        Unit::Primary => shape.rows() - sample.secondary_rows,
        Unit::Secondary => sample.secondary_rows,
    };
    let ms = sample.finish_times?.exact_ms(unit)?;
    (ms.is_finite() && ms > 0.0).then_some(ms / f64::from(rows))
}

/// Values further than this from their median (share) don't count in [`centre`].
const NEAR_MEDIAN: f64 = 0.1;

/// The mean of the values near their median: as robust as the median against one accident, and of a handful of quiet
/// values a quarter less noisy.
fn centre(values: &[f64]) -> Option<f64> {
    let median = median(values)?;
    let near: Vec<f64> =
        values.iter().copied().filter(|value| (value / median - 1.0).abs() <= NEAR_MEDIAN).collect();
    if near.is_empty() { Some(median) } else { Some(near.iter().sum::<f64>() / near.len() as f64) }
}

/// A call that gave a unit more than this many times as many rows as the latest call did, or as few, tells little about it: kernels are slower per
/// row on few rows, and what a part costs beyond its rows weighs more (seen live: a tenth of 1024 rows takes 15 % longer per row than half).
const NEAR_ROWS: f64 = 2.0;
/// As soon as [`ENOUGH_NEAREST`] calls are within this, the others don't count: a part costs something beyond its rows (a kernel packs the
/// whole weight once, say), so that times per row are those of a size.
const NEAREST_ROWS: f64 = 1.4;
/// As many kept calls as average their own noise out to what the bias of farther ones would be.
const ENOUGH_NEAREST: usize = 2;

/// Both units' time per row; each `None` until it was seen. From the split calls that `usable` accepts and whose parts are near in size to those of the
/// latest one, as far as those tell.
pub(super) fn unit_times(
    samples: &[Sample],
    shape: Shape,
    usable: impl Fn(u32) -> bool,
) -> (Option<f64>, Option<f64>) {
    let all = || unit_times_of(samples, shape, &usable);
    let Some(latest) = samples.iter().rev().find(|sample| sample.secondary_rows > 0) else { return all() };
    let within = |factor: f64| {
        let near = move |rows: u32, latest: u32| {
            let (rows, latest) = (f64::from(rows), f64::from(latest));
            rows <= latest * factor && rows * factor >= latest
        };
        let primary = |secondary: u32| shape.rows().saturating_sub(secondary);
        move |rows: u32| {
            near(rows, latest.secondary_rows) && near(primary(rows), primary(latest.secondary_rows))
        }
    };
    let nearest = |rows: u32| usable(rows) && within(NEAREST_ROWS)(rows);
    let enough = samples
        .iter()
        .filter(|sample| sample.is_kept() && sample.secondary_rows > 0 && nearest(sample.secondary_rows))
        .count();
    if enough >= ENOUGH_NEAREST
        && let times @ (Some(_), Some(_)) = unit_times_of(samples, shape, nearest)
    {
        return times;
    }
    let (primary, secondary) = unit_times_of(samples, shape, |rows| usable(rows) && within(NEAR_ROWS)(rows));
    if primary.is_some() && secondary.is_some() {
        return (primary, secondary);
    }
    let all = all();
    (primary.or(all.0), secondary.or(all.1))
}

/// Both units' time per row, from all split calls that `accepts` does; each `None` until it was seen.
///
/// From the kept calls that are no accidents. A time that was hidden behind the other unit's has an upper bound: it counts as the smaller of the bound
/// and what the other calls say, or else only the slow ones of a unit would be seen. A first call after a change of arm is too slow or too fast, but
/// in both units alike: where it tells both, the ratio of the two counts, scaled to the level of the kept ones. Where nothing else is known of a unit it
/// stands in, scaled likewise and within the bound.
fn unit_times_of(
    samples: &[Sample],
    shape: Shape,
    accepts: impl Fn(u32) -> bool,
) -> (Option<f64>, Option<f64>) {
    let accepted = || samples.iter().enumerate().filter(|(_, sample)| accepts(sample.secondary_rows));
    let kept: Vec<&Sample> = accepted()
        .filter(|(index, sample)| usable(samples, sample.secondary_rows).contains(index))
        .map(|(_, sample)| sample)
        .collect();
    let firsts: Vec<&Sample> =
        accepted().map(|(_, sample)| sample).filter(|sample| !sample.is_kept()).collect();
    let bounds = |unit| kept.iter().filter_map(move |sample| hidden_bound(sample, shape, unit));
    let with_hidden = |unit| -> Vec<f64> {
        let mut values: Vec<f64> = kept.iter().filter_map(|sample| ms_per_row(sample, shape, unit)).collect();
        if let Some(seen) = median(&values) {
            values.extend(bounds(unit).map(|bound| bound.min(seen)));
        }
        values
    };
    let stand_in = |unit| -> Option<f64> {
        let scaled = firsts.iter().filter_map(|first| {
            let level = total_ms(samples, first.secondary_rows).map_or(1.0, |ms| ms / first.total_ms);
            Some(ms_per_row(first, shape, unit)? * level)
        });
        let value = median(&scaled.collect::<Vec<_>>())?;
        Some(bounds(unit).fold(value, f64::min))
    };
    let (mut primary, mut secondary) = (with_hidden(Unit::Primary), with_hidden(Unit::Secondary));
    let (Some(p), Some(s)) = (centre(&primary), centre(&secondary)) else {
        let any = |kept: &[f64], unit| centre(kept).or_else(|| stand_in(unit));
        return (any(&primary, Unit::Primary), any(&secondary, Unit::Secondary));
    };
    for first in firsts {
        let both = (ms_per_row(first, shape, Unit::Primary), ms_per_row(first, shape, Unit::Secondary));
        if let (Some(first_p), Some(first_s)) = both {
            let level = ((p * s) / (first_p * first_s)).sqrt();
            primary.push(first_p * level);
            secondary.push(first_s * level);
        }
    }
    (centre(&primary), centre(&secondary))
}

/// Upper bound of a unit's time per row in a call that hid it.
fn hidden_bound(sample: &Sample, shape: Shape, unit: Unit) -> Option<f64> {
    let times = sample.finish_times?;
    if sample.secondary_rows == 0 || sample.secondary_rows >= shape.rows() || times.exact_ms(unit).is_some() {
        return None;
    }
    let (ms, rows) = match unit {
        Unit::Primary => (times.primary_ms, shape.rows() - sample.secondary_rows),
        Unit::Secondary => (times.secondary_ms, sample.secondary_rows),
    };
    (ms.is_finite() && ms > 0.0).then_some(ms / f64::from(rows))
}

/// A count of secondary rows that is a cliff: at least two kept calls there, all of which took far longer a row than those elsewhere.
pub(super) fn shown_cliff(samples: &[Sample], shape: Shape) -> Option<u32> {
    far_slower(samples, shape, |calls| calls >= 2)
}

/// A count of secondary rows where a single kept call took far longer a row than those elsewhere: a cliff or an accident, which a
/// second call tells apart.
pub(super) fn suspected_cliff(samples: &[Sample], shape: Shape) -> Option<u32> {
    far_slower(samples, shape, |calls| calls == 1)
}

/// The latest count of secondary rows whose kept calls, as many as `enough` accepts, are all slower than [`CLIFF_FACTOR`] times the usual
/// elsewhere. First calls after a change of arm count for elsewhere where no kept call does: they are off by much less.
fn far_slower(samples: &[Sample], shape: Shape, enough: impl Fn(usize) -> bool) -> Option<u32> {
    let values = per_row(samples, shape, Unit::Secondary);
    values.iter().rev().map(|value| value.0).find(|&suspect| {
        let of = |here: bool, kept: bool| -> Vec<f64> {
            let wanted = |value: &&(u32, f64, bool)| (value.0 == suspect) == here && value.2 == kept;
            values.iter().filter(wanted).map(|value| value.1).collect()
        };
        let here = of(true, true);
        let lowest = here.iter().copied().fold(f64::INFINITY, f64::min);
        let usual = median(&of(false, true)).or_else(|| median(&of(false, false)));
        enough(here.len()) && usual.is_some_and(|usual| lowest > usual * CLIFF_FACTOR)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::FinishTimes;
    use crate::shape::{Layout, WeightFormat};

    /// A split of 300 of 1000 rows, at 10 µs and 20 µs a row, everything `slower` times as long.
    fn split(slower: f64, first_waited: Unit, dropped: Option<DropReason>) -> Sample {
        let (primary, secondary): (f64, f64) = (7.0 * slower, 6.0 * slower);
        let finish_times = match first_waited {
            Unit::Primary => {
                FinishTimes { primary_ms: primary, secondary_ms: primary.max(secondary), first_waited }
            }
            Unit::Secondary => {
                FinishTimes { primary_ms: primary.max(secondary), secondary_ms: secondary, first_waited }
            }
        };
        Sample { secondary_rows: 300, total_ms: primary, finish_times: Some(finish_times), dropped }
    }

    fn times(samples: &[Sample]) -> (f64, f64) {
        let shape = Shape::parse("1000x64x64", WeightFormat::F16, Layout::default()).unwrap();
        let (primary, secondary) = unit_times(samples, shape, |_| true);
        (primary.unwrap(), secondary.unwrap())
    }

    #[test]
    fn a_unit_that_only_the_first_call_showed_is_not_slower_for_it() {
        let first = split(1.1, Unit::Secondary, Some(DropReason::FirstAfterChange));
        let (primary, secondary) = times(&[first, split(1.0, Unit::Primary, None)]);
        assert!((primary - 0.01).abs() < 1e-9, "{primary}");
        assert!((secondary - 0.02).abs() < 1e-9, "{secondary}");
    }

    #[test]
    fn a_few_calls_are_held_against_their_neighbours() {
        let near =
            |rows: u32, slower: f64| Sample { secondary_rows: rows, ..split(slower, Unit::Primary, None) };
        assert_eq!(usable(&[near(302, 1.0), near(299, 1.5)], 299), Vec::<usize>::new());
        assert_eq!(usable(&[near(302, 1.0), near(299, 1.1)], 299), [1]);
        assert_eq!(usable(&[near(302, 1.0), near(250, 1.5)], 250), [1]);
        // Seen three times it is no accident, unless the first call was faster than a first call can be.
        let mut calls = vec![near(302, 1.0), near(299, 1.5), near(299, 1.5)];
        assert_eq!(usable(&calls, 299), Vec::<usize>::new());
        calls.push(near(299, 1.5));
        assert_eq!(usable(&calls, 299), [1, 2, 3]);
        let first = Sample { dropped: Some(DropReason::FirstAfterChange), ..near(299, 1.0) };
        assert_eq!(usable(&[first, near(299, 1.5), near(299, 1.5)], 299), Vec::<usize>::new());
        assert_eq!(usable(&[first, near(299, 1.1), near(299, 1.5)], 299), [1]);
    }

    #[test]
    fn an_accident_is_no_evidence_of_a_unit() {
        let first = split(1.0, Unit::Secondary, Some(DropReason::FirstAfterChange));
        let calls = [first, split(1.5, Unit::Secondary, None), split(1.0, Unit::Secondary, None)];
        let (primary, secondary) = times(&calls);
        assert!((primary - 0.01).abs() < 1e-9 && (secondary - 0.02).abs() < 1e-9, "{primary}, {secondary}");
    }
}
