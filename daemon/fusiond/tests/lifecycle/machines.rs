//! Machines that are data, and what is learnt of a machine.

use std::process::{Command, Stdio};

use fusion_calibrations::recorded;
use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_client::v1::{self, calibrate_event::Event};

use crate::support::{Daemon, Place, collect, failures, shape, tally};

/// The layers of a Llama block that were recorded at this number of rows.
const BLOCK: [&str; 3] = ["1024x4096x4096", "1024x4096x14336", "1024x14336x4096"];

fn f16(text: &str) -> Shape {
    Shape::parse(text, WeightFormat::F16, Layout::default()).unwrap()
}

fn command(place: &Place, machine: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fusiond"));
    command.arg("--socket").arg(place.socket().as_path()).arg("--state-dir").arg(place.state());
    command.args(["--machine", machine]).stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

async fn start(place: &Place, machine: &str) -> Daemon {
    place.start_with(command(place, machine)).await
}

async fn stop(mut daemon: Daemon) {
    daemon.signal("-TERM");
    assert!(daemon.ended().await.success());
}

async fn calibrate(daemon: &Daemon, shapes: &[Shape]) -> Vec<Event> {
    collect(&daemon.client().await, shapes, v1::Freshness::Reuse).await.unwrap()
}

pub async fn a_recorded_machine_is_calibrated_like_any_other() {
    let place = Place::new();
    let daemon = start(&place, "recorded:m4-pro").await;
    let client = daemon.client().await;
    let shapes = BLOCK.map(f16);
    assert_eq!(tally(&calibrate(&daemon, &shapes).await), (3, 0, 0));
    assert_eq!(daemon.children().len(), 0);
    for shape in shapes {
        let grid = recorded::find("m4-pro").unwrap().grid(shape).unwrap();
        let answer = client.get_ratio(shape, None).await.unwrap();
        assert_eq!(answer.source(), v1::Source::Exact);
        let ms = grid.ms_at(answer.secondary_rows).unwrap();
        assert!(ms <= grid.best().median_ms * 1.05, "{shape}: {ms} ms against {:?}", grid.best());
        let explained = client.explain_ratio(shape, None).await.unwrap();
        assert!(explained.points.iter().all(|point| grid.ms_at(point.secondary_rows).is_some()));
        assert!(explained.samples.iter().all(|sample| sample.primary_finish_ms.is_none()));
    }
    assert_eq!(tally(&calibrate(&daemon, &shapes).await), (0, 3, 0));
}

pub async fn recorded_numbers_are_labelled_everywhere() {
    let place = Place::new();
    let daemon = start(&place, "recorded:m1").await;
    let client = daemon.client().await;
    let shape = f16("2048x4096x4096");
    let events = calibrate(&daemon, &[shape]).await;
    let labelled = |chip: Option<v1::Chip>| {
        let chip = chip.unwrap();
        assert_eq!((chip.pair.as_str(), chip.brand.as_str()), ("recorded", "Apple M1"));
        assert!(chip.pair_label.starts_with("recorded: replayed"), "{}", chip.pair_label);
        assert!(chip.key.ends_with(".recorded"), "{}", chip.key);
    };
    labelled(events.iter().rev().find_map(|event| match event {
        Event::Started(started) => started.chip.clone(),
        _ => None,
    }));
    let status = client.status().await.unwrap();
    labelled(status.chip);
    assert!(status.units.contains("FusionML@aaf789c530cb"), "{}", status.units);
    let engine = status.engine.unwrap();
    assert_eq!(
        (engine.mlx_version.as_str(), engine.library_hash.as_str()),
        ("data: recorded grids", "aaf789c530cb")
    );
    let answer = client.get_ratio(shape, None).await.unwrap();
    labelled(answer.chip);
    for estimate in client.list_ratios().collect().await.unwrap() {
        assert!(estimate.chip_key.ends_with(".recorded"));
        assert_eq!(estimate.relative_error, None);
    }
    let explained = client.explain_ratio(shape, None).await.unwrap();
    assert!(explained.summary.contains("replayed from recordings"), "{}", explained.summary);
}

pub async fn a_shape_that_was_not_recorded_is_refused_with_what_was() {
    let place = Place::new();
    let daemon = start(&place, "recorded:m4-pro").await;
    let events = calibrate(&daemon, &[f16("1000x4096x4096"), f16("1024x4096x4096")]).await;
    assert_eq!(tally(&events), (1, 0, 1));
    let reason = &failures(&events)[0];
    assert!(reason.contains("1024, 2048, 8192 rows"), "{reason}");
    let status = daemon.client().await.status().await.unwrap();
    assert_eq!(status.worker.unwrap().health(), v1::Health::Ok);
    // Rows in between are answered through the lines, as ever.
    let tail = daemon.client().await.get_ratio(f16("1000x4096x4096"), None).await.unwrap();
    assert_eq!(tail.source(), v1::Source::OtherRows);
    assert!(tail.secondary_rows > 0);
}

pub async fn recorded_modelled_and_measured_never_mix() {
    let place = Place::new();
    let shape = f16("1024x4096x4096");
    let daemon = place.start("steady").await;
    calibrate(&daemon, &[shape]).await;
    let measured = daemon.client().await.get_ratio(shape, None).await.unwrap();
    stop(daemon).await;
    for machine in ["recorded:m4-pro", "model:m4-pro", "recorded:m1"] {
        let daemon = start(&place, machine).await;
        let client = daemon.client().await;
        let answer = client.get_ratio(shape, None).await.unwrap();
        assert_ne!(answer.source(), v1::Source::Exact, "{machine}");
        assert!(answer.estimate.is_none(), "{machine}");
        assert_eq!(tally(&calibrate(&daemon, &[shape]).await), (1, 0, 0));
        let store = client.status().await.unwrap().store.unwrap();
        assert_eq!(store.current_estimates, 1, "{machine}");
        stop(daemon).await;
    }
    // The worker is missing now, so this rests on what the store knows of the last one.
    let mut command = Command::new(env!("CARGO_BIN_EXE_fusiond"));
    command.arg("--socket").arg(place.socket().as_path()).arg("--state-dir").arg(place.state());
    command.args(["--worker", "/nonexistent/fusion-worker"]);
    let daemon = place.start_with(command).await;
    let client = daemon.client().await;
    let again = client.get_ratio(shape, None).await.unwrap();
    assert_eq!((again.source(), again.chip), (v1::Source::Exact, measured.chip));
    assert_eq!(again.estimate, measured.estimate);
    assert_eq!(client.status().await.unwrap().store.unwrap().estimates, 4);
}

pub async fn a_modelled_machine_has_finish_times() {
    let place = Place::new();
    let daemon = start(&place, "model:m2").await;
    let client = daemon.client().await;
    let shape = f16("777x4096x14336");
    assert_eq!(tally(&calibrate(&daemon, &[shape]).await), (1, 0, 0));
    let answer = client.get_ratio(shape, None).await.unwrap();
    assert!(answer.chip.unwrap().pair_label.starts_with("modelled"));
    assert!((0.2..0.5).contains(&answer.ratio), "{}", answer.ratio);
    let explained = client.explain_ratio(shape, None).await.unwrap();
    assert!(explained.points.iter().any(|point| point.secondary_ms.is_some()));
}

pub async fn an_unknown_machine_lists_the_known_ones() {
    let place = Place::new();
    let (code, message) = place.fails(command(&place, "recorded:xyz"));
    assert_eq!(code, 78);
    assert!(message.contains("'recorded:xyz'") && message.contains("recorded:m4-pro"), "{message}");
}

pub async fn a_discovered_cliff_is_remembered() {
    let place = Place::new();
    let asked = shape("512x896x4864");
    let explain = async |daemon: &Daemon| daemon.client().await.explain_ratio(asked, None).await.unwrap();
    let found = |explained: &v1::ExplainRatioReply| -> Vec<u32> {
        let discovered = explained.cliffs.iter().filter(|cliff| cliff.discovered);
        discovered.map(|cliff| cliff.secondary_rows).collect()
    };
    let daemon = place.start("cliff").await;
    daemon.calibrate(&["512x896x4864"]).await;
    let first = explain(&daemon).await;
    let [cliff] = found(&first)[..] else { panic!("{first:?}") };
    let fate = |explained: &v1::ExplainRatioReply| {
        explained.points.iter().find(|point| point.secondary_rows == cliff).unwrap().fate()
    };
    assert_eq!(fate(&first), v1::Fate::DiscoveredCliff);
    assert!(first.cliffs[0].found_by.contains("512x896x4864"), "{}", first.cliffs[0].found_by);
    stop(daemon).await;

    // Another daemon, and calibrations that don't look there again.
    let daemon = place.start("cliff").await;
    let client = daemon.client().await;
    for _ in 0..6 {
        collect(&client, &[asked], v1::Freshness::Remeasure).await.unwrap();
        let again = explain(&daemon).await;
        assert!(found(&again).contains(&cliff), "{again:?}");
        let calls = again.samples.iter().filter(|sample| sample.secondary_rows == cliff);
        assert!(calls.clone().all(|sample| sample.dropped_reason.contains("cliff")), "{again:?}");
    }
    // A layer with as many inputs shares the rule, one with fewer does not.
    let larger = daemon.client().await.explain_ratio(shape("512x1024x64"), None).await.unwrap();
    assert!(found(&larger).contains(&cliff));
    let smaller = daemon.client().await.explain_ratio(shape("512x512x64"), None).await.unwrap();
    assert!(found(&smaller).is_empty());
}
