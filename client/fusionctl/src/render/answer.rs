//! The answer for one shape, and how it comes about.

use fusion_client::v1;

use super::table::{Column, Field, fields, table};
use super::words;
use crate::output::Output;

/// The answer for a shape.
pub(crate) fn answer(shape: &v1::Shape, reply: &v1::GetRatioReply, output: Output) -> String {
    fields(&facts(shape, reply, output), output)
}

fn facts(shape: &v1::Shape, reply: &v1::GetRatioReply, output: Output) -> Vec<Field> {
    let estimate = reply.estimate.as_ref();
    let chip = reply.chip.as_ref();
    let label = chip.map(|chip| chip.pair_label.clone()).filter(|label| !label.is_empty());
    let rows = format!(
        "{} on the primary unit, {} on the secondary",
        shape.rows.saturating_sub(reply.secondary_rows),
        reply.secondary_rows
    );
    vec![
        ("shape", Some(words::shape(shape, true))),
        (
            "ratio",
            Some(format!(
                "{}{}",
                words::ratio(reply.ratio),
                if reply.ratio == 0.0 { " (no split)" } else { "" }
            )),
        ),
        ("rows", Some(rows)),
        ("source", Some(source(reply.source()).to_owned())),
        ("stock", estimate.map(|known| format!("{} ms", words::ms(known.stock_ms)))),
        (
            "split",
            estimate
                .filter(|known| known.ratio > 0.0)
                .map(|known| format!("{} ms", words::ms(known.split_ms))),
        ),
        ("speed-up", estimate.map(|known| format!("{} (95 % interval)", words::interval(known.speed_up)))),
        (
            "samples",
            estimate.map(|known| format!("{} kept, {} dropped", known.kept_samples, known.dropped_samples)),
        ),
        (
            "from",
            estimate.map(|known| {
                format!("{}, {}", words::provenance(known), words::moment(known.measured_at_unix_ms))
            }),
        ),
        ("stale", Some(reply.stale_reason.clone()).filter(|reason| !reason.is_empty())),
        ("lines", reply.lines.as_ref().map(lines)),
        ("chip", chip.map(words::chip)),
        ("pair", label.map(|label| output.yellow(&label))),
        ("conditions", Some(words::conditions(reply.conditions.as_ref()))),
    ]
}

/// How an answer comes about.
pub(crate) fn explanation(shape: &v1::Shape, reply: &v1::ExplainRatioReply, output: Output) -> String {
    let break_even = reply
        .break_even_rows
        .map_or_else(|| "never, or not known".to_owned(), |rows| format!("predicted from {rows:.0} rows on"));
    let mut facts = facts(shape, &reply.answer.clone().unwrap_or_default(), output);
    facts.extend([("because", Some(reply.summary.clone())), ("gains", Some(break_even))]);
    let mut text = fields(&facts, output);
    if !reply.considered.is_empty() {
        text += &format!("\n {}\n{}", output.bold("considered"), considered(&reply.considered, output));
    }
    if !reply.samples.is_empty() {
        text += &format!("\n {}\n{}", output.bold("samples"), samples(&reply.samples, output));
    }
    text
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

fn samples(all: &[v1::Sample], output: Output) -> String {
    let stacks = [
        (Column::number("2nd rows", |s: &v1::Sample| s.secondary_rows.to_string()), None),
        (Column::number("total ms", |s| words::ms(s.total_ms)), None),
        (Column::number("1st ms", |s| finish(s.primary_finish_ms)), None),
        (Column::number("2nd ms", |s| finish(s.secondary_finish_ms)), None),
        (Column::text("dropped because", |s| s.dropped_reason.clone()), None),
    ];
    table(all, &stacks, output)
}

fn finish(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), words::ms)
}

fn lines(lines: &v1::Lines) -> String {
    format!(
        "{:.2} us a row on the primary unit, {:.2} on the secondary, {:.2} on stock; {:.0} us a split",
        lines.primary_ms_per_row * 1e3,
        lines.secondary_ms_per_row * 1e3,
        lines.stock_ms_per_row * 1e3,
        lines.overhead_ms * 1e3
    )
}

fn source(source: v1::Source) -> &'static str {
    match source {
        v1::Source::Exact => "this shape under these conditions",
        v1::Source::OtherConditions => "this shape under the nearest known conditions",
        v1::Source::OtherRows => "this layer at another number of rows, through its lines",
        v1::Source::OtherEngine => "this layer, measured with another OS build or MLX library",
        v1::Source::ChipPrior => "the prior of this kind of chip",
        v1::Source::None => "nothing is known: measure with 'fusionctl calibrate'",
        v1::Source::Unspecified => "a source that this version doesn't know: update fusionctl",
    }
}
