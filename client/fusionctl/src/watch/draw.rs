//! Puts the screen on a terminal: who and where above, what is measured and for whom in the middle, what happened below.

use std::time::Duration;

use fusion_client::{AttachedClient, ClientActivity, v1};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table};

use super::screen::{Event, Screen, Seen};
use super::text::{Looks, labelled, with_bar};
use crate::render::{moments, planner, status, words};

/// Lines that a text may take: a decision is rarely longer.
const MOST_LINES: usize = 2;
/// A budget's bar is full with what comes in within so long: by default no more is saved up.
const FULL: Duration = Duration::from_secs(3600);
/// Lines that events get, title included, however much else there is.
const LEAST_EVENTS: u16 = 3;

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, screen: &Screen, color: bool) {
    let looks = Looks::new(color);
    let area = frame.area();
    let head = head(screen, area.width, looks);
    let seen = screen.last.as_ref();
    let measuring = seen.map(|seen| measuring(screen, seen, area.width, looks)).unwrap_or_default();
    let jobs = seen.map(|seen| jobs(screen, seen, area.width, looks)).unwrap_or_default();
    let clients = seen.map(|seen| seen.clients.as_slice());
    let titled = |lines: usize| if lines == 0 { 0 } else { lines + 1 };
    let wanted = [
        head.len(),
        titled(measuring.len()),
        titled(jobs.len()),
        clients.map_or(0, |clients| if clients.is_empty() { 2 } else { clients.len() + 2 }),
    ];
    let heights = fitting(wanted, area.height.saturating_sub(LEAST_EVENTS + 1));
    let [above, middle, work, people, events, keys] = Layout::vertical([
        Constraint::Length(heights[0]),
        Constraint::Length(heights[1]),
        Constraint::Length(heights[2]),
        Constraint::Length(heights[3]),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(head), above);
    section(frame, middle, "measuring", measuring, looks);
    section(frame, work, "jobs", jobs, looks);
    if let Some(clients) = clients {
        people_table(frame, people, clients, looks);
    }
    happened(frame, events, screen, looks);
    frame.render_widget(Paragraph::new(help(screen, looks)), keys);
}

/// The heights of head, planner, jobs and clients within `room` lines. What matters less gives way first, from its end: who waits and what was
/// last, then clients, then troubles.
fn fitting(wanted: [usize; 4], room: u16) -> [u16; 4] {
    let mut heights = wanted.map(|lines| u16::try_from(lines).unwrap_or(u16::MAX));
    for (place, least) in [(2, 3), (3, 3), (1, 5), (0, 2), (3, 0), (2, 0), (1, 0), (0, 0)] {
        let over = heights.iter().fold(0u16, |sum, height| sum.saturating_add(*height)).saturating_sub(room);
        let spare = heights[place].saturating_sub(least);
        heights[place] -= spare.min(over);
    }
    heights
}

/// The daemon, its chip, the conditions and since when.
fn head(screen: &Screen, width: u16, looks: Looks) -> Vec<Line<'static>> {
    let now = screen.now_unix_ms;
    let mut lines = Vec::new();
    let mut add = |label, text: &str, style: Style| {
        lines.extend(labelled(label, text, (width, MOST_LINES), style, looks));
    };
    if let Some(gone) = &screen.gone {
        let since = moments::since(gone.since_unix_ms, now);
        add("no answer", &format!("{since}: {}", gone.why), looks.warning());
    }
    let Some(Seen { status: known, .. }) = &screen.last else {
        if screen.gone.is_none() {
            add("fusiond", "asking", Style::new());
        }
        return lines;
    };
    let title = status::title(known, now);
    let title = if screen.gone.is_some() { format!("{title}, as it was seen last") } else { title };
    add("daemon", &title, looks.bold());
    if known.draining {
        add("draining", "the daemon is about to exit", looks.warning());
    }
    if let Some(mismatch) = status::mismatch(known) {
        add("mismatch", &mismatch, looks.warning());
    }
    let chip = known.chip.as_ref();
    add(
        "chip",
        &chip.map_or_else(|| "not known before the first calibration".to_owned(), words::chip),
        Style::new(),
    );
    if let Some(label) = chip.map(|chip| chip.pair_label.as_str()).filter(|label| !label.is_empty()) {
        add("pair", label, looks.warning());
    }
    add("conditions", &status::conditions(known, now), Style::new());
    for (label, part) in parts(known) {
        add(label, &words::plain(&status::part_words(part)), looks.warning());
    }
    lines
}

