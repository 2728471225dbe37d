//! Opening what crashes, faults of sled, other versions and people left behind. Nothing acknowledged is lost and nothing
//! is deleted.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod store_support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fusion_calibrations::record::Record;
use fusiond::store::{
    CalibrationStore, Health, MemoryStore, Opened, Revision, Scope, SledStore, StoreError, read_record_files,
};
use store_support::{
    chip, copy, directories, engine, newer_version, numbers, open, record, record_files, record_with,
    temporary,
};
use tempfile::TempDir;

/// A state directory with the records 1..=count, each of its own key, closed in order.
fn state_with(count: u64) -> TempDir {
    let state = TempDir::new().unwrap();
    let mut store = open(state.path()).store;
    for number in 1..=count {
        store.commit(&record(number as u32, number)).unwrap();
    }
    drop(store);
    state
}

fn quarantined(opened: &Opened) -> (String, std::path::PathBuf) {
    match &opened.health {
        Health::Degraded { reason, quarantined: Some(path), .. } => (reason.clone(), path.clone()),
        other => panic!("{other:?}"),
    }
}

fn assert_holds(opened: &Opened, count: u64) {
    let found = numbers(&opened.store.latest(Scope::All).unwrap());
    assert_eq!(found, (1..=count).collect::<Vec<_>>());
    let report = opened.store.verify().unwrap();
    assert!(report.is_sound(), "{report:?}");
}

fn edit_manifest(state: &Path, edit: impl FnOnce(&mut serde_json::Value)) {
    let path = state.join("store-manifest.json");
    let mut manifest = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut manifest);
    fs::write(&path, manifest.to_string()).unwrap();
}

#[test]
fn a_new_and_a_closed_store_are_healthy_and_leave_nothing_aside() {
    let state = TempDir::new().unwrap();
    assert_eq!(open(state.path()).health, Health::Healthy);
    let state = state_with(5);
    let opened = open(state.path());
    assert_eq!((opened.health.clone(), opened.adopted, opened.restored_files), (Health::Healthy, 0, 0));
    assert_holds(&opened, 5);
    assert!(directories(state.path(), "store.").iter().all(|path| path.is_file()));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state.path().join("calibrations")), 0o700);
}

// rust.md 2.4, 1: corruption panics inside `Config::open`.
#[test]
fn a_flipped_bit_or_a_cut_anywhere_loses_nothing() {
    const RECORDS: u64 = 400;
    let state = temporary();
    let mut store = open(state.path()).store;
    for number in 1..=RECORDS {
        store.commit(&record_with(chip("Test chip"), engine("1A1"), number as u32, number, 60)).unwrap();
    }
    drop(store);
    let mut reasons = Vec::new();
    for reopened in [false, true] {
        if reopened {
            // Opening again makes sled write a snapshot, which says where in the log everything is.
            drop(open(state.path()));
            assert!(!directories(&state.path().join("store"), "snap.").is_empty());
        }
        let intact = fs::read(state.path().join("store/db")).unwrap();
        for round in 0..20 {
            let damaged = temporary();
            copy(state.path(), damaged.path());
            let mut bytes = intact.clone();
            let at = bytes.len() * (round + 1) / 21;
            if round % 2 == 0 {
                bytes[at] ^= 1;
            } else {
                bytes.truncate(at);
            }
            fs::write(damaged.path().join("store/db"), bytes).unwrap();
            let opened = open(damaged.path());
            assert_holds(&opened, RECORDS);
            if let Health::Degraded { quarantined: Some(kept), rebuilt, reason } = &opened.health {
                assert!(kept.join("db").exists());
                assert_eq!(*rebuilt, RECORDS);
                reasons.push(reason.clone());
            }
        }
    }
    // Seen: a panic ("tried to serialize Uninitialized"), an older state, nothing at all, and reading past the end.
    reasons.sort();
    assert!(reasons.len() >= 10, "{reasons:#?}");
    println!("{reasons:#?}");
}

