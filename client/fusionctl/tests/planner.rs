//! Measuring without being asked: how it is paused and resumed, what the configuration says, the past of a shape.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod runner;
#[path = "../../sdk/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::atomic::Ordering;

use fusion_client::v1;
use runner::{Run, mistakes, run};
use support::{Fake, Script, canned};
use tonic::Code;

const SHAPE: &str = "512x896x4864";

const COMMANDS: [&[&str]; 5] =
    [&["pause"], &["pause", "--for", "2h"], &["resume"], &["config", "reload"], &["history", SHAPE]];

fn say(fake: &Fake, arguments: &[&str]) -> String {
    let run = run(&fake.path(), arguments);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{arguments:?}");
    run.stdout
}

#[test]
fn mistakes_are_2_with_a_remedy() {
    let cases: [(&[&str], &str); 12] = [
        (&["pause", "--for", "30"], "write for example 30m, 2h or '1d 12h'"),
        (&["pause", "--for", "1mo"], "write days"),
        (&["pause", "--for", "0s"], "at least 1s"),
        (&["pause", "30m"], "unexpected argument"),
        (&["config"], "reload"),
        (&["config", "edit"], "unrecognized subcommand"),
        (&["history"], "MxKxN"),
        (&["history", "4x4"], "for example 512x896x4864"),
        (&["history", SHAPE, "--limit", "0"], "0 is not in 1..=1000"),
        (&["history", SHAPE, "--plot", "x.pdf"], "neither with .svg nor with .png"),
        (&["metrics", "--json"], "'fusionctl status --json'"),
        (&["watch", "--interval", "0"], "write 0.1 to 3600 seconds"),
    ];
    mistakes(Path::new("/nonexistent/s"), &cases);
}

#[test]
fn every_command_has_its_exit_codes() {
    for arguments in COMMANDS {
        let nobody = run(Path::new("/nonexistent/s"), arguments);
        assert_eq!((nobody.code, nobody.stdout.as_str()), (69, ""), "{arguments:?}: {}", nobody.stderr);
        let fake = Fake::start(Script { version: "9.9.9", protocol: 9, ..Script::default() });
        assert_eq!(run(&fake.path(), arguments).code, 78, "{arguments:?}");
        for (code, exit) in [(Code::InvalidArgument, 65), (Code::Unavailable, 75)] {
            let fake =
                Fake::start(Script { refusal: Some((code, "so it is".to_owned())), ..Script::default() });
            let run = run(&fake.path(), arguments);
            assert_eq!(run.code, exit, "{arguments:?}: {}", run.stderr);
            assert!(run.stderr.contains("so it is") && run.stderr.lines().count() == 1, "{}", run.stderr);
        }
    }
}

#[test]
fn a_pause_holds_until_its_end_or_a_word() {
    let fake = Fake::start(Script::default());
    let text =
        "paused until 'fusionctl resume'; what 'fusionctl calibrate' asks for is measured all the same\n";
    assert_eq!(say(&fake, &["pause"]), text);
    assert_eq!(*fake.seen.pause.lock().unwrap(), Some(0));
    let status = say(&fake, &["status"]);
    assert!(status.contains("measuring   paused until 'fusionctl resume'; not now: "), "{status}");
    say(&fake, &["pause", "--for", "1d 12h"]);
    assert_eq!(*fake.seen.pause.lock().unwrap(), Some(129_600));
    assert_eq!(say(&fake, &["resume"]), "resumed: 'fusionctl status' tells what is measured next\n");
    assert_eq!((*fake.seen.pause.lock().unwrap(), fake.seen.resumed.load(Ordering::SeqCst)), (None, 1));
    assert!(!say(&fake, &["status"]).contains("paused"));
}

fn with_configuration(change: impl FnOnce(&mut v1::ConfigurationStatus)) -> Fake {
    let mut configuration = canned::configuration();
    change(&mut configuration);
    Fake::start(Script { configuration: Some(configuration), ..Script::default() })
}

#[test]
fn a_configuration_that_cannot_be_used_is_78_and_shown() {
    let fake = with_configuration(|known| {
        let detail = "shapes/mine.toml: rows is 0, but must be at least 1".to_owned();
        known.state = Some(v1::PartStatus { health: v1::Health::Degraded.into(), detail });
    });
    let reload = run(&fake.path(), &["config", "reload"]);
    assert_eq!((reload.code, reload.stdout.as_str()), (78, ""));
    assert!(reload.stderr.contains("stays as it was: shapes/mine.toml: rows is 0"), "{}", reload.stderr);
    let text =
        "5 shapes wanted, 1 part skipped; degraded: shapes/mine.toml: rows is 0, but must be at least 1";
    let status = say(&fake, &["status"]);
    assert!(status.contains(text), "{status}");
    assert!(say(&fake, &["config", "show"]).contains("degraded: shapes/mine.toml"));
}

#[test]
fn a_configuration_is_read_again_and_said_what_holds() {
    let fake = with_configuration(|known| (known.wanted_shapes, known.skipped) = (1, Vec::new()));
    let text = "read again: /home/acme/.config/fusion, 1 shape wanted\n";
    assert_eq!(say(&fake, &["config", "reload"]), text);
    assert_eq!(fake.seen.reloaded.load(Ordering::SeqCst), 1);
}

