//! Answers.

use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_client::v1;
use fusion_client::v1::calibrate_event::Event;

use crate::support::{Place, shape, tally};

pub async fn a_measured_shape_is_answered_for_ever() {
    let place = Place::new();
    let mut daemon = place.start("steady").await;
    let events = daemon.calibrate(&["512x896x4864"]).await;
    assert_eq!(tally(&events), (1, 0, 0));
    let answer = daemon.client().await.get_ratio(shape("512x896x4864"), None).await.unwrap();
    assert_eq!(answer.source(), v1::Source::Exact);
    assert!((answer.ratio - 1.0 / 3.0).abs() < 0.01, "{}", answer.ratio);
    assert!((170..=172).contains(&answer.secondary_rows), "{}", answer.secondary_rows);
    let estimate = answer.estimate.unwrap();
    assert!((estimate.stock_ms - 5.12).abs() < 1e-9);
    assert!((estimate.speed_up.unwrap().value - 1.5).abs() < 0.02);
    assert_eq!(estimate.provenance(), v1::Provenance::Measured);
    assert!(estimate.kept_samples >= 4);

    daemon.signal("-TERM");
    assert!(daemon.ended().await.success());
    // A daemon that can't measure any more still answers.
    let daemon = place.start_with(command_without_worker(&place)).await;
    let again = daemon.client().await.get_ratio(shape("512x896x4864"), None).await.unwrap();
    assert_eq!((again.source(), again.secondary_rows), (v1::Source::Exact, answer.secondary_rows));
}

fn command_without_worker(place: &Place) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fusiond"));
    command.arg("--socket").arg(place.socket().as_path()).arg("--state-dir").arg(place.state());
    command.args(["--worker", "/nonexistent/fusion-worker"]);
    command
}

pub async fn rows_never_measured_come_from_the_lines() {
    let daemon_place = Place::new();
    let daemon = daemon_place.start("steady").await;
    daemon.calibrate(&["2048x896x4864"]).await;
    let client = daemon.client().await;
    let tail = client.get_ratio(shape("777x896x4864"), None).await.unwrap();
    assert_eq!(tail.source(), v1::Source::OtherRows);
    assert_eq!(tail.secondary_rows, 259);
    let decode = client.get_ratio(shape("1x896x4864"), None).await.unwrap();
    assert_eq!(decode.secondary_rows, 0);
    let other_format = Shape::parse("2048x896x4864", WeightFormat::F16, Layout::default()).unwrap();
    let unknown = client.get_ratio(other_format, None).await.unwrap();
    assert_eq!((unknown.source(), unknown.ratio), (v1::Source::None, 0.0));
}

pub async fn pages_hold_every_estimate_once() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let texts: Vec<String> = (1..=7).map(|index| format!("{}x64x64", index * 64)).collect();
    daemon.calibrate(&texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut rows = Vec::new();
    let mut request = v1::ListRatiosRequest { page_size: 3, page_token: String::new() };
    let mut ratios = raw_ratios(&daemon.socket).await;
    loop {
        let page = ratios.list_ratios(request.clone()).await.unwrap().into_inner();
        assert_eq!(page.total, 7);
        assert!(page.estimates.len() <= 3);
        rows.extend(page.estimates.into_iter().map(|estimate| estimate.shape.unwrap().rows));
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!(rows, [64, 128, 192, 256, 320, 384, 448]);
}

/// The generated client, for requests that the typed one doesn't make.
pub async fn raw_ratios(
    socket: &fusion_client::SocketPath,
) -> v1::ratios_client::RatiosClient<tonic::transport::Channel> {
    v1::ratios_client::RatiosClient::connect(format!("unix://{socket}")).await.unwrap()
}

pub async fn a_development_pair_is_labelled() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let events = daemon.calibrate(&["64x64x64"]).await;
    let chip = events.iter().find_map(|event| match event {
        Event::Started(started) => started.chip.clone(),
        _ => None,
    });
    assert!(chip.unwrap().pair_label.starts_with("development pair"));
    let client = daemon.client().await;
    let status = client.status().await.unwrap();
    assert!(status.chip.unwrap().pair_label.starts_with("development pair"));
    let answer = client.get_ratio(shape("64x64x64"), None).await.unwrap();
    assert_eq!(answer.chip.unwrap().pair, "development");
}

pub async fn status_tells_the_whole_story() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    daemon.calibrate(&["64x64x64", "128x64x64"]).await;
    let status = daemon.client().await.status().await.unwrap();
    assert_eq!(status.pid, daemon.child.id());
    assert_eq!(status.socket, place.socket().to_string());
    assert_eq!(status.state_directory, place.state().display().to_string());
    assert_eq!(status.units, "two scripted units");
    let store = status.store.unwrap();
    assert_eq!((store.estimates, store.current_estimates, store.stale_estimates), (2, 2, 0));
    assert_eq!(store.state.unwrap().health(), v1::Health::Ok);
    assert_eq!(status.worker.unwrap().health(), v1::Health::Ok);
    assert!(status.running.is_none() && status.waiting.is_empty() && !status.draining);
    let last = status.last_job.unwrap();
    assert_eq!((last.outcome.as_str(), last.job.unwrap().done), ("finished", 2));
    let explained = daemon.client().await.explain_ratio(shape("64x64x64"), None).await.unwrap();
    assert!(explained.summary.contains("measured for this shape"), "{}", explained.summary);
    assert!(explained.samples.len() >= 6 && explained.considered[0].chosen);
    assert!(explained.samples.iter().any(|sample| sample.dropped_reason.contains("first call")));
}
