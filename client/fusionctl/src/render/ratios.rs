//! Lists of ratios, and what a calibration comes to.

use std::time::Duration;

use fusion_client::v1;

use super::estimates::{Kind, Row, place, tables};
use super::table::fields;
use super::words;
use crate::commands::calibrate::{Failed, Outcome};
use crate::output::Output;

/// Label of a shape that can't be measured.
const FAILED: &str = "failed";

/// Every estimate.
pub(crate) fn list(estimates: &[v1::Estimate], chip: Option<&v1::Chip>, output: Output) -> String {
    if estimates.is_empty() {
        return "nothing is known yet: measure with 'fusionctl calibrate MODEL'\n".to_owned();
    }
    let rows = estimates.iter().map(|estimate| Row::new(String::new(), estimate)).collect();
    let tables = tables(rows, Kind::List, chip, output);
    format!("{tables}\n {}\n", words::count(estimates.len(), "estimate"))
}

/// What a calibration came to.
pub(crate) fn calibration(title: &str, outcome: &Outcome, elapsed: Duration, output: Output) -> String {
    let rows: Vec<_> =
        outcome.done.iter().map(|done| Row::new(done.names.join(", "), &done.estimate)).collect();
    let mut text = format!(" {}\n", output.bold(title));
    let chip = outcome.chip.as_ref();
    text +=
        &if rows.is_empty() { place(chip, output) } else { tables(rows, Kind::Calibration, chip, output) };
    let failed: Vec<_> = outcome.failed.iter().map(|failed| (FAILED, Some(reason(failed, output)))).collect();
    if !failed.is_empty() {
        text += &format!("\n{}", fields(&failed, output));
    }
    format!("{text}\n{}\n", summary(outcome, elapsed))
}

fn reason(failed: &Failed, output: Output) -> String {
    let names = if failed.names.is_empty() { String::new() } else { format!("{} ", failed.names.join(", ")) };
    format!("{names}{}: {}", output.yellow(&words::shape(&failed.shape, true)), failed.reason)
}

fn summary(outcome: &Outcome, elapsed: Duration) -> String {
    let mut parts = vec![
        format!("{} measured", outcome.measured()),
        format!("{} from the store", outcome.known_before()),
        format!("{} failed", outcome.failed.len()),
    ];
    if outcome.not_reached() > 0 {
        parts.push(format!("{} not reached", outcome.not_reached()));
    }
    format!(
        " {}; {} of machine time in {}",
        parts.join(", "),
        words::duration(outcome.machine_ms()),
        words::duration(elapsed.as_secs_f64() * 1000.0)
    )
}
