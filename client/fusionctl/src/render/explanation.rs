//! How the answer for one shape comes about.

use fusion_client::v1;

use super::answer;
use super::table::{Column, Field, fields, table};
use super::words;
use crate::output::Output;

/// How an answer comes about: the answer, the lines, what was measured and rejected, what doesn't count, what else was considered.
pub(crate) fn explanation(shape: &v1::Shape, reply: &v1::ExplainRatioReply, output: Output) -> String {
    let ratio = reply.answer.clone().unwrap_or_default();
    let mut text = fields(&facts(shape, &ratio, reply, output), output);
    let mut section = |title: &str, body: String| text += &format!("\n {}\n{body}", output.bold(title));
    if let Some(known) = ratio.lines.as_ref() {
        section("lines", lines(shape, known, reply, output));
    }
    if !reply.points.is_empty() {
        section(&points_title(shape, &ratio), points(&reply.points, output));
    }
    if !reply.not_counted.is_empty() {
        section("calls that don't count", not_counted(&reply.not_counted, output));
    }
    if !reply.cliffs.is_empty() {
        section("cliffs: row counts that are never chosen", cliffs(&reply.cliffs, output));
    }
    if !reply.considered.is_empty() {
        section("considered", considered(&reply.considered, output));
    }
    text
}

fn facts(
    shape: &v1::Shape,
    ratio: &v1::GetRatioReply,
    reply: &v1::ExplainRatioReply,
    output: Output,
) -> Vec<Field> {
    let chip = ratio.chip.as_ref();
    let label = chip.map(|chip| chip.pair_label.clone()).filter(|label| !label.is_empty());
    let estimate = ratio.estimate.as_ref();
    vec![
        ("shape", Some(words::shape(shape, true))),
        ("answer", Some(reply.summary.clone())),
        ("source", Some(answer::source(ratio.source()).to_owned())),
        ("stale", Some(ratio.stale_reason.clone()).filter(|reason| !reason.is_empty())),
        ("speed-up", estimate.map(|known| format!("{} (95 % interval)", words::interval(known.speed_up)))),
        (
            "other days",
            reply.speed_up_any_session.map(|any| {
                format!("{} (with the spread between sessions of one machine)", words::interval(Some(any)))
            }),
        ),
        (
            "from",
            estimate.map(|known| {
                let calls = known.kept_samples.saturating_add(known.dropped_samples);
                format!(
                    "{}, {}; {} of {calls} calls kept",
                    words::provenance(known),
                    words::moment(known.measured_at_unix_ms),
                    known.kept_samples
                )
            }),
        ),
        ("chip", chip.map(words::chip)),
        ("pair", label.map(|label| output.yellow(&label))),
        ("conditions", Some(words::conditions(ratio.conditions.as_ref()))),
        ("engine", estimate.and_then(|known| known.engine.as_ref()).map(words::engine)),
    ]
}

fn lines(shape: &v1::Shape, lines: &v1::Lines, reply: &v1::ExplainRatioReply, output: Output) -> String {
    let rows = f64::from(shape.rows);
    let a_row = |ms_per_row: f64, meaning: &str| {
        format!(
            "{} ms a row; {} ms for all {} rows{meaning}",
            words::fine_ms(ms_per_row),
            words::ms(ms_per_row * rows),
            shape.rows
        )
    };
    let balance = reply.balanced_ratio.map(|ratio| {
        let secondary = (ratio * rows).round();
        let at = reply.predicted.iter().find(|at| f64::from(at.secondary_rows) == secondary);
        let ms = at.map(|at| format!(", predicted {} ms", words::ms(at.primary_ms.max(at.secondary_ms))));
        format!("ratio {}: {secondary:.0} rows{}", words::ratio(ratio), ms.unwrap_or_default())
    });
    let break_even = reply
        .break_even_rows
        .map_or_else(|| "never, or not known".to_owned(), |rows| format!("predicted from {rows:.0} rows on"));
    fields(
        &[
            ("primary unit", Some(a_row(lines.primary_ms_per_row, ""))),
            ("secondary unit", Some(a_row(lines.secondary_ms_per_row, ""))),
            ("stock", Some(a_row(lines.stock_ms_per_row, " (the primary unit alone)"))),
            ("overhead", Some(format!("{} ms a split", words::ms(lines.overhead_ms)))),
            ("balance", balance),
            ("a split gains", Some(break_even)),
        ],
        output,
    )
}

