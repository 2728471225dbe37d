//! What is on the screen, held against files. `FUSION_UPDATE_GOLDEN=1 cargo test -p fusionctl watch` writes them anew; look at the difference
//! before committing it.

#[allow(dead_code, unreachable_pub, reason = "other tests use another part of this")]
#[path = "../../../sdk/tests/support/canned.rs"]
mod canned;
#[allow(dead_code, unreachable_pub, reason = "other tests use another part of this")]
#[path = "../../../sdk/tests/support/canned_gates.rs"]
mod canned_gates;

use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs};

use fusion_client::{AttachedClient, v1};
use jiff::tz::TimeZone;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier};

use super::{Screen, Seen, draw};

const SECOND: u64 = 1000;
const NOW: u64 = canned::THEN + 720 * SECOND;

fn status() -> v1::GetStatusReply {
    let part = |health: v1::Health, detail: &str| {
        Some(v1::PartStatus { health: health.into(), detail: detail.to_owned() })
    };
    let job = |job, title: &str, shape: &str| v1::JobStatus {
        job,
        title: title.to_owned(),
        shapes: 4,
        done: 1,
        shape: shape.to_owned(),
    };
    let planner = v1::PlannerStatus {
        looks_again_at_unix_ms: NOW + 20 * SECOND,
        credit_ms: 12_600.0,
        troubles: vec![v1::Trouble {
            subject: "the worker".to_owned(),
            reason: "it was ended by signal 9".to_owned(),
            times: 2,
            retry_at_unix_ms: NOW + 480 * SECOND,
        }],
        ..canned::planner()
    };
    v1::GetStatusReply {
        version: "1.2.3".to_owned(),
        protocol: fusion_client::PROTOCOL,
        pid: 4242,
        started_at_unix_ms: canned::THEN - 7500 * SECOND,
        socket: "/run/fusion/fusiond.sock".to_owned(),
        chip: Some(canned::chip()),
        conditions: Some(canned::conditions()),
        conditions_since_unix_ms: canned::THEN,
        running: Some(job(7, "qwen2.5-0.5b at 512 rows", "512x896x128 f32 nk")),
        waiting: vec![job(8, "64x64x64", ""), job(9, "gpt2-xl", "")],
        last_job: Some(v1::EndedJob {
            job: Some(job(6, "recalibration", "")),
            outcome: "finished".to_owned(),
            ended_at_unix_ms: NOW - 90 * SECOND,
        }),
        worker: part(v1::Health::Failed, "the worker was ended by signal 9"),
        planner: Some(planner),
        configuration: Some(canned::configuration()),
        ..Default::default()
    }
}

fn clients() -> Vec<AttachedClient> {
    canned_gates::clients().iter().map(|wire| AttachedClient::try_from(wire).unwrap()).collect()
}

fn screen() -> Screen {
    Screen::new(Duration::from_secs(1), TimeZone::UTC, NOW - 60 * SECOND)
}

/// A screen on which something happened.
fn busy() -> Screen {
    let mut screen = screen();
    let after = Seen { status: status(), clients: clients() };
    let mut before = after.clone();
    before.status.running = None;
    before.status.conditions.as_mut().unwrap().thermal = v1::Thermal::Heavy.into();
    before.clients.pop();
    screen.looked(NOW - 30 * SECOND, Ok(before));
    screen.looked(NOW, Ok(after));
    screen
}

fn drawn(screen: &Screen, (width, height): (u16, u16), color: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, screen, color)).unwrap();
    terminal
}

fn text(screen: &Screen, size: (u16, u16)) -> String {
    let terminal = drawn(screen, size, false);
    let buffer = terminal.backend().buffer();
    let rows = buffer.content.chunks(usize::from(size.0));
    rows.map(|row| row.iter().map(Cell::symbol).collect::<String>().trim_end().to_owned() + "\n").collect()
}

fn check(name: &str, screen: &Screen, size: (u16, u16)) {
    let text = text(screen, size);
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if env::var_os("FUSION_UPDATE_GOLDEN").is_some() {
        fs::write(&file, &text).unwrap();
    }
    let golden = fs::read_to_string(&file).unwrap_or_default();
    assert!(golden == text, "{name} has changed; it was:\n{golden}\nit is:\n{text}");
}

#[test]
fn a_busy_daemon_fills_the_screen() {
    check("watch-100x32.txt", &busy(), (100, 32));
    check("watch-80x24.txt", &busy(), (80, 24));
}

#[test]
fn before_the_first_answer_it_is_asked_for() {
    check("watch-asking.txt", &screen(), (80, 8));
}

#[test]
fn a_daemon_that_went_away_is_shown_as_it_was() {
    let mut screen = busy();
    screen.looked(
        NOW + SECOND,
        Err("fusiond is not running: no socket at /run/fusion/fusiond.sock".to_owned()),
    );
    screen.looked(
        NOW + 13 * SECOND,
        Err("fusiond is not running: no socket at /run/fusion/fusiond.sock".to_owned()),
    );
    check("watch-gone.txt", &screen, (100, 32));
}

#[test]
fn a_quiet_paused_daemon_has_room_for_events() {
    let planner = v1::PlannerStatus {
        paused: true,
        paused_until_unix_ms: NOW + 1740 * SECOND,
        verdict: v1::PlannerVerdict::Paused.into(),
        duty: 0.0,
        ..v1::PlannerStatus::default()
    };
    let status = v1::GetStatusReply {
        running: None,
        waiting: Vec::new(),
        worker: None,
        planner: Some(planner),
        ..status()
    };
    let mut screen = screen();
    screen.looked(NOW, Ok(Seen { status, clients: Vec::new() }));
    check("watch-paused.txt", &screen, (80, 24));
}

#[test]
fn an_older_daemon_is_shown_as_far_as_it_tells() {
    let status = v1::GetStatusReply {
        planner: None,
        configuration: None,
        conditions_since_unix_ms: 0,
        protocol: 0,
        ..status()
    };
    let mut screen = screen();
    screen.looked(NOW, Ok(Seen { status, clients: Vec::new() }));
    let text = text(&screen, (100, 24));
    assert!(!text.contains("measuring") && text.contains("speaks protocol 0"), "{text}");
}

#[test]
fn no_terminal_is_too_small() {
    for size in [(1, 1), (3, 20), (20, 5), (200, 3), (40, 10)] {
        drawn(&busy(), size, true);
    }
}

#[test]
fn the_newest_events_are_the_ones_that_are_seen() {
    let mut screen = busy();
    for number in 0..40 {
        screen.note(format!("event {number}."));
    }
    let text = text(&screen, (80, 24));
    assert!(text.contains("event 39.") && !text.contains("event 1."), "{text}");
}

#[test]
fn colours_only_where_they_are_welcome() {
    let styled = |color| {
        let terminal = drawn(&busy(), (80, 24), color);
        let cells = &terminal.backend().buffer().content;
        cells.iter().any(|cell| cell.fg != Color::Reset || cell.modifier != Modifier::empty())
    };
    assert!(styled(true) && !styled(false));
}

#[test]
fn names_of_other_processes_steer_no_terminal() {
    let mut screen = screen();
    let mut seen = Seen { status: status(), clients: clients() };
    seen.clients[0].name = "a\u{1b}[31m".to_owned();
    seen.status.running.as_mut().unwrap().title = "b\u{7}c".to_owned();
    screen.looked(NOW, Ok(seen));
    let text = text(&screen, (100, 32));
    assert!(!text.contains(|c: char| c.is_control() && c != '\n') && text.contains("a?[31m"), "{text}");
}
