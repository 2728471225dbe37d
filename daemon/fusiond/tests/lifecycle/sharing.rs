//! Calibrations that travel: export on one machine, import on another, and everything that may go wrong in between.

use std::os::unix::process::ExitStatusExt as _;

use fusion_calibrations::record::Record;
use fusion_calibrations::shape::Shape;
use fusion_calibrations::sharing::TakenAs;
use fusion_calibrations::sharing::bundle::Bundle;
use fusion_client::{Client, ClientError, ImportEvent, v1};

use crate::support::{Daemon, Place, collect, eventually, shape, tally};

const SHAPES: [&str; 3] = ["256x64x64", "512x64x64", "512x64x128"];

/// A daemon that knows which chip its machine has.
async fn start(place: &Place) -> Daemon {
    let daemon = place.start("steady").await;
    identified(&daemon).await;
    daemon
}

async fn identified(daemon: &Daemon) {
    let client = daemon.client().await;
    eventually("the chip", async || client.status().await.unwrap().chip).await;
}

/// What a machine of the same kind exports after measuring `shapes`.
async fn exported(shapes: &[&str]) -> Vec<u8> {
    let place = Place::new();
    let daemon = start(&place).await;
    daemon.calibrate(shapes).await;
    daemon.client().await.export(None).await.unwrap()
}

/// The bundle, with each record changed.
fn changed(bundle: &[u8], change: impl Fn(&mut Record)) -> Vec<u8> {
    let mut records = Bundle::decode(bundle).unwrap().into_records();
    records.iter_mut().for_each(change);
    Bundle::new(records).unwrap().encode().unwrap()
}

async fn import(client: &Client, bundle: &[u8], taken: TakenAs) -> Result<(u32, u32, u32), ClientError> {
    let mut import = client.import(bundle, taken).await?;
    while let Some(event) = import.next().await? {
        if let ImportEvent::Finished(finished) = event {
            assert_eq!(import.next().await?, None);
            return Ok((finished.taken, finished.known_better, finished.already_there));
        }
    }
    panic!("the import ended without saying how")
}

async fn provenance(client: &Client, shape: Shape) -> (v1::Source, v1::Provenance) {
    let answer = client.get_ratio(shape, None).await.unwrap();
    (answer.source(), answer.estimate.map_or(v1::Provenance::Unspecified, |estimate| estimate.provenance()))
}

pub async fn an_equal_machine_answers_from_what_it_was_given() {
    let bundle = exported(&SHAPES).await;
    let place = Place::new();
    let daemon = start(&place).await;
    let client = daemon.client().await;
    assert_eq!(import(&client, &bundle, TakenAs::Imported).await.unwrap(), (3, 0, 0));
    let known = shape(SHAPES[1]);
    assert_eq!(provenance(&client, known).await, (v1::Source::Exact, v1::Provenance::Imported));
    let explained = client.explain_ratio(known, None).await.unwrap();
    assert!(explained.summary.contains("on an equal machine (imported)"), "{}", explained.summary);
    assert_eq!(import(&client, &bundle, TakenAs::Imported).await.unwrap(), (0, 0, 3));
    assert_eq!(tally(&daemon.calibrate(&SHAPES).await), (0, 3, 0));
    collect(&client, &[known], v1::Freshness::Remeasure).await.unwrap();
    assert_eq!(provenance(&client, known).await, (v1::Source::Exact, v1::Provenance::Measured));
    assert_eq!(import(&client, &bundle, TakenAs::Imported).await.unwrap(), (0, 1, 2));
    assert_eq!(provenance(&client, known).await, (v1::Source::Exact, v1::Provenance::Measured));
    // What it passes on are the same calibrations, and what it imported is still called so.
    let passed_on = Bundle::decode(&client.export(None).await.unwrap()).unwrap();
    assert_eq!(passed_on.records().len(), 3);
}

pub async fn what_was_measured_here_answers_before_what_came_later() {
    let bundle = changed(&exported(&SHAPES).await, |record| {
        record.estimate.measured_at_unix_ms += 3_600_000;
        record.written_by = "somebody else".to_owned();
    });
    let place = Place::new();
    let daemon = start(&place).await;
    let client = daemon.client().await;
    daemon.calibrate(&["256x64x64"]).await;
    assert_eq!(import(&client, &bundle, TakenAs::Imported).await.unwrap(), (2, 1, 0));
    // An exact one is there, but a measured one can answer through its lines.
    let near = shape("512x64x64");
    assert_eq!(provenance(&client, near).await, (v1::Source::OtherRows, v1::Provenance::Measured));
    let explained = client.explain_ratio(near, None).await.unwrap();
    let imported = explained.considered.iter().find(|considered| !considered.chosen).unwrap();
    assert_eq!(imported.reason, "taken over from another machine");
    // Nobody measured that layer here.
    let other = shape("512x64x128");
    assert_eq!(provenance(&client, other).await, (v1::Source::Exact, v1::Provenance::Imported));
}

