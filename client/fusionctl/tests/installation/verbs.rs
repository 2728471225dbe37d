//! What is done to an installed daemon: looking at it, starting, stopping, its logs.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::launchd;
use crate::place::Place;

#[test]
fn looking_never_starts_a_daemon() {
    let place = Place::new();
    place.install(&["--on-demand"]);
    // launchd's socket: a connection would start the daemon.
    let socket = UnixListener::bind(place.path(".fusion/run/fusiond.sock")).unwrap();
    socket.set_nonblocking(true).unwrap();
    for verb in ["status", "metrics"] {
        let run = place.run(&[verb]);
        assert_eq!(run.code, 69, "{}", run.stderr);
        assert!(run.stderr.contains("launchd starts it with the first client"), "{}", run.stderr);
    }
    let failures = json!({"count": 5, "reason": "the disk is full", "at_unix_ms": 1, "version": "1"});
    fs::write(place.path(".fusion/run/fusiond.failures"), failures.to_string()).unwrap();
    let run = place.run(&["status"]);
    assert!(run.stderr.contains("(5 in a row): the disk is full"), "{}", run.stderr);
    place.fine(&["stop"]);
    let run = place.run(&["status"]);
    assert!(run.stderr.contains("it was stopped: 'fusionctl start'"), "{}", run.stderr);
    assert!(socket.accept().is_err(), "somebody connected");
    // What was stopped twice is stopped.
    assert!(place.fine(&["stop"]).contains("was not running"));
}

#[test]
fn starting_and_stopping_can_be_rehearsed() {
    let place = Place::new();
    place.install(&["--on-demand"]);
    let before = (place.everything(), place.launchd.state());
    let (start, stop) = ("would start dev.fusion.fusiond", "would stop dev.fusion.fusiond");
    for (verb, words) in [("start", &[start][..]), ("stop", &[stop]), ("restart", &[stop, start])] {
        let told = place.fine(&[verb, "--dry-run"]);
        assert!(words.iter().all(|words| told.contains(words)), "{verb}: {told}");
        assert_eq!(told.lines().count(), words.len(), "{verb}: {told}");
    }
    let failures = json!({"count": 5, "reason": "the disk is full", "at_unix_ms": 1, "version": "1"});
    fs::write(place.path(".fusion/run/fusiond.failures"), failures.to_string()).unwrap();
    let told = place.fine(&["start", "--dry-run"]);
    assert!(told.contains(stop) && told.contains("its 5 failed starts") && told.contains(start), "{told}");
    fs::remove_file(place.path(".fusion/run/fusiond.failures")).unwrap();
    assert_eq!((place.everything(), place.launchd.state()), before);

    place.fine(&["stop"]);
    assert_eq!(place.fine(&["stop", "--dry-run"]), "nothing would be done\n");
    let document: Value = serde_json::from_str(&place.fine(&["restart", "--dry-run", "--json"])).unwrap();
    assert_eq!(document["schema"], "fusionctl.dry-run/1");
    assert_eq!(document["steps"], json!(["start dev.fusion.fusiond through launchd"]));
}

#[test]
fn what_launchctl_refuses_is_told_with_command_code_and_meaning() {
    let place = Place::new();
    place.launchd.change(|state| state["domains"] = json!([]));
    let build = place.directory.path().join("build");
    let run = place.run(&["install", "--at-login", "--from", build.to_str().unwrap()]);
    assert_eq!(run.code, 78);
    for text in ["launchctl enable user/", "exit code 125", "log in on the screen"] {
        assert!(run.stderr.contains(text), "{text}: {}", run.stderr);
    }
    // The session is there: the same command goes on where it was.
    let user = launchd::user();
    place.launchd.change(|state| state["domains"] = json!([format!("gui/{user}"), format!("user/{user}")]));
    place.install(&["--at-login"]);
    assert!(place.launchd.loaded().is_some());
}

#[test]
fn logs_are_printed_oldest_first_and_followed_over_a_roll() {
    use std::io::{BufRead as _, BufReader};

    let place = Place::new();
    let none = place.run(&["logs"]);
    assert_eq!(none.code, 69, "{}", none.stderr);
    let logs = place.path(".local/state/fusion/logs");
    fs::create_dir_all(&logs).unwrap();
    let log = logs.join("fusiond.log");
    fs::write(logs.join("fusiond.log.2"), "a\nb\n").unwrap();
    fs::write(logs.join("fusiond.log.1"), "c\n").unwrap();
    fs::write(&log, "d\ne\n").unwrap();
    assert_eq!(place.fine(&["logs"]), "a\nb\nc\nd\ne\n");
    assert_eq!(place.fine(&["logs", "-n", "3"]), "c\nd\ne\n");
    let document: Value = serde_json::from_str(&place.fine(&["logs", "-n", "1", "--json"])).unwrap();
    assert_eq!((&document["schema"], &document["lines"]), (&json!("fusionctl.logs/1"), &json!(["e"])));

    let mut following = place.command(&["logs", "-f", "-n", "1"]).stdout(Stdio::piped()).spawn().unwrap();
    let printed = BufReader::new(following.stdout.take().unwrap());
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || printed.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let next = || lines.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    assert_eq!(next(), "e");
    let append = |text: &str| {
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&log)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    };
    append("f\n");
    assert_eq!(next(), "f");
    // Whatever the follower does at that moment: no line is lost.
    for round in 0..20 {
        append(&format!("g{round}\n"));
        fs::rename(&log, logs.join("fusiond.log.1")).unwrap();
        append(&format!("h{round}\n"));
        assert_eq!([next(), next()], [format!("g{round}"), format!("h{round}")]);
    }
    following.kill().unwrap();
    following.wait().unwrap();
    fs::write(logs.join("fusiond.crash.log"), "its last words\n").unwrap();
    assert_eq!(place.fine(&["logs", "--crashes"]), "its last words\n");
}
