//! What the samples of a stored calibration say, row count by row count: for explaining and drawing it.
//!
//! A record keeps raw samples and what was concluded. The points, what was rejected and why, and the cliffs that the samples show follow from these, so
//! they are derived here and stored nowhere.

use std::fmt;

use super::{Rejection, evidence};
use crate::estimate::Estimate;
use crate::rows::{Cliff, RowRule};
use crate::sample::{DropReason, FinishTimes, Sample, Unit};
use crate::shape::Shape;
use crate::stats::{CONFIDENCE, Interval, median, median_interval};

/// Calls of an earlier calibration that are kept for one cliff: as many as it takes to call it one.
const CALLS_PER_CLIFF: usize = 2;

/// The calls with one number of secondary rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Rows of the secondary unit; 0 is stock.
    pub secondary_rows: u32,
    /// Median time of the calls that count with its 95 % interval, in ms; `None` if none counts.
    pub total_ms: Option<Interval>,
    /// The fastest and the slowest of them, in ms.
    pub spread_ms: Option<(f64, f64)>,
    /// Calls that count.
    pub counted: u32,
    /// Calls that don't: dropped, or an accident.
    pub not_counted: u32,
    /// Median of the primary unit's exact finish times in calls that count, in ms.
    pub primary_ms: Option<f64>,
    /// The same of the secondary unit.
    pub secondary_ms: Option<f64>,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a row count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Stock: what splits are compared with; it is also the choice where no split is.
    Stock,
    /// The choice.
    Chosen,
    /// Not the choice.
    Rejected(Rejection),
    /// No call of it counts: it helped to find the lines at most.
    Unjudged,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stock => f.write_str("stock"),
            Self::Chosen => f.write_str("chosen"),
            Self::Rejected(why) => why.fmt(f),
            Self::Unjudged => f.write_str("none of its calls counts"),
        }
    }
}

/// Every row count of a calibration, rising: those that were measured, and the cliffs of `rule` that were left out.
pub fn points(estimate: &Estimate, samples: &[Sample], rule: &RowRule) -> Vec<Point> {
    let shape = estimate.shape;
    let discovered = cliffs(samples, shape);
    let mut rows: Vec<u32> = samples.iter().map(|sample| sample.secondary_rows).collect();
    let known = rule.cliffs.iter().map(|cliff| cliff.secondary_rows);
    rows.extend(known.filter(|rows| *rows < shape.rows() && rule.is_cliff(*rows, shape.layer().inputs())));
    rows.sort_unstable();
    rows.dedup();
    let best = compared(&rows, samples);
    let fate = |rows: u32, counted: usize| {
        if rows == 0 {
            Fate::Stock
        } else if rows == estimate.secondary_rows {
            Fate::Chosen
        } else if discovered.iter().any(|cliff| cliff.secondary_rows == rows) {
            Fate::Rejected(Rejection::DiscoveredCliff)
        } else if rule.is_cliff(rows, shape.layer().inputs()) {
            Fate::Rejected(Rejection::Cliff)
        } else if counted == 0 {
            Fate::Unjudged
        } else if estimate.secondary_rows == 0 && best == Some(rows) {
            Fate::Rejected(Rejection::NotBetterThanStock)
        } else {
            Fate::Rejected(Rejection::Slower)
        }
    };
    rows.into_iter()
        .map(|rows| {
            let usable = evidence::usable(samples, rows);
            Point { fate: fate(rows, usable.len()), ..point(rows, samples, &usable) }
        })
        .collect()
}

/// The split that was compared with stock: that with the most calls that count, the fastest of several.
fn compared(rows: &[u32], samples: &[Sample]) -> Option<u32> {
    let times = |rows: u32| evidence::usable_totals(samples, rows);
    let time = |rows: u32| median(&times(rows)).unwrap_or(f64::INFINITY);
    rows.iter()
        .copied()
        .filter(|rows| *rows > 0 && !times(*rows).is_empty())
        .max_by(|a, b| times(*a).len().cmp(&times(*b).len()).then(time(*b).total_cmp(&time(*a))))
}

