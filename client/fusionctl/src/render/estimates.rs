//! Tables of estimates, under the chip and the conditions that they hold for.

use fusion_client::v1;

use super::table::{Column, Field, Stack, fields, table};
use super::words;
use crate::output::Output;

/// A row: an estimate, and what it is called.
#[derive(Debug, Clone)]
pub(crate) struct Row<'a> {
    /// Names in a model.
    pub(crate) names: String,
    /// The estimate.
    pub(crate) estimate: &'a v1::Estimate,
    /// Whether the weights are told above the table.
    uniform: bool,
}

impl<'a> Row<'a> {
    pub(crate) fn new(names: String, estimate: &'a v1::Estimate) -> Self {
        Self { names, estimate, uniform: false }
    }
}

/// Which columns a table has besides the common ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Names of layers first, the numerical error last.
    Calibration,
    /// The time of the measurement last.
    List,
}

/// A table for every chip and condition among `rows`. `chip` is the one that is known by more than its key.
pub(crate) fn tables(mut rows: Vec<Row<'_>>, kind: Kind, chip: Option<&v1::Chip>, output: Output) -> String {
    let mut text = String::new();
    while let Some(first) = rows.first().cloned() {
        let same = |row: &Row<'_>| {
            row.estimate.chip_key == first.estimate.chip_key
                && row.estimate.conditions == first.estimate.conditions
        };
        let (mut group, rest): (Vec<_>, Vec<_>) = rows.into_iter().partition(same);
        rows = rest;
        if !text.is_empty() {
            text.push('\n');
        }
        text += &heading(&mut group, chip, output);
        text.push('\n');
        text += &table(&group, &stacks(kind), output);
        let stale = stale(&group, output);
        if !stale.is_empty() {
            text += &format!("\n{}", fields(&stale, output));
        }
    }
    if !text.is_empty() {
        text += &format!("\n{}", fields(&[("columns", Some(legend(kind)))], output));
    }
    text
}

/// The chip, where there is no estimate to stand over.
pub(crate) fn place(chip: Option<&v1::Chip>, output: Output) -> String {
    let label = chip.map(|chip| chip.pair_label.as_str()).filter(|label| !label.is_empty());
    fields(&[("chip", chip.map(words::chip)), ("pair", label.map(|label| output.yellow(label)))], output)
}

fn legend(kind: Kind) -> String {
    let error = if kind == Kind::Calibration { "; error: of the split's result, relative" } else { "" };
    format!("rows: primary + secondary unit's; speed-up: stock over split; samples: kept of taken{error}")
}

fn heading(group: &mut [Row<'_>], chip: Option<&v1::Chip>, output: Output) -> String {
    let Some(first) = group.first().map(|row| row.estimate) else { return String::new() };
    let weights = weights(first);
    let uniform = group.iter().all(|row| self::weights(row.estimate) == weights);
    group.iter_mut().for_each(|row| row.uniform = uniform);
    let key = &first.chip_key;
    let known = chip.filter(|chip| chip.key == *key);
    let label = known.map(|chip| chip.pair_label.as_str()).filter(|label| !label.is_empty());
    fields(
        &[
            ("chip", Some(known.map_or_else(|| key.clone(), words::chip))),
            ("pair", label.or_else(|| words::pair_label(key)).map(|label| output.yellow(label))),
            ("conditions", Some(words::conditions(first.conditions.as_ref()))),
            ("weights", uniform.then(|| weights.join(", "))),
        ],
        output,
    )
}

fn weights(estimate: &v1::Estimate) -> [String; 2] {
    let layer = estimate.shape.as_ref().and_then(|shape| shape.layer.clone()).unwrap_or_default();
    [layer.format, layer.layout]
}

fn stacks<'a>(kind: Kind) -> Vec<Stack<Row<'a>>> {
    let shape = Column::text("shape", |row: &Row<'a>| {
        row.estimate.shape.as_ref().map(|shape| words::shape(shape, !row.uniform)).unwrap_or_default()
    });
    let names = Column::text(
        "layer",
        |row: &Row<'a>| if row.names.is_empty() { "-".to_owned() } else { row.names.clone() },
    );
    let from = Column::text("from", |row: &Row<'a>| words::provenance(row.estimate));
    let error = Column::text("error", |row: &Row<'a>| {
        row.estimate.relative_error.map_or_else(|| "-".to_owned(), words::error)
    });
    let measured = Column::text("measured", |row: &Row<'a>| words::moment(row.estimate.measured_at_unix_ms));
    let mut stacks = match kind {
        Kind::Calibration => vec![(names, Some(shape))],
        Kind::List => vec![(shape, None)],
    };
    stacks.extend(common());
    stacks.push((from, Some(if kind == Kind::List { measured } else { error })));
    stacks
}

fn common<'a>() -> [Stack<Row<'a>>; 3] {
    [
        (
            Column::number("ratio", |row: &Row<'a>| words::ratio(row.estimate.ratio)),
            Some(Column::number("rows", |row| words::rows(row.estimate))),
        ),
        (
            Column::number("stock ms", |row| words::ms(row.estimate.stock_ms)),
            Some(Column::number("split ms", |row| {
                // A ratio of 0 has no split to time.
                if row.estimate.ratio == 0.0 { "-".to_owned() } else { words::ms(row.estimate.split_ms) }
            })),
        ),
        (
            Column::text("speed-up [95 %]", |row| words::interval(row.estimate.speed_up)),
            Some(Column::text("samples", |row| words::samples(row.estimate))),
        ),
    ]
}

/// Why rows are stale, once for every reason.
fn stale(group: &[Row<'_>], output: Output) -> Vec<Field> {
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for reason in
        group.iter().map(|row| row.estimate.stale_reason.as_str()).filter(|reason| !reason.is_empty())
    {
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((reason, 1)),
        }
    }
    let field = |(reason, count)| {
        let text = format!("{reason} ({})", words::count(count, "shape"));
        ("stale", Some(output.yellow(&text)))
    };
    reasons.into_iter().map(field).collect()
}
