//! `fusionctl doctor` as a process: what it finds, how it exits, and what its report tells of a person.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod runner;
#[path = "../../sdk/tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::Path;

use runner::{Run, command};
use support::{Fake, Script};

#[test]
fn without_a_daemon_the_rest_is_looked_at() {
    let home = support::directory();
    let socket = home.path().join("s");
    let run: Run = command(&socket, &["doctor"]).env("HOME", home.path()).output().unwrap().into();
    assert_eq!(run.code, 1, "{}", run.stderr);
    for words in
        ["FAIL  daemon", "not running", "do: ", "means: ", "os ", "disk", "not made: there is no daemon"]
    {
        assert!(run.stdout.contains(words), "{words}: {}", run.stdout);
    }
    assert!(run.stderr.contains("failed: the remedy is beside each"), "{}", run.stderr);
    assert!(!socket.exists(), "it started something");
}

#[test]
fn a_daemon_without_a_self_test_is_no_failure_of_it() {
    let fake = Fake::start(Script::default());
    let run: Run =
        command(&fake.path(), &["doctor", "--json"]).env("HOME", "/nonexistent").output().unwrap().into();
    assert!(run.stdout.contains("\"schema\": \"fusionctl.doctor/1\""), "{}", run.stdout);
    assert!(run.stdout.contains("\"self_test\": null"), "{}", run.stdout);
    let skipped: Run = command(&fake.path(), &["doctor", "--no-self-test"]).output().unwrap().into();
    assert!(skipped.stdout.contains("left out, as asked"), "{}", skipped.stdout);
}

#[test]
fn a_report_tells_nothing_of_a_person() {
    let fake = Fake::start(Script::default());
    let home = fake.path().parent().unwrap().to_owned();
    let report = home.join("report.json");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let programs = support::canned_gates::clients().into_iter().map(|client| client.name);
    let private = [home.display().to_string(), "anna-lena".to_owned(), host.trim().to_owned()];
    let private: Vec<String> =
        private.into_iter().chain(programs).filter(|secret| !secret.is_empty()).collect();
    assert!(private.len() > 3, "{private:?}");
    // With a daemon, which knows its clients, and without one, where the paths come from the environment.
    for socket in [fake.path(), home.join("anna-lena/none")] {
        let run: Run = command(&socket, &["doctor", "--report", report.to_str().unwrap()])
            .env("HOME", &home)
            .env("USER", "anna-lena")
            .env("FUSION_STATE_DIR", "/elsewhere/anna-lena/state")
            .output()
            .unwrap()
            .into();
        assert!(run.stderr.contains("read it before you send it"), "{}", run.stderr);
        let text = fs::read_to_string(&report).unwrap();
        assert!(text.contains("\"schema\": \"fusionctl.doctor/1\"") && text.contains("~/"), "{text}");
        for secret in &private {
            assert!(!text.contains(secret), "'{secret}' is in the report: {text}");
        }
    }
    assert!(fs::read_to_string(&report).unwrap().contains("/elsewhere/USER/state"));
}

#[test]
fn a_report_that_cannot_be_written_is_74() {
    let run = runner::run(Path::new("/nonexistent/s"), &["doctor", "--report", "/nonexistent/report.json"]);
    assert_eq!(run.code, 74, "{}", run.stderr);
}
