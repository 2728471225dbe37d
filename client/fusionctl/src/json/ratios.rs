//! `fusionctl.ratios.list/1`, `fusionctl.ratios.get/1` and `fusionctl.ratios.explain/1`.

use fusion_client::v1;
use serde::Serialize;

use super::shared::{Chip, Conditions, Estimate, Lines, Shape, filled, word};

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
    break_even_rows: Option<f64>,
    answer: Answer,
    considered: Vec<Considered>,
    samples: Vec<Sample>,
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
            break_even_rows: reply.break_even_rows,
            answer: Answer::new(shape, &reply.answer.clone().unwrap_or_default()),
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
