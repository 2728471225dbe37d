//! kill -9 against the real store, again and again: every acknowledged record is there, in the index and as a file.
//!
//! Killing leaves the page cache intact: this proves safety against the end of the process, not against loss of power.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod store_support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fusion_calibrations::record::Record;
use fusiond::store::{CalibrationKey, CalibrationStore, HISTORY_PER_KEY, Health, Scope, read_record_files};
use store_support::{numbers, open, record, record_files};
use tempfile::TempDir;

const STATE: &str = "FUSIOND_TEST_STATE";
const FIRST: &str = "FUSIOND_TEST_FIRST";
/// Rounds of the loop; more by this variable.
const ROUNDS: &str = "FUSIOND_KILL_ROUNDS";
const ROUNDS_BY_DEFAULT: u64 = 20;
/// Keys that the child writes to in turn.
const KEYS: u64 = 5;

fn rows_of(number: u64) -> u32 {
    1 + (number % KEYS) as u32
}

/// The child: commits for ever and says what is acknowledged. Does nothing on its own.
#[test]
fn child_that_commits_until_it_is_killed() {
    let (Some(state), Ok(first)) = (std::env::var_os(STATE), std::env::var(FIRST)) else { return };
    let mut store = open(&PathBuf::from(state)).store;
    let mut out = std::io::stdout();
    for number in first.parse::<u64>().unwrap().. {
        store.commit(&record(rows_of(number), number)).unwrap();
        writeln!(out, "acknowledged {number}").unwrap();
        out.flush().unwrap();
    }
}

/// Runs the child for `time` after its first acknowledgement and returns the last number that it acknowledged.
fn commit_and_kill(state: &Path, first: u64, time: Duration) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_commits_until_it_is_killed", "--nocapture"])
        .env(STATE, state)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut acknowledged = None;
    let mut note = |line: String| {
        // The last line may be cut off by the kill: then it isn't acknowledged.
        if let Some(number) = line.strip_prefix("acknowledged ").and_then(|number| number.parse().ok()) {
            acknowledged = Some(number);
        }
        acknowledged.is_some()
    };
    while !note(lines.next().expect("the child acknowledges something")) {}
    std::thread::sleep(time);
    child.kill().unwrap();
    child.wait().unwrap();
    for line in lines {
        note(line);
    }
    acknowledged.unwrap()
}

/// The newest `keep` acknowledged numbers of every key.
fn expected(last: u64, keep: usize) -> BTreeMap<u32, Vec<u64>> {
    let mut by_key: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for number in (1..=last).rev() {
        let numbers = by_key.entry(rows_of(number)).or_default();
        if numbers.len() < keep {
            numbers.push(number);
        }
    }
    by_key
}

#[test]
fn every_acknowledged_record_survives_kill_9() {
    let rounds = std::env::var(ROUNDS).map_or(ROUNDS_BY_DEFAULT, |rounds| rounds.parse().unwrap());
    let directory = TempDir::new().unwrap();
    let state = directory.path().join("state");
    let mut last = 0;
    for round in 0..rounds {
        // Times that are no multiple of a commit's, so that the kill falls everywhere.
        let time = Duration::from_micros(1_000 + round * 7_919 % 60_000);
        let acknowledged = commit_and_kill(&state, last + 1, time);
        assert!(acknowledged > last);

        // One unacknowledged record may be there, which can push one out at the limit.
        let keep = HISTORY_PER_KEY - 1;
        let mut in_files: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for file in record_files(&state) {
            let record = Record::decode(&std::fs::read(&file).unwrap()).unwrap();
            let numbers = in_files.entry(record.estimate.shape.rows()).or_default();
            numbers.push(record.estimate.stock_ms as u64);
        }
        let current = read_record_files(&state).unwrap();

        let opened = open(&state);
        assert_eq!(opened.health, Health::Healthy, "round {round}");
        for (rows, wanted) in expected(acknowledged, keep) {
            let key = CalibrationKey::of(&record(rows, 0));
            let in_index = numbers(&opened.store.history(&key).unwrap());
            assert!(
                wanted.iter().all(|number| in_index.contains(number)),
                "round {round}: {wanted:?} of {in_index:?}"
            );
            assert!(
                wanted.iter().all(|number| in_files[&rows].contains(number)),
                "round {round}: {wanted:?}"
            );
        }
        assert_eq!(opened.store.latest(Scope::All).unwrap().len(), current.len(), "round {round}");
        let report = opened.store.verify().unwrap();
        assert!(report.is_sound() && report.set_aside.is_empty(), "round {round}: {report:?}");
        // What wasn't acknowledged may be there: go on behind it.
        last = numbers(&opened.store.latest(Scope::All).unwrap()).into_iter().max().unwrap();
        assert!(
            last == acknowledged || last == acknowledged + 1,
            "round {round}: {acknowledged} then {last}"
        );
    }
    println!("{rounds} rounds, {last} records: none lost");
}
