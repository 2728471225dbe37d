//! Every step of every write fails once, by an error and by the end of the process.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod store_support;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fusiond::store::{
    CalibrationKey, CalibrationStore, HISTORY_PER_KEY, Health, Identity, Options, Probe, Scope, SledStore,
    StoreError,
};
use store_support::{chip, engine, numbers, open, record, temporary};

const STATE: &str = "FUSIOND_TEST_STATE";
const STEP: &str = "FUSIOND_TEST_STEP";
/// More than all steps of the script below.
const ENOUGH: u64 = 10_000;

/// Calls `stop` at the `at`-th step, counted from 1.
fn at_step(at: u64, stop: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> (Probe, Arc<AtomicU64>) {
    let steps = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&steps);
    let probe: Probe =
        Arc::new(move |_| if counted.fetch_add(1, Ordering::Relaxed) + 1 == at { stop() } else { Ok(()) });
    (probe, steps)
}

/// Commits to three keys, one of them up to its retention limit, with an identity and a rebuild in between; calls
/// `acknowledged` after each commit that succeeded.
fn script(store: &mut SledStore, mut acknowledged: impl FnMut(u64)) {
    for number in 1..=(HISTORY_PER_KEY as u64 + 4) {
        let rows = if number % 8 == 0 { number as u32 } else { 1 };
        if store.commit(&record(rows, number)).is_ok() {
            acknowledged(number);
        }
        if number == 5 {
            let _ = store.set_identity(&Identity { chip: chip("Test chip"), engine: engine("1A1") });
        }
        if number == 12 {
            let _ = store.rebuild();
        }
    }
}

/// The newest acknowledged record of each key is there, or a later one, and the store is sound.
fn assert_kept(state: &Path, acknowledged: &[u64], context: &str) {
    let opened = open(state);
    let kept = |rows: u32| numbers(&opened.store.history(&CalibrationKey::of(&record(rows, 0))).unwrap());
    let hot: Vec<u64> = acknowledged.iter().copied().filter(|number| number % 8 != 0).collect();
    let found = kept(1);
    let limit = hot.len().saturating_sub(HISTORY_PER_KEY - 2);
    assert!(hot[limit..].iter().all(|number| found.contains(number)), "{context}: {hot:?} of {found:?}");
    for number in acknowledged.iter().copied().filter(|number| number % 8 == 0) {
        assert_eq!(kept(number as u32), [number], "{context}");
    }
    let report = opened.store.verify().unwrap();
    assert!(report.is_sound(), "{context}: {report:?}");
    assert!(found.len() <= HISTORY_PER_KEY, "{context}: {found:?}");
}

#[test]
fn an_error_at_any_step_loses_nothing_and_the_store_goes_on() {
    let (probe, steps) = at_step(ENOUGH, || Ok(()));
    let state = temporary();
    script(
        &mut SledStore::open_with(Options { state: state.path().to_owned(), probe: Some(probe) })
            .unwrap()
            .store,
        |_| {},
    );
    let total = steps.load(Ordering::Relaxed);
    assert!(total > 100, "{total}");
    for at in (1..=total).step_by(5) {
        let state = temporary();
        let (probe, _) = at_step(at, || Err(io::Error::from(io::ErrorKind::StorageFull)));
        let mut acknowledged = Vec::new();
        match SledStore::open_with(Options { state: state.path().to_owned(), probe: Some(probe) }) {
            Ok(mut opened) => script(&mut opened.store, |number| acknowledged.push(number)),
            Err(error) => assert!(matches!(error, StoreError::Full { .. }), "step {at}: {error}"),
        }
        let expected = HISTORY_PER_KEY + 4;
        assert!(
            acknowledged.is_empty() || acknowledged.len() >= expected - 1,
            "step {at}: one failed step fails one commit, {acknowledged:?}"
        );
        assert_kept(state.path(), &acknowledged, &format!("error at step {at} of {total}"));
    }
}

/// The child of the next test: runs the script and ends the process at a step. Does nothing on its own.
#[test]
fn child_that_aborts_at_a_step() {
    let (Some(state), Ok(at)) = (std::env::var_os(STATE), std::env::var(STEP)) else { return };
    let state = PathBuf::from(state);
    let log = state.with_extension("acknowledged");
    let (probe, _) = at_step(at.parse().unwrap(), || std::process::abort());
    let mut opened = SledStore::open_with(Options { state, probe: Some(probe) }).unwrap();
    script(&mut opened.store, |number| {
        use std::io::Write;
        let mut file = std::fs::File::options().create(true).append(true).open(&log).unwrap();
        writeln!(file, "{number}").unwrap();
    });
}

#[test]
fn the_end_of_the_process_at_any_step_loses_nothing() {
    // Every commit has the same dozen steps: the first commits, one with stripping, one with removing, and the rebuild.
    let everywhere = (1..=40).chain((41..420).step_by(17));
    for at in everywhere {
        let directory = temporary();
        let state = directory.path().join("state");
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_aborts_at_a_step", "--nocapture"])
            .env(STATE, &state)
            .env(STEP, at.to_string())
            .output()
            .unwrap()
            .status;
        let log = std::fs::read_to_string(state.with_extension("acknowledged")).unwrap_or_default();
        let acknowledged: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
        assert!(!status.success() || acknowledged.len() == HISTORY_PER_KEY + 4, "step {at}: {status}");
        assert_kept(&state, &acknowledged, &format!("abort at step {at}"));
    }
}

#[test]
fn a_failed_commit_can_be_repeated() {
    let state = temporary();
    let (probe, _) = at_step(20, || Err(io::Error::from(io::ErrorKind::StorageFull)));
    let opened =
        SledStore::open_with(Options { state: state.path().to_owned(), probe: Some(probe) }).unwrap();
    assert_eq!(opened.health, Health::Healthy);
    let mut store = opened.store;
    let mut failures = 0;
    for number in 1..=6 {
        while let Err(error) = store.commit(&record(number as u32, number)) {
            assert!(error.is_environment() && error.to_string().contains("no space left"), "{error}");
            failures += 1;
        }
    }
    assert_eq!(failures, 1);
    assert_eq!(numbers(&store.latest(Scope::All).unwrap()), [1, 2, 3, 4, 5, 6]);
}
