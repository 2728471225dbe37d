//! `fusionctl.ratios.list/1`, `fusionctl.ratios.get/1`, `fusionctl.ratios.explain/1` and `fusionctl.ratios.plot/1`.

use std::path::Path;

use fusion_client::v1;
use serde::Serialize;

use super::shared::{Chip, Conditions, Estimate, Interval, Lines, Shape, filled, word};

#[derive(Debug, Serialize)]
pub(crate) struct List {
    ratios: Vec<Estimate>,
}

impl From<&[v1::Estimate]> for List {
    fn from(estimates: &[v1::Estimate]) -> Self {
        Self { ratios: estimates.iter().map(Into::into).collect() }
    }
}

/// The answer for a shape.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    shape: Shape,
    ratio: f64,
    primary_rows: u32,
    secondary_rows: u32,
    source: String,
    stale_reason: Option<String>,
    withheld: Option<String>,
    lines: Option<Lines>,
    conditions: Option<Conditions>,
    chip: Option<Chip>,
    estimate: Option<Estimate>,
}

impl Answer {
    pub(crate) fn new(shape: &v1::Shape, reply: &v1::GetRatioReply) -> Self {
        Self {
            shape: shape.into(),
            ratio: reply.ratio,
            primary_rows: shape.rows.saturating_sub(reply.secondary_rows),
            secondary_rows: reply.secondary_rows,
            source: word(reply.source().as_str_name(), "SOURCE_"),
            stale_reason: filled(&reply.stale_reason),
            withheld: filled(&reply.withheld),
            lines: reply.lines.as_ref().map(Into::into),
            conditions: reply.conditions.as_ref().map(Into::into),
            chip: reply.chip.as_ref().map(Into::into),
            estimate: reply.estimate.as_ref().map(Into::into),
        }
    }
}

/// How an answer comes about.
#[derive(Debug, Serialize)]
pub(crate) struct Explanation {
    summary: String,
    speed_up_any_session: Option<Interval>,
    balanced_ratio: Option<f64>,
    break_even_rows: Option<f64>,
    answer: Answer,
    predicted: Vec<Predicted>,
    points: Vec<Point>,
    not_counted: Vec<NotCounted>,
    cliffs: Vec<Cliff>,
    considered: Vec<Considered>,
    samples: Vec<Sample>,
}

#[derive(Debug, Serialize)]
struct Predicted {
    secondary_rows: u32,
    primary_ms: f64,
    secondary_ms: f64,
}

#[derive(Debug, Serialize)]
struct Point {
    secondary_rows: u32,
    total_ms: Option<Interval>,
    fastest_ms: Option<f64>,
    slowest_ms: Option<f64>,
    counted: u32,
    not_counted: u32,
    primary_ms: Option<f64>,
    secondary_ms: Option<f64>,
    fate: String,
    reason: String,
}

#[derive(Debug, Serialize)]
struct NotCounted {
    reason: String,
    calls: u32,
}

#[derive(Debug, Serialize)]
struct Cliff {
    secondary_rows: u32,
    minimum_inputs: u32,
    found_by: String,
    discovered: bool,
}

/// A picture that was written.
#[derive(Debug, Serialize)]
pub(crate) struct Plot {
    shape: Shape,
    path: String,
    format: &'static str,
    bytes: usize,
}

impl Plot {
    pub(crate) fn new(shape: &v1::Shape, path: &Path, format: &'static str, bytes: usize) -> Self {
        Self { shape: shape.into(), path: path.display().to_string(), format, bytes }
    }
}

#[derive(Debug, Serialize)]
struct Considered {
    chosen: bool,
    reason: String,
    estimate: Option<Estimate>,
}

#[derive(Debug, Serialize)]
struct Sample {
    secondary_rows: u32,
    total_ms: f64,
    primary_finish_ms: Option<f64>,
    secondary_finish_ms: Option<f64>,
    secondary_waited_first: bool,
    dropped_reason: Option<String>,
}

impl Explanation {
    pub(crate) fn new(shape: &v1::Shape, reply: &v1::ExplainRatioReply) -> Self {
        Self {
            summary: reply.summary.clone(),
            speed_up_any_session: reply.speed_up_any_session.as_ref().map(Into::into),
            balanced_ratio: reply.balanced_ratio,
            break_even_rows: reply.break_even_rows,
            answer: Answer::new(shape, &reply.answer.clone().unwrap_or_default()),
            predicted: reply.predicted.iter().map(Into::into).collect(),
            points: reply.points.iter().map(Into::into).collect(),
            not_counted: reply.not_counted.iter().map(Into::into).collect(),
            cliffs: reply.cliffs.iter().map(Into::into).collect(),
            considered: reply
                .considered
                .iter()
                .map(|considered| Considered {
                    chosen: considered.chosen,
                    reason: considered.reason.clone(),
                    estimate: considered.estimate.as_ref().map(Into::into),
                })
                .collect(),
            samples: reply.samples.iter().map(Into::into).collect(),
        }
    }
}

impl From<&v1::Predicted> for Predicted {
    fn from(wire: &v1::Predicted) -> Self {
        let v1::Predicted { secondary_rows, primary_ms, secondary_ms } = *wire;
        Self { secondary_rows, primary_ms, secondary_ms }
    }
}

impl From<&v1::MeasuredPoint> for Point {
    fn from(point: &v1::MeasuredPoint) -> Self {
        Self {
            secondary_rows: point.secondary_rows,
            total_ms: point.total_ms.as_ref().map(Into::into),
            fastest_ms: point.fastest_ms,
            slowest_ms: point.slowest_ms,
            counted: point.counted,
            not_counted: point.not_counted,
            primary_ms: point.primary_ms,
            secondary_ms: point.secondary_ms,
            fate: word(point.fate().as_str_name(), "FATE_"),
            reason: point.reason.clone(),
        }
    }
}

impl From<&v1::NotCounted> for NotCounted {
    fn from(wire: &v1::NotCounted) -> Self {
        Self { reason: wire.reason.clone(), calls: wire.calls }
    }
}

impl From<&v1::KnownCliff> for Cliff {
    fn from(wire: &v1::KnownCliff) -> Self {
        Self {
            secondary_rows: wire.secondary_rows,
            minimum_inputs: wire.minimum_inputs,
            found_by: wire.found_by.clone(),
            discovered: wire.discovered,
        }
    }
}

impl From<&v1::Sample> for Sample {
    fn from(sample: &v1::Sample) -> Self {
        Self {
            secondary_rows: sample.secondary_rows,
            total_ms: sample.total_ms,
            primary_finish_ms: sample.primary_finish_ms,
            secondary_finish_ms: sample.secondary_finish_ms,
            secondary_waited_first: sample.secondary_waited_first,
            dropped_reason: filled(&sample.dropped_reason),
        }
    }
}