#[test]
fn an_index_of_garbage_is_quarantined_and_rebuilt_completely() {
    let state = state_with(20);
    fs::write(state.path().join("store/db"), vec![0x5a; 600_000]).unwrap();
    fs::write(state.path().join("store/conf"), b"not a configuration").unwrap();
    let opened = open(state.path());
    let (_, kept) = quarantined(&opened);
    assert_eq!(fs::read(kept.join("db")).unwrap(), vec![0x5a; 600_000], "the damaged bytes are kept");
    assert_holds(&opened, 20);
    assert_eq!(opened.store.verify().unwrap().set_aside[0].path, kept);
    drop(opened);
    assert_eq!(open(state.path()).health, Health::Healthy, "healthy again the next time");
}

// rust.md 2.4, 2 and 4: sled opens with less than it had, without an error.
#[test]
fn an_older_state_of_the_index_is_noticed() {
    let state = state_with(10);
    let older = TempDir::new().unwrap();
    copy(&state.path().join("store"), older.path());
    let mut store = open(state.path()).store;
    for number in 11..=15 {
        store.commit(&record(number as u32, number)).unwrap();
    }
    drop(store);
    fs::remove_dir_all(state.path().join("store")).unwrap();
    copy(older.path(), &state.path().join("store"));
    let opened = open(state.path());
    let (reason, _) = quarantined(&opened);
    assert!(reason.contains("acknowledged writes are missing"), "{reason}");
    assert_holds(&opened, 15);
}

#[test]
fn an_index_that_opens_empty_is_noticed() {
    let state = state_with(10);
    fs::remove_dir_all(state.path().join("store")).unwrap();
    fs::create_dir(state.path().join("store")).unwrap();
    let opened = open(state.path());
    let (reason, _) = quarantined(&opened);
    assert!(reason.contains("nothing"), "{reason}");
    assert_holds(&opened, 10);
}

#[test]
fn a_missing_index_is_rebuilt() {
    let state = state_with(10);
    fs::remove_dir_all(state.path().join("store")).unwrap();
    let opened = open(state.path());
    assert!(
        matches!(&opened.health, Health::Degraded { quarantined: None, rebuilt: 10, .. }),
        "{:?}",
        opened.health
    );
    assert_holds(&opened, 10);
}

#[test]
fn index_and_manifest_both_missing_are_rebuilt() {
    let state = state_with(10);
    fs::remove_dir_all(state.path().join("store")).unwrap();
    fs::remove_file(state.path().join("store-manifest.json")).unwrap();
    let mut opened = open(state.path());
    assert_holds(&opened, 10);
    assert_eq!(opened.store.commit(&record(11, 11)).unwrap(), Revision(11), "no revision is used twice");
}

#[test]
fn an_unreadable_manifest_is_replaced() {
    let state = state_with(3);
    fs::write(state.path().join("store-manifest.json"), b"{").unwrap();
    let opened = open(state.path());
    assert_holds(&opened, 3);
}

// rust.md 2.4, 3: an unfinished snapshot keeps sled from opening for ever.
#[test]
fn an_unfinished_snapshot_is_removed() {
    let state = state_with(5);
    fs::write(state.path().join("store/snap.00000000DEADBEEF.generating"), b"half a snapshot").unwrap();
    let opened = open(state.path());
    assert_eq!(opened.health, Health::Healthy);
    assert_holds(&opened, 5);
    assert_eq!(
        directories(&state.path().join("store"), "snap.00000000DEADBEEF"),
        Vec::<std::path::PathBuf>::new()
    );
}

// rust.md 2.4, 4: half of all copies of a live sled open empty. With the record files they are complete.
#[test]
fn a_copy_of_a_live_state_directory_is_a_backup() {
    let state = TempDir::new().unwrap();
    let mut store = open(state.path()).store;
    for number in 1..=30u64 {
        store.commit(&record(number as u32, number)).unwrap();
        if number % 6 == 0 {
            let backup = TempDir::new().unwrap();
            copy(state.path(), backup.path());
            let opened = open(backup.path());
            assert_holds(&opened, number);
        }
    }
}

