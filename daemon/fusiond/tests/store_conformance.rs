//! What every store promises, run against each of them.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod store_support;

use std::path::Path;

use fusiond::store::{
    CalibrationKey, CalibrationStore, Fault, FaultyStore, HISTORY_PER_KEY, Identity, MemoryStore, Revision,
    SAMPLES_PER_KEY, Scope, SledStore, StoreError,
};
use store_support::{chip, engine, numbers, record, record_with};
use tempfile::TempDir;

/// Opens the same store again and again.
trait Place {
    fn open(&self) -> Box<dyn CalibrationStore>;
    fn directory(&self) -> &Path;
}

struct Memory(MemoryStore, TempDir);

impl Place for Memory {
    fn open(&self) -> Box<dyn CalibrationStore> {
        Box::new(self.0.clone())
    }
    fn directory(&self) -> &Path {
        self.1.path()
    }
}

struct Disk(TempDir);

impl Place for Disk {
    fn open(&self) -> Box<dyn CalibrationStore> {
        Box::new(SledStore::open(&self.0.path().join("state")).unwrap().store)
    }
    fn directory(&self) -> &Path {
        self.0.path()
    }
}

/// Wraps another place in a faulty store that never fails: the wrapper itself must change nothing.
struct Wrapped<P>(P);

impl<P: Place> Place for Wrapped<P> {
    fn open(&self) -> Box<dyn CalibrationStore> {
        Box::new(FaultyStore::new(Boxed(self.0.open()), 0, Fault::Before))
    }
    fn directory(&self) -> &Path {
        self.0.directory()
    }
}

struct Boxed(Box<dyn CalibrationStore>);

impl CalibrationStore for Boxed {
    fn commit(&mut self, record: &fusion_calibrations::record::Record) -> Result<Revision, StoreError> {
        self.0.commit(record)
    }
    fn latest(&self, scope: Scope<'_>) -> Result<Vec<fusiond::store::Stored>, StoreError> {
        self.0.latest(scope)
    }
    fn history(&self, key: &CalibrationKey) -> Result<Vec<fusiond::store::Stored>, StoreError> {
        self.0.history(key)
    }
    fn revision(&self) -> Revision {
        self.0.revision()
    }
    fn last_identity(&self) -> Result<Option<Identity>, StoreError> {
        self.0.last_identity()
    }
    fn set_identity(&mut self, identity: &Identity) -> Result<(), StoreError> {
        self.0.set_identity(identity)
    }
    fn trim(&mut self) -> Result<fusiond::store::Trimmed, StoreError> {
        self.0.trim()
    }
    fn verify(&self) -> Result<fusiond::store::VerifyReport, StoreError> {
        self.0.verify()
    }
    fn rebuild(&mut self) -> Result<fusiond::store::Rebuilt, StoreError> {
        self.0.rebuild()
    }
    fn export(&self, to: &Path) -> Result<fusiond::store::Exported, StoreError> {
        self.0.export(to)
    }
}

fn memory() -> Memory {
    Memory(MemoryStore::default(), TempDir::new().unwrap())
}

fn disk() -> Disk {
    Disk(TempDir::new().unwrap())
}

