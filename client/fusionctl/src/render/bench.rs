//! What `bench ttft` found, for people.

use fusion_calibrations::chip::Pair;

use super::table::{Column, Stack, fields, table};
use super::words;
use crate::commands::bench::verdict::{Measured, Range, Verdict};
use crate::output::Output;

const LEGEND: &str = "first token: median of the rounds, in ms; speed-up: stock's time over the accelerated one of calls made next to each \
other, with its 95 % interval; decode: accelerated tokens per second over stock's, of pairs of single steps in turn; A/A: the same two of stock beside stock, which a quiet machine shows as 1; split: prefill chunks that were \
split, of all";

/// One line for each length of prompt.
pub(crate) fn ttft(measured: &Measured, verdicts: &[Verdict], output: Output) -> String {
    let label = measured.pair.parse::<Pair>().ok().and_then(|pair| pair.label());
    let head = [
        ("model", Some(words::plain(&measured.model))),
        ("units", Some(words::plain(&measured.units))),
        ("shares", Some(words::plain(&measured.basis))),
        ("note", label.map(|label| output.yellow(&format!("{label}: this says nothing about a Mac")))),
    ];
    let rows = table(verdicts, &stacks(), output);
    format!("{}\n{rows}\n{}", fields(&head, output), fields(&[("columns", Some(LEGEND.to_owned()))], output))
}

fn stacks() -> Vec<Stack<Verdict>> {
    vec![
        (
            Column::number("prompt", |verdict: &Verdict| verdict.prompt_tokens.to_string()),
            Some(Column::number("rounds", |verdict| verdict.rounds.to_string())),
        ),
        (
            Column::number("stock ms", |verdict| middle(verdict.stock_ms)),
            Some(Column::number("accelerated ms", |verdict| middle(verdict.accelerated_ms))),
        ),
        (
            Column::number("speed-up [95 %]", |verdict| range(verdict.speed_up)),
            Some(Column::number("decode [95 %]", |verdict| range(verdict.decode))),
        ),
        (
            Column::number("A/A", |verdict| range(verdict.self_comparison.speed_up)),
            Some(Column::number("A/A decode", |verdict| range(verdict.self_comparison.decode))),
        ),
        (Column::number("decode pairs", |verdict| verdict.decode_pairs.to_string()), None),
        (
            Column::number("split", |verdict| format!("{} of {}", verdict.split_chunks, verdict.chunks)),
            Some(Column::text("tokens", tokens)),
        ),
    ]
}

fn middle(range: Option<Range>) -> String {
    range.map_or_else(|| "-".to_owned(), |range| format!("{:.1}", range.value))
}

fn range(range: Option<Range>) -> String {
    range.map_or_else(
        || "-".to_owned(),
        |Range { low, value, high }| format!("{value:.3} [{low:.3}, {high:.3}]"),
    )
}

fn tokens(verdict: &Verdict) -> String {
    match &verdict.first_difference {
        None => "the same".to_owned(),
        Some(difference) => format!(
            "differ from token {} on: gap {:.1e}, error {:.1e}{}",
            difference.step + 1,
            difference.gap,
            verdict.largest_error,
            if verdict.is_faithful() { "" } else { ": MORE THAN ROUNDING" }
        ),
    }
}
