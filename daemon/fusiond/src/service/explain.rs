//! How an answer comes about, in the wire's words.

use std::fmt::Write;

use fusion_calibrations::chip::{Chip, Pair};
use fusion_calibrations::chips;
use fusion_calibrations::estimate::Origin;
use fusion_calibrations::lookup::{Answer, Source};
use fusion_calibrations::sample::Sample;
use fusion_calibrations::search::Rejection;
use fusion_calibrations::search::points::{self, Fate, Point};
use fusion_calibrations::shape::Shape;
use fusion_proto::v1;

use crate::table::LearntCliff;

/// What a kept call is that took far longer than another of the same rows.
const ACCIDENT: &str = "far slower than another call of the same rows";

/// The answer in a sentence or two.
pub(super) fn summary(shape: Shape, answer: &Answer<'_>, chip: &Chip) -> String {
    let mut text = match answer.zero {
        None => format!(
            "{} of {} rows go to the secondary unit (ratio {})",
            answer.secondary_rows,
            shape.rows(),
            answer.ratio
        ),
        Some(reason) => format!("No split: {reason}"),
    };
    let measured = match chip.pair {
        Pair::Recorded => "replayed from recordings",
        Pair::Modelled => "modelled",
        _ => "measured",
    };
    let basis = match answer.source {
        Source::Exact => format!("{measured} for this shape under these conditions"),
        Source::OtherConditions => format!("{measured} for this shape under other conditions"),
        Source::OtherRows => format!("from the lines of this layer, {measured} at another number of rows"),
        Source::OtherEngine => format!("{measured} by another OS build or MLX library"),
        Source::ChipPrior => "from the shipped prior of this chip".to_owned(),
        Source::None => String::new(),
    };
    if !basis.is_empty() {
        let _ = write!(text, ", {basis}");
    }
    if let Some(estimate) = answer.estimate {
        text.push_str(match estimate.provenance.origin() {
            Origin::Here => "",
            Origin::EqualMachine => ", on an equal machine (imported)",
            Origin::Elsewhere => ", on a machine with another chip (a first guess)",
        });
        let speed_up = estimate.speed_up;
        let _ = write!(
            text,
            "; the best split was {:.3} times as fast as stock (95 % interval {:.3} to {:.3})",
            speed_up.value, speed_up.low, speed_up.high
        );
    }
    text.push('.');
    text
}

/// The lines at both ends, at the balance, at the answer, and at every row count of `points`.
pub(super) fn predicted(shape: Shape, answer: &Answer<'_>, points: &[Point]) -> Vec<v1::Predicted> {
    let Some(lines) = answer.lines else { return Vec::new() };
    let all = shape.rows();
    let balance = (lines.balanced_ratio().get() * f64::from(all)).round() as u32;
    let mut rows = vec![0, balance, answer.secondary_rows, all];
    rows.extend(points.iter().map(|point| point.secondary_rows).filter(|rows| *rows < all));
    rows.sort_unstable();
    rows.dedup();
    rows.into_iter()
        .map(|secondary_rows| v1::Predicted {
            secondary_rows,
            primary_ms: lines.primary_ms_per_row * f64::from(all - secondary_rows) + lines.overhead_ms,
            secondary_ms: lines.secondary_ms_per_row * f64::from(secondary_rows) + lines.overhead_ms,
        })
        .collect()
}

pub(super) fn point(point: &Point) -> v1::MeasuredPoint {
    v1::MeasuredPoint {
        secondary_rows: point.secondary_rows,
        total_ms: point.total_ms.map(Into::into),
        fastest_ms: point.spread_ms.map(|spread| spread.0),
        slowest_ms: point.spread_ms.map(|spread| spread.1),
        counted: point.counted,
        not_counted: point.not_counted,
        primary_ms: point.primary_ms,
        secondary_ms: point.secondary_ms,
        fate: fate(point.fate).into(),
        reason: point.fate.to_string(),
    }
}

fn fate(fate: Fate) -> v1::Fate {
    match fate {
        Fate::Stock => v1::Fate::Stock,
        Fate::Chosen => v1::Fate::Chosen,
        Fate::Unjudged => v1::Fate::Unjudged,
        Fate::Rejected(Rejection::Slower) => v1::Fate::Slower,
        Fate::Rejected(Rejection::Cliff) => v1::Fate::Cliff,
        Fate::Rejected(Rejection::DiscoveredCliff) => v1::Fate::DiscoveredCliff,
        Fate::Rejected(Rejection::NotBetterThanStock) => v1::Fate::NotBetterThanStock,
    }
}

pub(super) fn not_counted(samples: &[Sample]) -> Vec<v1::NotCounted> {
    points::not_counted(samples)
        .into_iter()
        .map(|(reason, calls)| v1::NotCounted {
            reason: reason.map_or_else(|| ACCIDENT.to_owned(), |reason| reason.to_string()),
            calls,
        })
        .collect()
}

/// The cliffs that splits of `shape` have on a chip, shipped ones first.
pub(super) fn cliffs(chip: &Chip, shape: Shape, learnt: &[LearntCliff]) -> Vec<v1::KnownCliff> {
    let shipped = chips::row_rule(chip).cliffs.into_iter().map(|cliff| v1::KnownCliff {
        secondary_rows: cliff.secondary_rows,
        minimum_inputs: cliff.minimum_inputs,
        found_by: "shipped with fusiond".to_owned(),
        discovered: false,
    });
    let learnt = learnt.iter().map(|learnt| v1::KnownCliff {
        secondary_rows: learnt.cliff.secondary_rows,
        minimum_inputs: learnt.cliff.minimum_inputs,
        found_by: format!("the calibration of {}", learnt.record.estimate.shape),
        discovered: true,
    });
    let matters = |cliff: &v1::KnownCliff| {
        shape.layer().inputs() >= cliff.minimum_inputs && cliff.secondary_rows < shape.rows()
    };
    shipped.chain(learnt).filter(matters).collect()
}
