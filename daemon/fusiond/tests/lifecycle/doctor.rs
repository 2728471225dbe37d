//! `fusionctl doctor` beside the daemon: a worker that only the daemon's surroundings slow.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use fusion_calibrations::self_test::Pair;
use fusion_client::{Client, ClientError, v1};

use crate::commands::fusionctl;
use crate::scripted_worker::THROTTLED;
use crate::support::{Daemon, Place, collect, eventually, shape};

const SHAPE: &str = "512x64x64";

/// While this file is there, the workers of a daemon that [`start`] started are slow, and those of a terminal aren't.
fn brake(place: &Place) -> PathBuf {
    place.directory.path().join("brake")
}

async fn start(place: &Place) -> Daemon {
    let mut command = place.command(&format!("throttled-if:{}", brake(place).display()));
    command.env(THROTTLED, "1");
    place.start_with(command).await
}

async fn answer(client: &Client) -> v1::GetRatioReply {
    client.get_ratio(shape(SHAPE), None).await.unwrap()
}

/// What the doctor says of the self-test, and its exit code.
async fn doctor(daemon: &Daemon) -> (i32, String) {
    let (code, said) = fusionctl(daemon, &["doctor", "--json", "-q"]).await;
    let at = said.find("\"self_test\"").unwrap_or_else(|| panic!("no self-test: {said}"));
    (code, said[at..].to_owned())
}

pub async fn a_throttled_daemon_is_found_and_not_believed() {
    let place = Place::new();
    let daemon = start(&place).await;
    let client = daemon.client().await;
    daemon.calibrate(&[SHAPE]).await;
    assert_eq!(answer(&client).await.source(), v1::Source::Exact);
    let (_, tested) = doctor(&daemon).await;
    assert!(tested.contains("\"verdict\": \"equal\""), "{tested}");
    assert_eq!(answer(&client).await.source(), v1::Source::Exact);

    std::fs::write(brake(&place), "").unwrap();
    let (code, tested) = doctor(&daemon).await;
    assert_eq!(code, 1, "{tested}");
    assert!(tested.contains("\"verdict\": \"throttled\"") && tested.contains("\"value\": 2."), "{tested}");
    let withheld = answer(&client).await;
    assert_eq!((withheld.source(), withheld.secondary_rows), (v1::Source::None, 0));
    assert!(withheld.withheld.starts_with("agent throttled"), "{}", withheld.withheld);
    let explained = client.explain_ratio(shape(SHAPE), None).await.unwrap();
    assert!(explained.summary.contains("agent throttled"), "{}", explained.summary);
    let refused = collect(&client, &[shape(SHAPE)], v1::Freshness::Reuse).await.unwrap_err();
    assert!(refused.to_string().contains("agent throttled"), "{refused}");
    let (_, status) = fusionctl(&daemon, &["status"]).await;
    assert!(status.contains("agent throttled"), "{status}");
    // It is kept all the same.
    assert_eq!(client.history(shape(SHAPE), 10).await.unwrap().total, 1);

    std::fs::remove_file(brake(&place)).unwrap();
    let (_, tested) = doctor(&daemon).await;
    assert!(tested.contains("\"verdict\": \"equal\""), "{tested}");
    let believed = answer(&client).await;
    assert_eq!((believed.source(), believed.withheld.as_str()), (v1::Source::Exact, ""));
}

pub async fn a_restart_forgets_what_a_self_test_found() {
    let place = Place::new();
    let mut daemon = start(&place).await;
    daemon.calibrate(&[SHAPE]).await;
    std::fs::write(brake(&place), "").unwrap();
    assert_eq!(doctor(&daemon).await.0, 1);
    daemon.signal("-TERM");
    assert!(daemon.ended().await.success());
    let daemon = start(&place).await;
    let client = daemon.client().await;
    assert_eq!(answer(&client).await.source(), v1::Source::Exact);
    assert_eq!(client.status().await.unwrap().self_test, None);
}

pub async fn a_self_test_waits_for_peace() {
    let place = Place::new();
    let daemon = place.start("slow").await;
    let client = daemon.client().await;
    let mut running = client.calibrate(&[shape(SHAPE)], v1::Freshness::Reuse, "runs").await.unwrap();
    running.next().await.unwrap();
    let busy = client.self_test().await.unwrap_err();
    assert!(matches!(busy, ClientError::Busy(_)), "{busy}");
    drop(running);
    let mut test = eventually("peace", async || client.self_test().await.ok()).await;
    let ready = test.ready().await.unwrap();
    assert_eq!(test.round().await.unwrap().len(), ready.calls as usize);
    let worker = daemon.children();
    assert_eq!(worker.len(), 1, "the worker of the self-test");
    // A job that comes in between ends it, and its worker.
    let mut running = client.calibrate(&[shape(SHAPE)], v1::Freshness::Reuse, "runs").await.unwrap();
    let interrupted = loop {
        if let Err(error) = test.round().await {
            break error;
        }
    };
    assert!(matches!(interrupted, ClientError::Busy(_)), "{interrupted}");
    while running.next().await.unwrap().is_some() {}
    eventually("the end of the worker", async || (!daemon.children().contains(&worker[0])).then_some(()))
        .await;
}

pub async fn where_nothing_can_be_timed_there_is_no_self_test() {
    let place = Place::new();
    let daemon = place.start("dies").await;
    let client = daemon.client().await;
    let mut test = client.self_test().await.unwrap();
    let dead = test.ready().await.unwrap_err();
    assert!(dead.to_string().contains("Insufficient Memory"), "{dead}");
    client.status().await.unwrap();

    let place = Place::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fusiond"));
    command.arg("--socket").arg(place.socket().as_path()).arg("--state-dir").arg(place.state());
    command.args(["--machine", "recorded:m4-pro"]).stdin(Stdio::null()).stderr(Stdio::piped());
    let daemon = place.start_with(command).await;
    let refused = daemon.client().await.self_test().await.unwrap_err();
    assert!(refused.to_string().contains("data stands in"), "{refused}");
}

pub async fn rounds_without_times_are_refused() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let client = daemon.client().await;
    for pairs in [&[][..], &[Pair { terminal_ms: 0.0, daemon_ms: f64::NAN }]] {
        let refused = client.report_self_test(pairs).await.unwrap_err();
        assert!(matches!(refused, ClientError::InvalidArgument(_)), "{refused}");
    }
}