pub async fn another_chips_calibrations_are_refused_or_become_priors() {
    let bundle = changed(&exported(&SHAPES).await, |record| record.chip.memory_gib = 512);
    let place = Place::new();
    let mut daemon = start(&place).await;
    let client = daemon.client().await;
    let refused = import(&client, &bundle, TakenAs::Imported).await.unwrap_err();
    assert!(matches!(refused, ClientError::FailedPrecondition(_)), "{refused}");
    for word in ["512 GiB", "16 GiB", "--as-prior"] {
        assert!(refused.to_string().contains(word), "{word}: {refused}");
    }
    let known = shape(SHAPES[0]);
    assert_eq!(provenance(&client, known).await, (v1::Source::None, v1::Provenance::Unspecified));
    assert_eq!(import(&client, &bundle, TakenAs::Prior).await.unwrap(), (3, 0, 0));
    assert_eq!(provenance(&client, known).await, (v1::Source::Exact, v1::Provenance::Prior));
    // A guess is no answer to who asks for a measurement, and is none the better after a restart.
    daemon.signal("-TERM");
    assert!(daemon.ended().await.success());
    let daemon = start(&place).await;
    assert_eq!(provenance(&daemon.client().await, known).await, (v1::Source::Exact, v1::Provenance::Prior));
    assert_eq!(tally(&daemon.calibrate(&[SHAPES[0]]).await), (1, 0, 0));
}

pub async fn numbers_that_were_not_measured_stay_out() {
    let bundle = changed(&exported(&SHAPES).await, |record| {
        record.chip.pair = "recorded".parse().unwrap();
    });
    let place = Place::new();
    let daemon = start(&place).await;
    for taken in [TakenAs::Imported, TakenAs::Prior] {
        let refused = import(&daemon.client().await, &bundle, taken).await.unwrap_err();
        assert!(refused.to_string().contains("another pair of units (recorded"), "{refused}");
    }
}

pub async fn a_damaged_bundle_changes_nothing() {
    let bundle = exported(&SHAPES).await;
    let place = Place::new();
    let daemon = start(&place).await;
    let client = daemon.client().await;
    let mut flipped = bundle.clone();
    let last_record = flipped.len() - 100;
    flipped[last_record] ^= 1;
    for damaged in [&flipped[..], &bundle[..bundle.len() - 1], b"FCB1", b""] {
        let refused = import(&client, damaged, TakenAs::Imported).await.unwrap_err();
        assert!(matches!(refused, ClientError::InvalidArgument(_)), "{refused}");
    }
    let too_large = vec![0; (32 << 20) + 1];
    let refused = import(&client, &too_large, TakenAs::Imported).await.unwrap_err();
    assert!(refused.to_string().contains("more than 32 MiB"), "{refused}");
    assert_eq!(client.status().await.unwrap().store.unwrap().estimates, 0);
}

pub async fn a_chip_that_nothing_is_known_of_is_not_exported() {
    let place = Place::new();
    let daemon = start(&place).await;
    let client = daemon.client().await;
    let nothing = client.export(None).await.unwrap_err();
    assert!(matches!(nothing, ClientError::NotFound(_)), "{nothing}");
    assert!(nothing.to_string().contains("fusionctl calibrate"), "{nothing}");
    daemon.calibrate(&["64x64x64"]).await;
    let own = client.status().await.unwrap().chip.unwrap().key;
    let unknown = client.export(Some("apple-m9")).await.unwrap_err();
    assert!(unknown.to_string().contains(&own), "{unknown}");
    assert!(!client.export(Some(&own)).await.unwrap().is_empty());
}

/// As many calibrations of different row counts as `count`, as another machine of this kind would export them.
async fn many(count: u32) -> Vec<u8> {
    let one = Bundle::decode(&exported(&["256x64x64"]).await).unwrap().into_records().remove(0);
    let with_rows = |rows| {
        let mut record = one.clone();
        record.estimate.shape = one.estimate.shape.layer().with_rows(rows).unwrap();
        record.estimate.secondary_rows = one.estimate.secondary_rows.min(rows);
        record
    };
    Bundle::new((1..=count).map(|number| with_rows(64 * number)).collect()).unwrap().encode().unwrap()
}

pub async fn killed_at_any_step_of_an_import_the_next_one_mends_it() {
    const RECORDS: u32 = 6;
    let bundle = many(RECORDS).await;
    // Before the first record, between taking one and telling so, before the next, and so on to the last word.
    for step in 0..=2 * RECORDS {
        let place = Place::new();
        let mut command = place.command("steady");
        command.env("FUSION_CRASH_AT_IMPORT_STEP", step.to_string());
        let mut daemon = place.start_with(command).await;
        identified(&daemon).await;
        let lost = import(&daemon.client().await, &bundle, TakenAs::Imported).await.unwrap_err();
        assert!(matches!(lost, ClientError::Lost { .. }), "step {step}: {lost}");
        assert_eq!(daemon.ended().await.signal(), Some(9));
        let daemon = start(&place).await;
        let client = daemon.client().await;
        let stored = step.div_ceil(2);
        assert_eq!(client.status().await.unwrap().store.unwrap().estimates, u64::from(stored));
        let counts = import(&client, &bundle, TakenAs::Imported).await.unwrap();
        assert_eq!(counts, (RECORDS - stored, 0, stored), "step {step}");
        let report = client.verify_store().await.unwrap();
        assert_eq!((report.problems, report.estimates), (Vec::new(), u64::from(RECORDS)));
    }
}

pub async fn an_import_whose_caller_leaves_is_finished_by_the_next() {
    const RECORDS: u32 = 24;
    let bundle = many(RECORDS).await;
    let place = Place::new();
    let daemon = start(&place).await;
    let client = daemon.client().await;
    let mut left = client.import(&bundle, TakenAs::Imported).await.unwrap();
    left.next().await.unwrap();
    drop(left);
    let (taken, better, already) = import(&client, &bundle, TakenAs::Imported).await.unwrap();
    assert_eq!((taken + already, better), (RECORDS, 0));
    assert!(already > 0, "the first one was acknowledged");
    assert_eq!(client.status().await.unwrap().store.unwrap().estimates, u64::from(RECORDS));
}
