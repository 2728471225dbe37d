//! A full and a read-only file system, real ones. Linux only, and only where an unprivileged user may mount in a namespace
//! of its own; elsewhere these tests say that they were skipped. The errors themselves are also injected in store_faults.rs.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![cfg(target_os = "linux")]

mod store_support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fusiond::store::{CalibrationStore, Health, SledStore, StoreError, read_record_files};
use store_support::{chip, engine, open, record, record_files, record_with};
use tempfile::TempDir;

const MOUNT: &str = "FUSIOND_TEST_MOUNT";

/// Runs a test of this file as a child, with an own file system of 2 MiB at a directory of its own.
fn on_own_file_system(test: &str) {
    let mount = TempDir::new().unwrap();
    let available =
        Command::new("unshare").args(["-Urm", "true"]).output().is_ok_and(|output| output.status.success());
    if !available {
        eprintln!("SKIPPED: 'unshare -Urm' isn't permitted here, so there is no file system to fill");
        return;
    }
    let script = "mount -t tmpfs -o size=2m tmpfs \"$FUSIOND_TEST_MOUNT\" && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["-Urm", "sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(MOUNT, mount.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn mounted() -> Option<PathBuf> {
    std::env::var_os(MOUNT).map(PathBuf::from)
}

#[test]
fn a_full_disk_loses_nothing_and_is_used_again_when_there_is_room() {
    on_own_file_system("child_with_a_full_disk");
}

#[test]
fn child_with_a_full_disk() {
    let Some(mount) = mounted() else { return };
    let (state, ballast) = (mount.join("state"), mount.join("ballast"));
    let mut store = open(&state).store;
    std::fs::write(&ballast, vec![1; 700 << 10]).unwrap();
    let mut acknowledged = 0;
    let error = loop {
        let number = acknowledged + 1;
        assert!(number < 5000, "the disk never fills");
        let large = record_with(chip("Test chip"), engine("1A1"), number as u32, number, 200);
        match store.commit(&large) {
            Ok(_) => acknowledged = number,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("no space left"), "{error}");
    assert!(acknowledged > 10);
    for _ in 0..5 {
        assert!(store.commit(&record(1, 1)).unwrap_err().is_environment());
    }

    // Without a restart, as soon as there is room.
    std::fs::remove_file(&ballast).unwrap();
    store.commit(&record(5001, 5001)).unwrap();
    drop(store);

    let opened = open(&state);
    assert_eq!(opened.health, Health::Healthy);
    let found = store_support::numbers(&opened.store.latest(fusiond::store::Scope::All).unwrap());
    assert!((1..=acknowledged).chain([5001]).all(|number| found.contains(&number)));
    let report = opened.store.verify().unwrap();
    assert!(report.is_sound(), "{report:?}");
    drop(opened);

    // Full from the start: the error says so, and what is there can be read.
    while std::fs::File::options()
        .create(true)
        .append(true)
        .open(&ballast)
        .and_then(|mut file| std::io::Write::write_all(&mut file, &[1; 512]))
        .is_ok()
    {}
    match SledStore::open(&state) {
        Err(error) => assert!(matches!(error, StoreError::Full { .. }), "{error:?}"),
        Ok(mut opened) => assert!(opened.store.commit(&record(1, 1)).unwrap_err().is_environment()),
    }
    assert_eq!(read_record_files(&state).unwrap().len(), found.len());
}

#[test]
fn a_read_only_disk_is_named_and_can_be_read() {
    on_own_file_system("child_with_a_read_only_disk");
}

/// Busy as long as a file is open for writing: sled's threads may let theirs go a moment after the database is dropped.
fn make_read_only(mount: &Path) {
    let start = Instant::now();
    while !Command::new("mount").args(["-o", "remount,ro"]).arg(mount).output().unwrap().status.success() {
        assert!(start.elapsed() < Duration::from_secs(30), "{} stays busy", mount.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn child_with_a_read_only_disk() {
    let Some(mount) = mounted() else { return };
    let state = mount.join("state");
    let mut store = open(&state).store;
    store.commit(&record(1, 1)).unwrap();
    drop(store);
    make_read_only(&mount);
    let Err(error) = SledStore::open(&state) else { panic!("opened") };
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
    assert!(
        error.to_string().contains(state.to_str().unwrap()) && error.to_string().contains("--state-dir"),
        "{error}"
    );
    assert_eq!(read_record_files(&state).unwrap().len(), 1);
    assert_eq!(record_files(&state).len(), 1);
}