/// The parts of the daemon that a person should know something of.
fn parts(known: &v1::GetStatusReply) -> impl Iterator<Item = (&'static str, &v1::PartStatus)> {
    let store = known.store.as_ref().and_then(|store| store.state.as_ref());
    let configuration = known.configuration.as_ref().and_then(|known| known.state.as_ref());
    [("worker", known.worker.as_ref()), ("store", store), ("config", configuration)]
        .into_iter()
        .filter_map(|(label, part)| Some((label, part?)))
        .filter(|(_, part)| part.health() != v1::Health::Ok)
}

fn measuring(screen: &Screen, seen: &Seen, width: u16, looks: Looks) -> Vec<Line<'static>> {
    let now = screen.now_unix_ms;
    let size = (width, MOST_LINES);
    let Some(known) = &seen.status.planner else { return Vec::new() };
    let style = if known.paused { looks.warning() } else { Style::new() };
    let mut lines = labelled("decision", &planner::decision(known, now), size, style, looks);
    lines.extend(budget(known, size, looks));
    lines.extend(labelled("next", &planner::next(known, now), size, Style::new(), looks));
    if let Some(stale) = planner::stale(known) {
        lines.extend(labelled("stale", &stale, size, Style::new(), looks));
    }
    for trouble in planner::troubles(known, now) {
        lines.extend(labelled("trouble", &trouble, size, looks.warning(), looks));
    }
    lines
}

/// What may be spent; its bar is full with what comes in within [`FULL`].
fn budget(known: &v1::PlannerStatus, size: (u16, usize), looks: Looks) -> Vec<Line<'static>> {
    let credit = if known.credit_ms < 0.0 {
        format!("overdrawn by {}", planner::seconds(-known.credit_ms))
    } else {
        format!("{} saved up", planner::seconds(known.credit_ms))
    };
    if known.duty > 0.0 {
        let full_ms = known.duty * FULL.as_secs_f64() * 1000.0;
        let text = format!("{credit}, {} an hour come in", planner::seconds(full_ms));
        with_bar("budget", known.credit_ms / full_ms, &text, size, looks)
    } else {
        labelled("budget", &format!("{credit}, nothing comes in"), size, Style::new(), looks)
    }
}

fn jobs(screen: &Screen, seen: &Seen, width: u16, looks: Looks) -> Vec<Line<'static>> {
    let status = &seen.status;
    let mut lines = Vec::new();
    match &status.running {
        None => lines.extend(labelled("running", "nothing", (width, 1), looks.faint(), looks)),
        Some(job) => {
            let share = f64::from(job.done) / f64::from(job.shapes.max(1));
            lines.extend(with_bar("running", share, &status::running(job), (width, MOST_LINES), looks));
        }
    }
    if let Some(next) = status.waiting.first() {
        let more = match status.waiting.len() {
            1 => String::new(),
            jobs => format!(", and {} more", jobs - 1),
        };
        let text = format!("job {}: {}{more}", next.job, words::plain(&next.title));
        lines.extend(labelled("waiting", &text, (width, 1), Style::new(), looks));
    }
    if let Some(last) = &status.last_job {
        let job = last.job.clone().unwrap_or_default();
        let ago = moments::ago(last.ended_at_unix_ms, screen.now_unix_ms);
        let text =
            format!("job {}: {}: {} {ago}", job.job, words::plain(&job.title), words::plain(&last.outcome));
        lines.extend(labelled("last job", &text, (width, 1), Style::new(), looks));
    }
    lines
}

