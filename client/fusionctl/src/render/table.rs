//! Tables that fit: one line a row where there is room, else cells stacked in pairs. In a pipe nothing is wrapped.

use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use crate::output::Output;

/// A column of rows `R`.
pub(crate) struct Column<R> {
    /// Its head.
    pub(crate) head: &'static str,
    /// Whether it holds numbers.
    pub(crate) right: bool,
    /// Its cell in a row.
    pub(crate) cell: fn(&R) -> String,
}

impl<R> Column<R> {
    pub(crate) fn text(head: &'static str, cell: fn(&R) -> String) -> Self {
        Self { head, right: false, cell }
    }

    pub(crate) fn number(head: &'static str, cell: fn(&R) -> String) -> Self {
        Self { head, right: true, cell }
    }
}

/// A column, and the one that goes below it where room is short.
pub(crate) type Stack<R> = (Column<R>, Option<Column<R>>);

/// The table of `rows`.
pub(crate) fn table<R>(rows: &[R], stacks: &[Stack<R>], output: Output) -> String {
    let wide = text(&wide(rows, stacks, output));
    match output.width {
        Some(width)
            if longest(&wide) > usize::from(width) && stacks.iter().any(|(_, below)| below.is_some()) =>
        {
            text(&stacked(rows, stacks, output))
        }
        _ => wide,
    }
}

fn wide<R>(rows: &[R], stacks: &[Stack<R>], output: Output) -> Table {
    let columns: Vec<_> =
        stacks.iter().flat_map(|(top, below)| [Some(top), below.as_ref()]).flatten().collect();
    let mut table = empty(output);
    table.set_header(columns.iter().map(|column| head(column.head.to_owned(), column.right, output)));
    for row in rows {
        table.add_row(columns.iter().map(|column| cell((column.cell)(row), column.right)));
    }
    table
}

fn stacked<R>(rows: &[R], stacks: &[Stack<R>], output: Output) -> Table {
    let both = |top: String, below: Option<String>| {
        below.map_or_else(|| top.clone(), |below| format!("{top}\n{below}"))
    };
    let mut table = empty(output);
    table.set_header(stacks.iter().map(|(top, below)| {
        head(
            both(top.head.to_owned(), below.as_ref().map(|column| column.head.to_owned())),
            top.right,
            output,
        )
    }));
    for (place, row) in rows.iter().enumerate() {
        // Tells one row's two lines from the next one's.
        let gap = if place + 1 < rows.len() { "\n " } else { "" };
        table.add_row(stacks.iter().map(|(top, below)| {
            let below = below.as_ref().map(|column| (column.cell)(row));
            cell(both((top.cell)(row), below) + gap, top.right)
        }));
    }
    table
}

/// A label and what it stands for; left out where there is none.
pub(crate) type Field = (&'static str, Option<String>);

/// Labels and what they stand for.
pub(crate) fn fields(rows: &[Field], output: Output) -> String {
    let mut table = empty(output);
    if let Some(width) = output.width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    for (label, value) in rows {
        if let Some(value) = value {
            table.add_row([head((*label).to_owned(), false, output), Cell::new(value)]);
        }
    }
    text(&table)
}

fn empty(output: Output) -> Table {
    // Only a line below the head: borders cost room and are in the way of copying.
    let style = TableStyle::new().header_separator(LineStyle::none().fill('─'));
    let mut table = Table::new();
    table.load_style(style).set_content_arrangement(ContentArrangement::Disabled);
    // Whether to colour is decided in one place, not by every table.
    table.force_no_tty();
    if output.color {
        table.enforce_styling();
    }
    table
}

fn head(text: String, right: bool, output: Output) -> Cell {
    let cell = cell(text, right);
    if output.color { cell.add_attribute(Attribute::Bold) } else { cell }
}

fn cell(text: String, right: bool) -> Cell {
    Cell::new_owned(text).set_alignment(if right { CellAlignment::Right } else { CellAlignment::Left })
}

fn text(table: &Table) -> String {
    format!("{}\n", table.trim_fmt())
}

/// Columns of the longest line, not counting escape codes.
fn longest(text: &str) -> usize {
    text.lines().map(visible).max().unwrap_or(0)
}

fn visible(line: &str) -> usize {
    let mut escape = false;
    line.chars()
        .filter(|&character| {
            let counts = !escape && character != '\u{1b}';
            escape = if escape { character != 'm' } else { character == '\u{1b}' };
            counts
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(width: Option<u16>) -> String {
        let output = Output { json: false, quiet: false, color: false, width };
        let stacks = [
            (
                Column::text("name", |row: &(&str, f64)| row.0.to_owned()),
                Some(Column::text("twice", |row: &(&str, f64)| row.0.repeat(2))),
            ),
            (Column::number("ms", |row: &(&str, f64)| row.1.to_string()), None),
        ];
        table(&[("ab", 1.5), ("c", 10.25)], &stacks, output)
    }

    #[test]
    fn a_pipe_gets_one_line_a_row() {
        let text = show(None);
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
        assert!(text.contains("abab"), "{text}");
    }

    #[test]
    fn short_of_room_cells_are_stacked() {
        let text = show(Some(16));
        assert_eq!(text.lines().count(), 8, "{text}");
    }

    #[test]
    fn escape_codes_take_no_room() {
        assert_eq!(visible("\u{1b}[1mab\u{1b}[0m c"), 4);
    }
}
