//! Inference processes: attached, told, listened to, and left alone.

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use fusion_calibrations::live::Observation;
use fusion_calibrations::sample::{FinishTimes, Unit};
use fusion_calibrations::shape::Layer;
use fusion_client::attach::{Attachment, Basis, LayerHandle, Options};
use fusion_client::v1;
use fusion_client::v1::attachment_client::AttachmentClient;

use crate::support::{Daemon, Place, eventually, shape};

fn layer() -> Layer {
    shape("1x896x4864").layer()
}

pub fn options(place: &Place) -> Options {
    let mut options = Options::new(place.socket(), "a test", vec![layer(), shape("1x64x64").layer()]);
    options.state_directory = Some(place.state());
    options
}

/// Attaching blocks, as it does for an inference thread.
pub async fn attach(options: Options) -> (Attachment, LayerHandle) {
    let attachment = tokio::task::spawn_blocking(|| Attachment::attach(options)).await.unwrap();
    let handle = attachment.layer(layer()).unwrap();
    (attachment, handle)
}

pub async fn clients(daemon: &Daemon) -> Vec<v1::ClientStatus> {
    let mut client = AttachmentClient::connect(format!("unix://{}", daemon.socket)).await.unwrap();
    client.list_clients(v1::ListClientsRequest::default()).await.unwrap().into_inner().clients
}

pub async fn a_client_is_told_at_once_and_whenever_something_changes() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let (attachment, handle) = attach(options(&place)).await;
    assert_eq!((attachment.basis(), attachment.secondary_rows(handle, 512)), (Basis::Attached, 0));
    daemon.calibrate(&["512x896x4864"]).await;
    eventually("the update", async || (attachment.secondary_rows(handle, 512) > 0).then_some(())).await;
    assert!((170..=172).contains(&attachment.secondary_rows(handle, 512)));
    // A tail that was never measured, and decode.
    assert_eq!((attachment.secondary_rows(handle, 300), attachment.secondary_rows(handle, 1)), (100, 0));
    let (late, handle) = attach(options(&place)).await;
    assert!((170..=172).contains(&late.secondary_rows(handle, 512)));
}

/// A split call on a machine whose secondary unit became `slower` times as slow.
fn observed(secondary_rows: u32, slower: f64, first_waited: Unit) -> Observation {
    let primary = 0.01 * f64::from(512 - secondary_rows);
    let secondary = 0.02 * slower * f64::from(secondary_rows);
    let (primary_ms, secondary_ms) = match first_waited {
        Unit::Primary => (primary, secondary.max(primary)),
        Unit::Secondary => (primary.max(secondary), secondary),
    };
    let finish_times = FinishTimes { primary_ms, secondary_ms, first_waited };
    Observation { rows: 512, secondary_rows, total_ms: primary.max(secondary), finish_times }
}

pub async fn what_one_client_sees_corrects_all() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    daemon.calibrate(&["512x896x4864"]).await;
    let (runner, handle) = attach(options(&place)).await;
    let (reader, other) = attach(options(&place)).await;
    let before = reader.secondary_rows(other, 512);
    let _busy = runner.busy();
    for index in 0..4 {
        let first = if index % 2 == 0 { Unit::Secondary } else { Unit::Primary };
        assert!(runner.observe(handle, observed(runner.secondary_rows(handle, 512), 1.5, first)));
        // The next call comes when the answer to this one is there.
        eventually("the observation", async || {
            (clients(&daemon).await[0].observations > index).then_some(())
        })
        .await;
    }
    // Twice 1.5 times as slow: a quarter of the rows instead of a third.
    eventually("the correction", async || {
        reader.secondary_rows(other, 512).abs_diff(128).le(&6).then_some(())
    })
    .await;
    assert!((170..=172).contains(&before));
}

pub async fn short_work_keeps_a_client_busy_until_it_stops() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let (one, _) = attach(options(&place)).await;
    let is = async |state| (clients(&daemon).await[0].activity() == state).then_some(());
    for _ in 0..2 {
        one.touch();
        eventually("work", async || is(v1::ActivityState::Busy).await).await;
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(60)).await;
            one.touch();
            assert!(is(v1::ActivityState::Busy).await.is_some());
        }
        eventually("rest", async || is(v1::ActivityState::Idle).await).await;
    }
}