fn section(frame: &mut Frame<'_>, area: Rect, title: &'static str, lines: Vec<Line<'static>>, looks: Looks) {
    if !lines.is_empty() {
        frame.render_widget(Paragraph::new(lines).block(rule(title, looks)), area);
    }
}

/// A line with a title in it.
fn rule(title: &str, looks: Looks) -> Block<'static> {
    let title = Span::styled(format!(" {title} "), looks.bold());
    Block::new().borders(Borders::TOP).border_style(looks.faint()).title(title)
}

fn people_table(frame: &mut Frame<'_>, area: Rect, clients: &[AttachedClient], looks: Looks) {
    if clients.is_empty() {
        let nobody = Line::styled(" none attached", looks.faint());
        frame.render_widget(Paragraph::new(nobody).block(rule("clients", looks)), area);
        return;
    }
    let widths = [
        Constraint::Length(10),
        Constraint::Fill(1),
        Constraint::Length(14),
        Constraint::Length(7),
        Constraint::Length(14),
        Constraint::Length(11),
    ];
    let head = Row::new([" process", "name", "state", "layers", "saved", "split calls"]).style(looks.bold());
    let table = Table::new(clients.iter().map(client), widths).header(head).column_spacing(1);
    let title = format!("clients: {}", clients.len());
    frame.render_widget(table.block(rule(&title, looks)), area);
}

fn client(client: &AttachedClient) -> Row<'static> {
    let state = match client.activity {
        ClientActivity::Busy => "busy",
        ClientActivity::Idle => "idle",
    };
    let explores = if client.explores { ", explores" } else { "" };
    let saved = if client.split_calls == 0 { "-".to_owned() } else { words::saved(client.saved_ms) };
    Row::new([
        format!(" {}", client.pid),
        words::plain(&client.name),
        format!("{state}{explores}"),
        client.layers.to_string(),
        saved,
        client.split_calls.to_string(),
    ])
}

/// The newest events that fit, the newest last.
fn happened(frame: &mut Frame<'_>, area: Rect, screen: &Screen, looks: Looks) {
    let room = usize::from(area.height).saturating_sub(1);
    let first = screen.events.len().saturating_sub(room);
    let line = |event: &Event| {
        let time = Span::styled(format!(" {} ", time(event.at_unix_ms, &screen.zone)), looks.faint());
        Line::from(vec![time, Span::raw(event.text.clone())])
    };
    let lines: Vec<Line<'static>> = screen.events.iter().skip(first).map(line).collect();
    frame.render_widget(Paragraph::new(lines).block(rule("events", looks)), area);
}

/// "03:04:05".
fn time(unix_ms: u64, zone: &TimeZone) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(
        || "--:--:--".to_owned(),
        |time| time.to_zoned_datetime(zone.clone()).strftime("%H:%M:%S").to_string(),
    )
}

fn help(screen: &Screen, looks: Looks) -> Line<'static> {
    let pause = if screen.paused() { "resume" } else { "pause" };
    let every = screen.interval.as_secs_f64();
    let text = format!(" q quit   p {pause}   r reload the configuration   looks every {every} s");
    Line::styled(text, looks.faint())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_matters_less_gives_way_first() {
        let cases = [
            (100, [5, 8, 5, 6]),
            (22, [5, 8, 3, 6]),
            (20, [5, 8, 3, 4]),
            (16, [5, 5, 3, 3]),
            (12, [2, 5, 3, 2]),
            (5, [2, 3, 0, 0]),
            (0, [0, 0, 0, 0]),
        ];
        for (room, heights) in cases {
            assert_eq!(fitting([5, 8, 5, 6], room), heights, "{room}");
        }
    }

    proptest! {
        #[test]
        fn heights_fit_and_waste_nothing(wanted in [0usize..300, 0..300, 0..300, 0..300], room in 0u16..400) {
            let heights = fitting(wanted, room).map(usize::from);
            let (sum, all): (usize, usize) = (heights.iter().sum(), wanted.iter().sum());
            prop_assert_eq!(sum, all.min(room.into()));
            prop_assert!(heights.iter().zip(wanted).all(|(height, wanted)| *height <= wanted));
        }
    }
}
