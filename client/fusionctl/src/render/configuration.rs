//! What the user wants.

use fusion_client::v1;

use super::status::part;
use super::table::{Field, fields};
use super::words;
use crate::output::Output;

/// In a line: where, how much, and what is wrong.
pub(crate) fn line(known: &v1::ConfigurationStatus, output: Output) -> String {
    let skipped = match known.skipped.len() {
        0 => String::new(),
        parts => format!(", {} skipped", words::count(parts, "part")),
    };
    format!("{}, {} wanted{skipped}{}", known.directory, shapes(known), trouble(known, output))
}

/// Everything.
pub(crate) fn show(known: &v1::ConfigurationStatus, output: Output) -> String {
    let mut rows: Vec<Field> = vec![
        ("directory", Some(known.directory.clone())),
        ("state", known.state.as_ref().map(|state| part(state, output))),
        ("read", Some(words::moment(known.read_at_unix_ms))),
        ("wanted", Some(shapes(known))),
    ];
    rows.extend(known.skipped.iter().map(|skipped| ("skipped", Some(words::plain(skipped)))));
    fields(&rows, output)
}

fn shapes(known: &v1::ConfigurationStatus) -> String {
    words::count(known.wanted_shapes as usize, "shape")
}

fn trouble(known: &v1::ConfigurationStatus, output: Output) -> String {
    let state = known.state.as_ref().filter(|state| state.health() != v1::Health::Ok);
    state.map_or_else(String::new, |state| format!("; {}", part(state, output)))
}