macro_rules! conformance {
    ($($name:ident,)*) => {
        mod memory_store { $(#[test] fn $name() { super::$name(&super::memory()); })* }
        mod sled_store { $(#[test] fn $name() { super::$name(&super::disk()); })* }
        mod faulty_store { $(#[test] fn $name() { super::$name(&super::Wrapped(super::disk())); })* }
    };
}

conformance! {
    an_empty_store_answers,
    a_commit_is_current_and_survives_reopening,
    the_last_commit_is_current_and_the_earlier_ones_are_history,
    scopes_hold_their_own,
    order_is_the_order_of_keys,
    history_is_bounded_and_old_samples_go,
    identities_are_kept,
    the_newest_record_tells_the_identity,
    a_rebuilt_store_is_the_same,
    an_export_holds_every_current_record,
    a_record_that_is_too_large_is_refused_and_harmless,
}

fn an_empty_store_answers(place: &dyn Place) {
    let store = place.open();
    assert_eq!(store.revision(), Revision(0));
    assert_eq!(store.latest(Scope::All).unwrap(), []);
    assert_eq!(store.history(&CalibrationKey::of(&record(1, 1))).unwrap(), []);
    assert_eq!(store.last_identity().unwrap(), None);
    let report = store.verify().unwrap();
    assert!(report.is_sound() && report.records == 0);
}

fn a_commit_is_current_and_survives_reopening(place: &dyn Place) {
    let committed = record(512, 1);
    assert_eq!(place.open().commit(&committed).unwrap(), Revision(1));
    let store = place.open();
    let latest = store.latest(Scope::All).unwrap();
    assert_eq!(latest.len(), 1);
    assert_eq!((latest[0].revision, &latest[0].record), (Revision(1), &committed));
    assert_eq!(store.revision(), Revision(1));
    assert!(store.verify().unwrap().is_sound());
}

fn the_last_commit_is_current_and_the_earlier_ones_are_history(place: &dyn Place) {
    let mut store = place.open();
    for number in 1..=3 {
        store.commit(&record(512, number)).unwrap();
    }
    store.commit(&record(1024, 9)).unwrap();
    assert_eq!(numbers(&store.latest(Scope::All).unwrap()), [3, 9]);
    let history = store.history(&CalibrationKey::of(&record(512, 0))).unwrap();
    assert_eq!(numbers(&history), [1, 2, 3]);
    assert!(history.windows(2).all(|pair| pair[0].revision < pair[1].revision));
}

fn scopes_hold_their_own(place: &dyn Place) {
    let mut store = place.open();
    // One chip's name begins with the other's.
    for (number, (name, build)) in [("A", "1"), ("A", "2"), ("AB", "1")].into_iter().enumerate() {
        store.commit(&record_with(chip(name), engine(build), 64, number as u64, 1)).unwrap();
    }
    let (a, one) = (chip("A").key(), engine("1").key());
    assert_eq!(numbers(&store.latest(Scope::Chip(&a)).unwrap()), [0, 1]);
    assert_eq!(numbers(&store.latest(Scope::Engine { chip: &a, engine: &one }).unwrap()), [0]);
    let layer = record(64, 0).estimate.shape.layer();
    assert_eq!(numbers(&store.latest(Scope::Layer { chip: &a, engine: &one, layer }).unwrap()), [0]);
    assert_eq!(store.latest(Scope::Chip("a")).unwrap(), []);
    assert_eq!(store.latest(Scope::All).unwrap().len(), 3);
}

fn order_is_the_order_of_keys(place: &dyn Place) {
    let mut store = place.open();
    for rows in [4096, 1, 256, 255, 65536, 512] {
        store.commit(&record(rows, u64::from(rows))).unwrap();
    }
    assert_eq!(numbers(&store.latest(Scope::All).unwrap()), [1, 255, 256, 512, 4096, 65536]);
}

fn history_is_bounded_and_old_samples_go(place: &dyn Place) {
    let mut store = place.open();
    let commits = HISTORY_PER_KEY as u64 + 5;
    store.commit(&record(8, 0)).unwrap();
    for number in 1..=commits {
        store.commit(&record(512, number)).unwrap();
    }
    let history = store.history(&CalibrationKey::of(&record(512, 0))).unwrap();
    assert_eq!(history.len(), HISTORY_PER_KEY);
    assert_eq!(numbers(&history).last(), Some(&commits));
    let with_samples: Vec<bool> = history.iter().map(|stored| !stored.record.samples.is_empty()).collect();
    assert_eq!(with_samples.iter().filter(|has| **has).count(), SAMPLES_PER_KEY);
    assert!(with_samples[HISTORY_PER_KEY - SAMPLES_PER_KEY..].iter().all(|has| *has));
    // Another key isn't touched, however old it is.
    assert_eq!(store.history(&CalibrationKey::of(&record(8, 0))).unwrap()[0].record, record(8, 0));
    assert_eq!(store.trim().unwrap(), fusiond::store::Trimmed::default());
    drop(store);
    let report = place.open().verify().unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.records, HISTORY_PER_KEY as u64 + 1);
}

fn identities_are_kept(place: &dyn Place) {
    let identity = Identity { chip: chip("Worker"), engine: engine("7") };
    let mut store = place.open();
    store.set_identity(&identity).unwrap();
    store.set_identity(&identity).unwrap();
    store.commit(&record(1, 1)).unwrap();
    drop(store);
    let mut store = place.open();
    assert_eq!(store.last_identity().unwrap(), Some(identity.clone()));
    store.rebuild().unwrap();
    assert_eq!(store.last_identity().unwrap(), Some(identity));
}

fn the_newest_record_tells_the_identity(place: &dyn Place) {
    let mut store = place.open();
    store.commit(&record_with(chip("Zebra"), engine("1"), 1, 1, 1)).unwrap();
    store.commit(&record_with(chip("Ant"), engine("2"), 1, 2, 1)).unwrap();
    let expected = Identity { chip: chip("Ant"), engine: engine("2") };
    assert_eq!(store.last_identity().unwrap(), Some(expected));
}

fn a_rebuilt_store_is_the_same(place: &dyn Place) {
    let mut store = place.open();
    for number in 0..40 {
        store.commit(&record(1 + number as u32 % 3, number)).unwrap();
    }
    let (before, revision) = (store.latest(Scope::All).unwrap(), store.revision());
    let key = CalibrationKey::of(&record(2, 0));
    let history = store.history(&key).unwrap();
    store.rebuild().unwrap();
    assert_eq!(store.latest(Scope::All).unwrap(), before);
    assert_eq!(store.history(&key).unwrap(), history);
    assert_eq!(store.revision(), revision);
    assert_eq!(store.commit(&record(1, 99)).unwrap(), Revision(revision.0 + 1));
    drop(store);
    assert!(place.open().verify().unwrap().is_sound());
}

fn an_export_holds_every_current_record(place: &dyn Place) {
    let mut store = place.open();
    for number in 0..4 {
        store.commit(&record(1 + number as u32 % 2, number)).unwrap();
    }
    let target = place.directory().join("export");
    assert_eq!(store.export(&target).unwrap().records, 2);
    let text = std::fs::read_to_string(target.join("calibrations.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    for (line, expected) in lines.iter().zip([2u64, 3]) {
        assert_eq!(line["stock_ms"], expected as f64);
        assert!(line["chip"]["label"].as_str().unwrap().starts_with("development pair"));
        let bytes = std::fs::read(target.join(line["file"].as_str().unwrap())).unwrap();
        let record = fusion_calibrations::record::Record::decode(&bytes).unwrap();
        assert_eq!(record.estimate.stock_ms, expected as f64);
    }
    let error = store.export(&target).unwrap_err();
    assert!(matches!(error, StoreError::ExportExists { .. }), "{error}");
}

fn a_record_that_is_too_large_is_refused_and_harmless(place: &dyn Place) {
    let mut store = place.open();
    store.commit(&record(1, 1)).unwrap();
    let large = record_with(chip("Test chip"), engine("1A1"), 1, 2, 5000);
    assert!(matches!(store.commit(&large).unwrap_err(), StoreError::Unstorable(_)));
    store.commit(&record(1, 3)).unwrap();
    assert_eq!(numbers(&store.latest(Scope::All).unwrap()), [3]);
}

/// Every third operation fails: what was acknowledged is there, what wasn't is there only if it was done.
#[test]
fn a_failed_operation_never_takes_an_acknowledged_record_along() {
    for fault in [Fault::Before, Fault::After] {
        let disk = disk();
        let mut store = FaultyStore::new(Boxed(disk.open()), 3, fault);
        let mut acknowledged = Vec::new();
        for number in 0..20 {
            if store.commit(&record(1 + number as u32, number)).is_ok() {
                acknowledged.push(number);
            }
        }
        drop(store);
        let found = numbers(&disk.open().latest(Scope::All).unwrap());
        assert!(acknowledged.iter().all(|number| found.contains(number)), "{fault:?}");
        assert_eq!(found.len(), if fault == Fault::Before { acknowledged.len() } else { 20 });
    }
}
