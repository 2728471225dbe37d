//! Past calibrations of a shape.

use fusion_client::v1;

use super::table::{Column, Field, Stack, fields, table};
use super::words;
use crate::output::Output;

/// What the columns mean.
const LEGEND: &str = "rows: primary + secondary unit's; speed-up: stock over the best split, 95 % interval; samples: kept of taken";

/// A past calibration, and by which of several engines it was.
struct Row<'a> {
    estimate: &'a v1::Estimate,
    engine: Option<usize>,
}

/// The past of `shape`, the newest first.
pub(crate) fn history(
    shape: &v1::Shape,
    reply: &v1::ListHistoryReply,
    chip: Option<&v1::Chip>,
    output: Output,
) -> String {
    let text = words::shape(shape, true);
    let Some(newest) = reply.estimates.first() else {
        return format!("{text} was never calibrated on this chip: measure it with 'fusionctl calibrate'\n");
    };
    let engines = engines(&reply.estimates);
    let rows: Vec<Row<'_>> = reply
        .estimates
        .iter()
        .map(|estimate| Row { estimate, engine: engine_of(estimate, &engines) })
        .collect();
    let heading = heading(&text, newest, chip, &engines, output);
    let table = table(&rows, &stacks(engines.len() > 1), output);
    let legend = fields(&[("columns", Some(LEGEND.to_owned()))], output);
    format!("{heading}\n{table}\n{legend}\n {}\n", summary(reply))
}

/// "3 calibrations", "the newest 3 of 12 calibrations".
fn summary(reply: &v1::ListHistoryReply) -> String {
    let all = words::count(reply.total as usize, "calibration");
    let shown = reply.estimates.len();
    if shown < reply.total as usize { format!("the newest {shown} of {all}") } else { all }
}

/// The engines, the newest first.
fn engines(estimates: &[v1::Estimate]) -> Vec<&v1::Engine> {
    let mut engines: Vec<&v1::Engine> = Vec::new();
    for engine in estimates.iter().filter_map(|estimate| estimate.engine.as_ref()) {
        if !engines.contains(&engine) {
            engines.push(engine);
        }
    }
    engines
}

fn engine_of(estimate: &v1::Estimate, engines: &[&v1::Engine]) -> Option<usize> {
    engines.iter().position(|engine| estimate.engine.as_ref() == Some(*engine))
}

fn heading(
    shape: &str,
    newest: &v1::Estimate,
    chip: Option<&v1::Chip>,
    engines: &[&v1::Engine],
    output: Output,
) -> String {
    let key = &newest.chip_key;
    let known = chip.filter(|chip| chip.key == *key);
    let mut rows: Vec<Field> = vec![
        ("shape", Some(shape.to_owned())),
        ("chip", Some(known.map_or_else(|| key.clone(), words::chip))),
        ("pair", words::pair_label(key).map(|label| output.yellow(label))),
    ];
    // Several are told apart by a number, which the table then has a column for.
    let several = engines.len() > 1;
    rows.extend(engines.iter().enumerate().map(|(place, engine)| {
        let number = if several { format!("{}: ", place + 1) } else { String::new() };
        ("engine", Some(format!("{number}{}", words::engine(engine))))
    }));
    fields(&rows, output)
}

fn stacks<'a>(several_engines: bool) -> Vec<Stack<Row<'a>>> {
    let mut stacks = vec![
        (
            Column::text("measured", |row: &Row<'a>| words::moment(row.estimate.measured_at_unix_ms)),
            Some(Column::text("from", |row: &Row<'a>| words::provenance(row.estimate))),
        ),
        (
            Column::text("heat, memory", |row: &Row<'a>| {
                words::heat_and_memory(row.estimate.conditions.as_ref())
            }),
            Some(Column::text("power", |row: &Row<'a>| words::power(row.estimate.conditions.as_ref()))),
        ),
        (
            Column::number("ratio", |row: &Row<'a>| words::ratio(row.estimate.ratio)),
            Some(Column::number("rows", |row: &Row<'a>| words::rows(row.estimate))),
        ),
        (
            Column::text("speed-up [95 %]", |row: &Row<'a>| words::interval(row.estimate.speed_up)),
            Some(Column::text("samples", |row: &Row<'a>| words::samples(row.estimate))),
        ),
    ];
    if several_engines {
        let number =
            |row: &Row<'a>| row.engine.map_or_else(|| "-".to_owned(), |place| (place + 1).to_string());
        stacks.insert(2, (Column::number("engine", number), None));
    }
    stacks
}