/// The points are those of the estimate, which may be of another number of rows.
fn points_title(shape: &v1::Shape, ratio: &v1::GetRatioReply) -> String {
    let measured = ratio.estimate.as_ref().and_then(|known| known.shape.as_ref());
    match measured.filter(|measured| *measured != shape) {
        Some(other) => format!("measured, at {} rows", other.rows),
        None => "measured".to_owned(),
    }
}

fn points(all: &[v1::MeasuredPoint], output: Output) -> String {
    let stacks = [
        (Column::number("2nd rows", |p: &v1::MeasuredPoint| p.secondary_rows.to_string()), None),
        (Column::text("ms [95 %]", |p| interval_ms(p.total_ms)), Some(Column::text("spread ms", spread))),
        (
            Column::number("1st ms", |p: &v1::MeasuredPoint| finish(p.primary_ms)),
            Some(Column::number("2nd ms", |p| finish(p.secondary_ms))),
        ),
        (
            Column::number("calls", |p: &v1::MeasuredPoint| {
                format!("{} of {}", p.counted, p.counted.saturating_add(p.not_counted))
            }),
            None,
        ),
        (Column::text("result", |p: &v1::MeasuredPoint| p.reason.clone()), None),
    ];
    table(all, &stacks, output)
}

fn interval_ms(ms: Option<v1::Interval>) -> String {
    ms.map_or_else(
        || "-".to_owned(),
        |ms| format!("{} [{}, {}]", words::ms(ms.value), words::ms(ms.low), words::ms(ms.high)),
    )
}

fn spread(point: &v1::MeasuredPoint) -> String {
    match (point.fastest_ms, point.slowest_ms) {
        (Some(fastest), Some(slowest)) => format!("{} to {}", words::ms(fastest), words::ms(slowest)),
        _ => "-".to_owned(),
    }
}

fn finish(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), words::ms)
}

fn not_counted(all: &[v1::NotCounted], output: Output) -> String {
    let stacks = [
        (Column::number("calls", |n: &v1::NotCounted| n.calls.to_string()), None),
        (Column::text("why", |n: &v1::NotCounted| n.reason.clone()), None),
    ];
    table(all, &stacks, output)
}

fn cliffs(all: &[v1::KnownCliff], output: Output) -> String {
    let stacks = [
        (Column::number("2nd rows", |c: &v1::KnownCliff| c.secondary_rows.to_string()), None),
        (
            Column::text("for layers with", |c: &v1::KnownCliff| {
                format!("{} inputs and more", c.minimum_inputs)
            }),
            None,
        ),
        (Column::text("found by", |c: &v1::KnownCliff| c.found_by.clone()), None),
    ];
    table(all, &stacks, output)
}

fn considered(all: &[v1::Considered], output: Output) -> String {
    let stacks = [
        (
            Column::text("", |c: &v1::Considered| if c.chosen { "chosen" } else { "passed" }.to_owned()),
            Some(Column::text("shape", |c: &v1::Considered| {
                c.estimate
                    .as_ref()
                    .and_then(|e| e.shape.as_ref())
                    .map(|s| words::shape(s, false))
                    .unwrap_or_default()
            })),
        ),
        (
            Column::number("ratio", |c| {
                c.estimate.as_ref().map_or_else(String::new, |e| words::ratio(e.ratio))
            }),
            None,
        ),
        (
            Column::text("from", |c| c.estimate.as_ref().map_or_else(String::new, words::provenance)),
            Some(Column::text("conditions", |c: &v1::Considered| {
                words::conditions(c.estimate.as_ref().and_then(|e| e.conditions.as_ref()))
            })),
        ),
        (Column::text("reason", |c| c.reason.clone()), None),
    ];
    table(all, &stacks, output)
}