// rust.md 2.4, 5: the second opener.
#[test]
fn a_second_opener_is_told_who_holds_the_store() {
    let state = state_with(1);
    let _first = open(state.path());
    let begun = std::time::Instant::now();
    let Err(error) = SledStore::open(state.path()) else { panic!("opened twice") };
    assert!(begun.elapsed() < std::time::Duration::from_secs(3));
    assert!(
        matches!(error, StoreError::Locked { pid: Some(pid), .. } if pid == std::process::id()),
        "{error}"
    );
    assert!(error.to_string().contains(&format!("process {}", std::process::id())));
}

#[test]
fn a_lock_that_is_about_to_go_is_waited_for() {
    let state = state_with(1);
    let first = open(state.path());
    let closing = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(150));
        drop(first);
    });
    assert_eq!(open(state.path()).health, Health::Healthy);
    closing.join().unwrap();
}

#[test]
fn a_record_file_without_an_entry_is_taken_in() {
    let state = state_with(3);
    // As a commit that was killed right after its record file.
    let files = record_files(state.path());
    let bytes = record(7, 7).encode().unwrap();
    fs::write(files[0].with_file_name("0000000004-7x896x4864-f32-nk-0000-late.fcal"), bytes).unwrap();
    fs::write(files[0].with_file_name(".0000000005-8x896x4864.fcal.tmp"), b"half a record").unwrap();
    let mut opened = open(state.path());
    assert_eq!((opened.health.clone(), opened.adopted), (Health::Healthy, 1));
    assert_eq!(numbers(&opened.store.latest(Scope::All).unwrap()), [1, 2, 3, 7]);
    assert_eq!(opened.store.commit(&record(8, 8)).unwrap(), Revision(5));
    assert!(opened.store.verify().unwrap().is_sound());
}

#[test]
fn deleted_record_files_are_written_anew_from_the_index() {
    let state = state_with(6);
    fs::remove_dir_all(state.path().join("calibrations")).unwrap();
    let opened = open(state.path());
    assert_eq!((opened.health.clone(), opened.restored_files), (Health::Healthy, 6));
    assert_holds(&opened, 6);
    assert_eq!(record_files(state.path()).len(), 6);
}

#[test]
fn a_damaged_record_file_is_reported_and_repaired_on_demand() {
    let state = state_with(4);
    let file = record_files(state.path())[1].clone();
    let mut bytes = fs::read(&file).unwrap();
    bytes[40] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let mut opened = open(state.path());
    let report = opened.store.verify().unwrap();
    assert_eq!(report.damaged_files.len(), 1, "{report:?}");
    assert!(report.damaged_files[0].contains("damaged"), "{report:?}");
    let rebuilt = opened.store.rebuild().unwrap();
    assert_eq!((rebuilt.records, rebuilt.restored_files), (4, 1));
    assert_holds(&opened, 4);
    assert_eq!(fs::read(file.with_extension("fcal.damaged")).unwrap(), bytes, "the damaged bytes are kept");
}

#[test]
fn damage_of_both_loses_only_what_is_damaged_in_both() {
    let state = state_with(4);
    let file = record_files(state.path())[1].clone();
    fs::write(&file, b"FCR1 nonsense").unwrap();
    fs::write(state.path().join("store/db"), vec![0; 4096]).unwrap();
    for snapshot in directories(&state.path().join("store"), "snap.") {
        fs::remove_file(snapshot).unwrap();
    }
    let mut opened = open(state.path());
    assert_eq!(opened.damaged_files, 1);
    assert_eq!(numbers(&opened.store.latest(Scope::All).unwrap()), [1, 3, 4]);
    assert_eq!(fs::read(&file).unwrap(), b"FCR1 nonsense", "left as it is");
    assert_eq!(opened.store.commit(&record(5, 5)).unwrap(), Revision(5));
}