#[test]
fn a_daemon_without_a_configuration_is_78() {
    let fake = Fake::start(Script { version: "0.0.1", ..Script::old() });
    let show = run(&fake.path(), &["config", "show"]);
    assert_eq!((show.code, show.stdout.as_str()), (78, ""));
    assert!(show.stderr.contains("fusiond 0.0.1 tells nothing of a configuration"), "{}", show.stderr);
}

#[test]
fn a_past_that_never_was_is_said_to_be_none() {
    let fake = Fake::start(Script { past: 0, ..Script::default() });
    let text =
        "512x896x4864 f32 nk was never calibrated on this chip: measure it with 'fusionctl calibrate'\n";
    assert_eq!(say(&fake, &["history", SHAPE]), text);
    let json = say(&fake, &["history", SHAPE, "--json"]);
    assert!(json.contains("\"kept\": 0") && json.contains("\"estimates\": []"), "{json}");
    let directory = support::directory();
    let file = directory.path().join("x.svg");
    let drawn = run(&fake.path(), &["history", SHAPE, "--plot", file.to_str().unwrap()]);
    assert_eq!((drawn.code, drawn.stdout.as_str()), (65, ""), "{}", drawn.stderr);
    assert!(drawn.stderr.contains("nothing to draw of 512x896x4864 f32 nk") && !file.exists());
}

#[test]
fn the_past_has_a_limit() {
    let fake = Fake::start(Script { past: 12, ..Script::default() });
    let some = say(&fake, &["history", SHAPE, "--limit", "3"]);
    assert!(some.ends_with("\n the newest 3 of 12 calibrations\n"), "{some}");
    assert_eq!(*fake.seen.history.lock().unwrap(), Some(3));
    // The newest are of one engine: no column tells engines apart.
    assert!(some.contains(" engine  MLX 0.32.2") && !some.contains("1: MLX"), "{some}");
    let all = say(&fake, &["history", SHAPE]);
    assert!(all.ends_with("\n 12 calibrations\n") && all.contains("2: MLX 0.31.0"), "{all}");
    assert_eq!(*fake.seen.history.lock().unwrap(), Some(100));
}

#[test]
fn words_of_other_processes_steer_no_terminal() {
    let mut planner = canned::planner();
    planner.because = "a\u{1b}[31mb".to_owned();
    planner.troubles[0].reason = "c\u{7}d".to_owned();
    let fake = Fake::start(Script { planner: Some(planner), ..Script::default() });
    let status = say(&fake, &["status"]);
    assert!(status.contains("a?[31mb") && status.contains("c?d"), "{status}");
}

#[test]
fn the_help_has_examples_and_completions_know_the_words() {
    for (arguments, says) in [
        (&["pause", "--help"][..], "fusionctl pause --for 30m"),
        (&["config", "reload", "--help"], "fusionctl config reload"),
        (&["config", "show", "--help"], "fusionctl config show --json"),
        (&["history", "--help"], "--plot history.png"),
        (&["metrics", "--help"], "fusionctl metrics > fusiond.prom"),
        (&["watch", "--help"], "q quits, p pauses"),
        (&["--help"], "fusionctl watch"),
        (&["completions", "bash"], "fusionctl__subcmd__config__subcmd__reload"),
        (&["completions", "fish"], "-l plot"),
    ] {
        let run = run(Path::new("/x"), arguments);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(run.stdout.contains(says), "{arguments:?}: {}", run.stdout);
    }
}

#[test]
fn the_past_is_drawn_with_conditions_and_engines() {
    let fake = Fake::start(Script { past: 12, ..Script::default() });
    let directory = support::directory();
    let draw = |name: &str| -> (Run, Vec<u8>) {
        let file = directory.path().join(name);
        let run = run(&fake.path(), &["history", SHAPE, "-q", "--plot", file.to_str().unwrap()]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        (run, std::fs::read(file).unwrap())
    };
    let (run, svg) = draw("a.svg");
    assert!(run.stdout.contains("12 calibrations"), "{}", run.stdout);
    assert_eq!(svg, draw("b.svg").1);
    let svg = String::from_utf8(svg).unwrap();
    for text in [
        "512x896x4864 f32 nk: ratio and speed-up over time",
        "development pair: two CPU streams stand in for GPU and CPU",
        "12 calibrations, 2025-12-22 03:04 UTC to 2026-01-02 03:04 UTC",
        "the newest with MLX 0.32.2",
        "ratio",
        "speed-up",
        "measured at, UTC",
        "2025-12-28",
        "another engine",
        "nominal, memory normal, AC",
        "heavy, memory normal, battery",
        "dashed at 1: stock",
    ] {
        assert!(svg.contains(text), "'{text}' is missing in\n{svg}");
    }
    // Twelve points in each of two charts, an interval's middle each, and two signs of the legend.
    assert_eq!(svg.matches("<circle").count(), 3 * 12 + 2);
    assert_eq!(&draw("a.png").1[..8], b"\x89PNG\r\n\x1a\n");
}
