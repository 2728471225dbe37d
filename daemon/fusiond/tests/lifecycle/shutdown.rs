//! The end: in order, in time, and without it.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use fusion_client::v1::{self, calibrate_event::Event};
use fusion_client::{Client, ClientError, wait_until_gone};

use crate::support::{Daemon, Place, eventually, shape};

/// The drain limit is 3 s; the rest is for a busy machine.
const IN_TIME: Duration = Duration::from_secs(8);

pub async fn terminate_leaves_nothing_behind() {
    let place = Place::new();
    let mut daemon = place.start("steady").await;
    daemon.calibrate(&["64x64x64"]).await;
    daemon.signal("-TERM");
    assert!(daemon.ended().await.success());
    assert!(!place.socket().as_path().exists());
    // Purging removes what is known to be the daemon's: all that it makes.
    for entry in std::fs::read_dir(place.state()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            fusion_client::state::is_ours(&name) || ["config", "logs"].contains(&name.as_str()),
            "{name}"
        );
    }
    // The lock is free at once.
    place.start("steady").await;
}

pub async fn a_drain_ends_open_streams() {
    let place = Place::new();
    let mut daemon = place.start("slow").await;
    let client = daemon.client().await;
    let mut calibration =
        client.calibrate(&[shape("64x64x64")], v1::Freshness::Reuse, "drained").await.unwrap();
    while !matches!(calibration.next().await.unwrap(), Some(Event::ShapeProgress(_))) {}
    let worker = daemon.children();
    let start = Instant::now();
    let reply = client.drain("a test").await.unwrap();
    assert_eq!(reply.pid, daemon.child.id());
    while let Ok(Some(_)) = calibration.next().await {}
    assert!(daemon.ended().await.success());
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    for pid in worker {
        eventually("the worker's end", async || (!alive(pid)).then_some(())).await;
    }
}

fn alive(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}/stat")).exists()
}

pub async fn a_silent_connection_does_not_hold_it_up() {
    let place = Place::new();
    let mut daemon = place.start("steady").await;
    let _silent = UnixStream::connect(place.socket().as_path()).unwrap();
    daemon.client().await.status().await.unwrap();
    let start = Instant::now();
    daemon.signal("-TERM");
    assert!(daemon.ended().await.success());
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    assert!(!place.socket().as_path().exists());
}

pub async fn a_killed_daemon_is_replaced_and_knows_everything() {
    let place = Place::new();
    for round in 1..=5u32 {
        let mut daemon = place.start("steady").await;
        daemon.calibrate(&[&format!("{}x64x64", round * 64)]).await;
        daemon.signal("-KILL");
        assert!(!daemon.ended().await.success());
        assert!(place.socket().as_path().exists(), "a killed daemon leaves its socket");
        let daemon = place.start("steady").await;
        let store = daemon.client().await.status().await.unwrap().store.unwrap();
        assert_eq!(store.estimates, u64::from(round));
        let client = daemon.client().await;
        for earlier in 1..=round {
            let answer = client.get_ratio(shape(&format!("{}x64x64", earlier * 64)), None).await.unwrap();
            assert_eq!(answer.source(), v1::Source::Exact);
        }
    }
}

pub async fn a_waiting_job_is_told_that_it_is_cancelled() {
    let place = Place::new();
    let mut daemon = place.start("slow").await;
    let client = daemon.client().await;
    let _running = client.calibrate(&[shape("64x64x64")], v1::Freshness::Reuse, "runs").await.unwrap();
    let mut waiting = client.calibrate(&[shape("128x64x64")], v1::Freshness::Reuse, "waits").await.unwrap();
    client.drain("a test").await.unwrap();
    let error = loop {
        match waiting.next().await {
            Ok(Some(_)) => {}
            other => break other.unwrap_err(),
        }
    };
    assert!(matches!(error, ClientError::Cancelled(_)), "{error}");
    assert!(daemon.ended().await.success());
}

pub async fn whoever_waits_until_it_is_gone_can_start_another() {
    let place = Place::new();
    let mut daemon = place.start("steady").await;
    // A connection that would hold the daemon up until its limit.
    let _silent = UnixStream::connect(place.socket().as_path()).unwrap();
    daemon.client().await.drain("a test").await.unwrap();
    assert!(wait_until_gone(&place.socket(), IN_TIME).await);
    let second = place.command("steady").spawn().unwrap();
    let mut second = Daemon { child: second, socket: place.socket() };
    eventually("the second daemon's answer", async || {
        assert_eq!(second.child.try_wait().unwrap(), None, "the second daemon found the first");
        Client::connect(&second.socket).await.ok()
    })
    .await;
    daemon.ended().await;
}