pub async fn two_busy_clients_correct_nothing() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    daemon.calibrate(&["512x896x4864"]).await;
    let (one, handle) = attach(options(&place)).await;
    let (two, _) = attach(options(&place)).await;
    let (_one_busy, _two_busy) = (one.busy(), two.busy());
    let busy =
        async || clients(&daemon).await.iter().all(|client| client.activity() == v1::ActivityState::Busy);
    eventually("both being busy", async || busy().await.then_some(())).await;
    for _ in 0..6 {
        one.observe(handle, observed(171, 3.0, Unit::Secondary));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!((170..=172).contains(&one.secondary_rows(handle, 512)));
    assert!(clients(&daemon).await.iter().all(|client| client.observations == 0));
}

pub async fn whoever_is_busy_is_seen_to_be() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let (attachment, _) = attach(options(&place)).await;
    let activity = async || clients(&daemon).await[0].activity();
    assert_eq!(activity().await, v1::ActivityState::Idle);
    let busy = attachment.busy();
    eventually("busy", async || (activity().await == v1::ActivityState::Busy).then_some(())).await;
    drop(busy);
    eventually("idle", async || (activity().await == v1::ActivityState::Idle).then_some(())).await;
    let client = clients(&daemon).await.remove(0);
    assert_eq!((client.pid, client.name.as_str()), (std::process::id(), "a test"));
    assert_eq!((client.layers, client.unknown_layers), (2, 2));
    drop(attachment);
    eventually("leaving", async || clients(&daemon).await.is_empty().then_some(())).await;
}

pub async fn a_daemon_that_goes_and_comes_is_ridden_through() {
    let place = Place::new();
    let mut daemon = place.start("steady").await;
    daemon.calibrate(&["512x896x4864"]).await;
    let (attachment, handle) = attach(options(&place)).await;
    let rows = attachment.secondary_rows(handle, 512);
    daemon.signal("-KILL");
    daemon.ended().await;
    eventually("noticing", async || (attachment.basis() == Basis::Snapshot).then_some(())).await;
    assert_eq!(attachment.secondary_rows(handle, 512), rows);
    let _daemon = place.start("steady").await;
    eventually("coming back", async || (attachment.basis() == Basis::Attached).then_some(())).await;
    assert_eq!(attachment.secondary_rows(handle, 512), rows);
}

pub async fn without_a_daemon_the_snapshot_file_answers() {
    let place = Place::new();
    let mut daemon = place.start("steady").await;
    daemon.calibrate(&["512x896x4864"]).await;
    let file = place.state().join("snapshot.fsnp");
    eventually("the file", async || {
        std::fs::metadata(&file).is_ok_and(|file| file.len() > 200).then_some(())
    })
    .await;
    daemon.signal("-TERM");
    daemon.ended().await;
    let (attachment, handle) = attach(options(&place)).await;
    assert_eq!(attachment.basis(), Basis::Snapshot);
    assert!((170..=172).contains(&attachment.secondary_rows(handle, 512)));
    std::fs::write(&file, b"FSNP but nothing else").unwrap();
    let (attachment, handle) = attach(options(&place)).await;
    assert_eq!((attachment.basis(), attachment.secondary_rows(handle, 512)), (Basis::Stock, 0));
}

pub async fn a_hanging_daemon_delays_nobody() {
    let place = Place::new();
    std::fs::create_dir_all(place.socket().as_path().parent().unwrap()).unwrap();
    let _silent = UnixListener::bind(place.socket().as_path()).unwrap();
    let start = Instant::now();
    let (attachment, handle) = attach(options(&place)).await;
    // The limit is 250 ms; the rest is for a busy machine.
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!((attachment.basis(), attachment.secondary_rows(handle, 512)), (Basis::Stock, 0));
    let start = Instant::now();
    drop(attachment);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

pub async fn a_client_of_another_protocol_is_refused() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let mut client = AttachmentClient::connect(format!("unix://{}", daemon.socket)).await.unwrap();
    for (message, says) in [
        (
            Some(v1::attach_request::Message::Hello(v1::Hello { protocol: 99, ..Default::default() })),
            "speaks protocol",
        ),
        (Some(v1::attach_request::Message::Activity(v1::Activity { state: 2 })), "must be a hello"),
        (None, "must be a hello"),
    ] {
        let request = tokio_stream::once(v1::AttachRequest { message });
        let status = client.attach(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::FailedPrecondition);
        assert!(status.message().contains(says), "{}", status.message());
    }
}