#[test]
fn a_store_of_a_newer_fusiond_is_quarantined_and_what_can_be_read_is_served() {
    let state = state_with(5);
    edit_manifest(state.path(), |manifest| manifest["format"] = 99.into());
    let file = record_files(state.path())[4].clone();
    let newer = newer_version(&fs::read(&file).unwrap());
    fs::write(&file, &newer).unwrap();
    let opened = open(state.path());
    let (reason, kept) = quarantined(&opened);
    assert!(reason.contains("newer fusiond"), "{reason}");
    assert!(fs::read_to_string(kept.join("store-manifest.json")).unwrap().contains("99"));
    assert_eq!(opened.newer_records, 1);
    assert_eq!(numbers(&opened.store.latest(Scope::All).unwrap()), [1, 2, 3, 4]);
    assert_eq!(opened.store.verify().unwrap().newer, 1);
    assert_eq!(fs::read(&file).unwrap(), newer, "kept untouched");
    assert!(matches!(
        Record::decode(&newer).unwrap_err(),
        fusion_calibrations::record::RecordError::Newer { version: 9 }
    ));
}

#[test]
fn a_record_of_a_newer_fusiond_is_counted_and_kept() {
    let state = state_with(2);
    let first = record_files(state.path())[0].clone();
    let newer = newer_version(&fs::read(&first).unwrap());
    let file = first.with_file_name("0000000009-1x896x4864-f32-nk-0000-newer.fcal");
    fs::write(&file, &newer).unwrap();
    let mut opened = open(state.path());
    assert_eq!((opened.health.clone(), opened.newer_records, opened.adopted), (Health::Healthy, 1, 0));
    assert_eq!(opened.store.commit(&record(3, 3)).unwrap(), Revision(10), "its revision isn't used again");
    opened.store.rebuild().unwrap();
    assert_holds(&opened, 3);
    assert_eq!(fs::read(&file).unwrap(), newer);
}

#[test]
fn foreign_files_are_left_alone_and_named() {
    let state = state_with(1);
    let notes = state.path().join("calibrations/notes.txt");
    fs::write(&notes, b"mine").unwrap();
    let opened = open(state.path());
    let report = opened.store.verify().unwrap();
    assert_eq!(report.foreign_files, ["notes.txt"]);
    assert!(report.is_sound());
    assert_eq!(fs::read(&notes).unwrap(), b"mine");
}

#[test]
fn copies_made_before_opening_after_a_crash_do_not_pile_up() {
    let state = state_with(5);
    for _ in 0..3 {
        edit_manifest(state.path(), |manifest| manifest["clean"] = false.into());
        let opened = open(state.path());
        assert_eq!(opened.health, Health::Healthy);
        assert_eq!(opened.store.verify().unwrap().set_aside, []);
    }
}

/// After an unclean end the bytes are copied before sled cuts them short: the copy is what is quarantined.
#[test]
fn after_a_crash_the_untouched_bytes_are_quarantined() {
    let state = state_with(50);
    edit_manifest(state.path(), |manifest| {
        manifest["clean"] = false.into();
        manifest["state"]["generation"] = 1_000_000.into();
    });
    let before = fs::read(state.path().join("store/db")).unwrap();
    let opened = open(state.path());
    let (_, kept) = quarantined(&opened);
    assert_eq!(fs::read(kept.join("db")).unwrap(), before);
    assert_eq!(opened.store.verify().unwrap().set_aside.len(), 2, "the copy and what sled made of it");
    assert_holds(&opened, 50);
}

#[test]
fn a_directory_that_may_not_be_written_is_named_and_can_still_be_read() {
    // The superuser may write anywhere: only a really read-only file system stops it, see store_disk.rs.
    if rustix::process::getuid().is_root() {
        eprintln!("skipped: running as root");
        return;
    }
    let state = state_with(2);
    let locked = fs::Permissions::from_mode(0o500);
    fs::set_permissions(state.path(), locked).unwrap();
    fs::remove_file(state.path().join("store.lock")).unwrap_err();
    let Err(error) = SledStore::open(&state.path().join("below")) else { panic!("opened") };
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
    let readable = read_record_files(state.path()).unwrap();
    assert_eq!(numbers(&MemoryStore::with_records(readable).latest(Scope::All).unwrap()), [1, 2]);
    fs::set_permissions(state.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_state_directory_that_is_a_file_is_an_error() {
    let state = TempDir::new().unwrap();
    let path = state.path().join("file");
    fs::write(&path, b"").unwrap();
    let Err(error) = SledStore::open(&path) else { panic!("opened") };
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}