fn point(rows: u32, samples: &[Sample], usable: &[usize]) -> Point {
    let all = samples.iter().filter(|sample| sample.secondary_rows == rows).count();
    let totals: Vec<f64> = usable.iter().map(|index| samples[*index].total_ms).collect();
    let finish = |unit| {
        let exact = |index: &usize| samples[*index].finish_times.and_then(|t: FinishTimes| t.exact_ms(unit));
        median(&usable.iter().filter_map(exact).collect::<Vec<f64>>())
    };
    let fastest = totals.iter().copied().min_by(f64::total_cmp);
    let slowest = totals.iter().copied().max_by(f64::total_cmp);
    Point {
        secondary_rows: rows,
        total_ms: median_interval(&totals, CONFIDENCE),
        spread_ms: fastest.zip(slowest),
        counted: u32::try_from(usable.len()).unwrap_or(u32::MAX),
        not_counted: u32::try_from(all - usable.len()).unwrap_or(u32::MAX),
        primary_ms: finish(Unit::Primary),
        secondary_ms: finish(Unit::Secondary),
        fate: Fate::Unjudged,
    }
}

/// Why calls don't count, and how many: rising by their number, accidents (kept calls far slower than others of the same rows) as `None`.
pub fn not_counted(samples: &[Sample]) -> Vec<(Option<DropReason>, u32)> {
    let mut counts: Vec<(Option<DropReason>, u32)> = Vec::new();
    for (index, sample) in samples.iter().enumerate() {
        if sample.is_kept() && evidence::usable(samples, sample.secondary_rows).contains(&index) {
            continue;
        }
        match counts.iter_mut().find(|(reason, _)| *reason == sample.dropped) {
            Some((_, count)) => *count += 1,
            None => counts.push((sample.dropped, 1)),
        }
    }
    counts.sort_by_key(|(_, count)| *count);
    counts
}

/// The cliffs that the samples of a calibration of `shape` show: those that its search discovered, and those that an earlier one did
/// ([`DropReason::EarlierCliff`]).
pub fn cliffs(samples: &[Sample], shape: Shape) -> Vec<Cliff> {
    let mut rows: Vec<u32> = samples
        .iter()
        .filter(|sample| sample.dropped == Some(DropReason::EarlierCliff))
        .map(|sample| sample.secondary_rows)
        .collect();
    // As the search saw them: call by call.
    rows.extend((1..=samples.len()).filter_map(|calls| evidence::shown_cliff(&samples[..calls], shape)));
    rows.sort_unstable();
    rows.dedup();
    rows.into_iter()
        .map(|secondary_rows| Cliff { secondary_rows, minimum_inputs: shape.layer().inputs() })
        .collect()
}

