//! The answer for one shape.

use fusion_client::v1;

use super::table::{Field, fields};
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
        (
            "withheld",
            Some(reply.withheld.clone()).filter(|why| !why.is_empty()).map(|why| output.yellow(&why)),
        ),
        ("stale", Some(reply.stale_reason.clone()).filter(|reason| !reason.is_empty())),
        ("lines", reply.lines.as_ref().map(lines)),
        ("chip", chip.map(words::chip)),
        ("pair", label.map(|label| output.yellow(&label))),
        ("conditions", Some(words::conditions(reply.conditions.as_ref()))),
    ]
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

pub(super) fn source(source: v1::Source) -> &'static str {
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
