//! Lines that fit: labels with what they stand for, wrapped between words, and bars.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// Columns of a label and the gap behind it, as in `fusionctl status`.
const LABEL: usize = 12;
/// Columns of a bar.
const BAR: usize = 20;
/// What stands for the words that don't fit.
const CUT: &str = "…";

/// How text looks; nothing is set where colours aren't welcome.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looks {
    color: bool,
}

impl Looks {
    pub(super) fn new(color: bool) -> Self {
        Self { color }
    }

    pub(super) fn bold(self) -> Style {
        if self.color { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() }
    }

    pub(super) fn faint(self) -> Style {
        if self.color { Style::new().add_modifier(Modifier::DIM) } else { Style::new() }
    }

    pub(super) fn warning(self) -> Style {
        if self.color { Style::new().fg(Color::Yellow) } else { Style::new() }
    }

    pub(super) fn bar(self) -> Style {
        if self.color { Style::new().fg(Color::Cyan) } else { Style::new() }
    }
}

/// `label`, and `text` beside it on at most `most` lines of `width` columns.
pub(super) fn labelled(
    label: &'static str,
    text: &str,
    (width, most): (u16, usize),
    style: Style,
    looks: Looks,
) -> Vec<Line<'static>> {
    let room = usize::from(width).saturating_sub(LABEL + 1);
    let head = |place| Span::styled(format!(" {:LABEL$}", if place == 0 { label } else { "" }), looks.bold());
    let lines = wrap(text, room, most).into_iter().enumerate();
    lines.map(|(place, text)| Line::from(vec![head(place), Span::styled(text, style)])).collect()
}

/// The same with a bar before the text.
pub(super) fn with_bar(
    label: &'static str,
    share: f64,
    text: &str,
    size: (u16, usize),
    looks: Looks,
) -> Vec<Line<'static>> {
    let bar = bar(share, BAR);
    let mut lines = labelled(label, &format!("{bar} {text}"), size, Style::new(), looks);
    // The bar is the first word: only its colour is missing.
    if let Some(first) = lines.first_mut()
        && let Some(rest) =
            first.spans.pop().and_then(|span| Some(span.content.strip_prefix(&bar)?.to_owned()))
    {
        first.spans.extend([Span::styled(bar, looks.bar()), Span::raw(rest)]);
    }
    lines
}

/// `text` on at most `most` lines of `width` columns, broken between words; what doesn't fit is cut, and seen to be.
fn wrap(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().map_or(0, |line| columns(line));
        let gap = usize::from(line > 0);
        if line > 0 && line + gap + columns(word) > width {
            lines.push(word.to_owned());
        } else if let Some(line) = lines.last_mut() {
            line.push_str(if gap > 0 { " " } else { "" });
            line.push_str(word);
        }
    }
    let cut = lines.len() > most;
    lines.truncate(most);
    if let Some(last) = lines.last_mut().filter(|_| cut) {
        last.push_str(CUT);
    }
    lines.into_iter().map(|line| fitting(line, width)).collect()
}

/// As much of `line` as fits, and a sign that it isn't all.
fn fitting(line: String, width: usize) -> String {
    if columns(&line) <= width {
        return line;
    }
    let mut short = line;
    while columns(&short) + columns(CUT) > width && short.pop().is_some() {}
    short + CUT
}

fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// "████░░░░": `share` of `width` columns, 0 to 1; whatever is more is full.
fn bar(share: f64, width: usize) -> String {
    let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
    let full = (share * width as f64).round() as usize;
    "█".repeat(full) + &"░".repeat(width - full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_where_they_can() {
        assert_eq!(wrap("one two three", 7, 9), ["one two", "three"]);
        assert_eq!(wrap("one two three four", 7, 2), ["one two", "three…"]);
        assert_eq!(wrap("incomprehensible it is", 6, 9), ["incom…", "it is"]);
        assert_eq!(wrap("", 6, 9), [""]);
    }

    #[test]
    fn nothing_is_wider_than_there_is_room() {
        for width in 0..20 {
            for line in wrap("a decision that is 漢字 and rather long, is cut", width, 3) {
                assert!(columns(&line) <= width.max(1), "{width}: {line}");
            }
        }
    }

    #[test]
    fn a_bar_takes_room_from_its_text() {
        let looks = Looks::new(true);
        let lines = with_bar("budget", 0.5, "much to say of it", (44, 9), looks);
        assert_eq!(lines.iter().map(Line::width).collect::<Vec<_>>(), [41, 22]);
        let spans: Vec<_> =
            lines[0].spans.iter().map(|span| (span.content.trim().to_owned(), span.style)).collect();
        let bar = bar(0.5, BAR);
        let expected = [("budget", looks.bold()), (bar.as_str(), looks.bar()), ("much to", Style::new())];
        assert_eq!(spans, expected.map(|(text, style)| (text.to_owned(), style)));
        // Where there is no room for the bar, none is shown in full.
        assert!(with_bar("budget", 0.5, "text", (20, 2), looks).iter().all(|line| line.width() <= 20));
    }

    #[test]
    fn bars_are_full_at_most() {
        let cases = [(0.0, "░░░░"), (0.5, "██░░"), (7.0, "████"), (-1.0, "░░░░"), (f64::NAN, "░░░░")];
        for (share, text) in cases {
            assert_eq!(bar(share, 4), text);
        }
    }
}