/// The calls that show the cliffs of a calibration, marked for the record of the next one, which won't look there again.
pub fn cliff_evidence(samples: &[Sample], shape: Shape) -> Vec<Sample> {
    cliffs(samples, shape)
        .into_iter()
        .flat_map(|cliff| {
            let shows = move |sample: &&Sample| {
                sample.secondary_rows == cliff.secondary_rows
                    && matches!(sample.dropped, None | Some(DropReason::EarlierCliff))
            };
            samples.iter().filter(shows).take(CALLS_PER_CLIFF)
        })
        .map(|sample| Sample { dropped: Some(DropReason::EarlierCliff), ..*sample })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chips;
    use crate::conditions::Conditions;
    use crate::estimate::Provenance;
    use crate::ratio::Ratio;
    use crate::search::{Ask, Options, Outcome, Search, Step};
    use crate::shape::{Layer, Layout, WeightFormat};

    const ROWS: u32 = 512;

    fn shape() -> Shape {
        Layer::new(14336, 4096, WeightFormat::F16, Layout::default()).unwrap().with_rows(ROWS).unwrap()
    }

    /// Stock takes 10 us a row, the secondary unit `slower` times that, and four times as long near `cliff`.
    fn call(ask: Ask, slower: f64, cliff: u32) -> Sample {
        let rows = ask.secondary_rows();
        let primary_ms = f64::from(ROWS - rows) * 0.01;
        let Ask::Split { first_waited, .. } = ask else {
            return Sample { secondary_rows: 0, total_ms: primary_ms, finish_times: None, dropped: None };
        };
        let secondary_ms =
            f64::from(rows) * 0.01 * slower * if cliff > 0 && rows.abs_diff(cliff) <= 5 { 4.0 } else { 1.0 };
        Sample {
            secondary_rows: rows,
            total_ms: primary_ms.max(secondary_ms),
            finish_times: Some(FinishTimes { primary_ms, secondary_ms, first_waited }),
            dropped: None,
        }
    }

    fn search(slower: f64, cliff: u32, rule: RowRule) -> (Outcome, Vec<Sample>) {
        let mut search = Search::new(shape(), Options { rule, ..Options::default() });
        loop {
            match search.next() {
                Step::Measure(ask) => search.tell(call(ask, slower, cliff)).unwrap(),
                Step::Done(outcome) => return (*outcome, search.samples().to_vec()),
            }
        }
    }

    fn estimate(outcome: &Outcome) -> Estimate {
        Estimate {
            shape: shape(),
            conditions: Conditions::default(),
            lines: outcome.lines,
            ratio: outcome.ratio,
            secondary_rows: outcome.secondary_rows,
            stock_ms: outcome.stock_ms.unwrap(),
            split_ms: outcome.split_ms.unwrap(),
            speed_up: outcome.speed_up.unwrap(),
            kept_samples: 1,
            dropped_samples: 0,
            relative_error: None,
            measured_at_unix_ms: 0,
            provenance: Provenance::Measured,
        }
    }

    #[test]
    fn every_call_is_in_one_point_and_every_point_has_a_fate() {
        let (outcome, samples) = search(2.0, 170, RowRule::default());
        let points = points(&estimate(&outcome), &samples, &RowRule::default());
        let calls: u32 = points.iter().map(|point| point.counted + point.not_counted).sum();
        assert_eq!(calls as usize, samples.len());
        assert_eq!(points[0].fate, Fate::Stock);
        let chosen: Vec<u32> =
            points.iter().filter(|p| p.fate == Fate::Chosen).map(|p| p.secondary_rows).collect();
        assert_eq!(chosen, [outcome.secondary_rows]);
        let stock = points[0].total_ms.unwrap();
        assert!((stock.value - 5.12).abs() < 1e-9 && stock.low < 5.12 && stock.high > 5.12);
        for (rows, why) in &outcome.rejected {
            let point = points.iter().find(|point| point.secondary_rows == *rows).unwrap();
            assert!(matches!(point.fate, Fate::Rejected(found) if found == *why) || point.counted == 0);
        }
        let dropped: u32 = not_counted(&samples).iter().map(|(_, count)| count).sum();
        assert_eq!(dropped, points.iter().map(|point| point.not_counted).sum::<u32>());
    }

    #[test]
    fn a_split_that_loses_to_stock_says_so() {
        let samples: Vec<Sample> = [0, 0, 256, 256, 0]
            .map(|rows| {
                let ask = Ask::Split { secondary_rows: rows, first_waited: Unit::Primary };
                if rows == 0 { call(Ask::Stock, 9.0, 0) } else { call(ask, 9.0, 0) }
            })
            .to_vec();
        let (outcome, _) = search(9.0, 0, RowRule::default());
        let lost = Estimate { ratio: Ratio::ZERO, secondary_rows: 0, ..estimate(&outcome) };
        let points = points(&lost, &samples, &RowRule::default());
        assert_eq!(points[1].fate, Fate::Rejected(Rejection::NotBetterThanStock));
    }

    #[test]
    fn known_cliffs_are_listed_though_never_measured() {
        let rule = RowRule { cliffs: vec![Cliff { secondary_rows: 256, minimum_inputs: 4096 }], ..chips() };
        let (outcome, samples) = search(2.0, 0, rule.clone());
        let points = points(&estimate(&outcome), &samples, &rule);
        let cliff = points.iter().find(|point| point.secondary_rows == 256).unwrap();
        assert_eq!((cliff.counted, cliff.fate), (0, Fate::Rejected(Rejection::Cliff)));
    }

    fn chips() -> RowRule {
        chips::find("m4").unwrap().row_rule.clone()
    }

    #[test]
    fn a_cliff_outlives_the_calibration_that_found_it() {
        let (outcome, samples) = search(2.0, 170, RowRule::default());
        let [cliff] = outcome.discovered_cliffs[..] else { panic!("{outcome:?}") };
        assert_eq!(cliffs(&samples, shape()), [cliff]);
        let points = points(&estimate(&outcome), &samples, &RowRule::default());
        let point = points.iter().find(|point| point.secondary_rows == cliff.secondary_rows).unwrap();
        assert_eq!(point.fate, Fate::Rejected(Rejection::DiscoveredCliff));

        let rule = RowRule { cliffs: vec![cliff], ..RowRule::default() };
        let mut kept = cliff_evidence(&samples, shape());
        assert_eq!(kept.len(), CALLS_PER_CLIFF);
        for _ in 0..3 {
            // Elsewhere now, so that nothing new is found.
            let (_, mut samples) = search(2.0, cliff.secondary_rows + 6, rule.clone());
            assert_eq!(samples.iter().find(|sample| sample.secondary_rows == cliff.secondary_rows), None);
            samples.extend(kept);
            assert_eq!(cliffs(&samples, shape()), [cliff]);
            kept = cliff_evidence(&samples, shape());
        }
    }

    #[test]
    fn a_quiet_search_shows_no_cliff() {
        assert_eq!(cliffs(&search(3.0, 0, RowRule::default()).1, shape()), []);
    }
}
