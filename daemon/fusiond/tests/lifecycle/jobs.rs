//! Jobs: the queue, cancelling, what is known already.

use fusion_client::attach::{Attachment, Options};
use fusion_client::v1::{self, calibrate_event::Event};

use crate::support::{Place, collect, eventually, shape, tally};

pub async fn one_job_runs_and_the_other_waits() {
    let place = Place::new();
    let daemon = place.start("slow").await;
    let client = daemon.client().await;
    let mut first = client.calibrate(&[shape("64x64x64")], v1::Freshness::Reuse, "the first").await.unwrap();
    assert!(matches!(first.next().await.unwrap(), Some(Event::Started(_))));
    let mut second =
        client.calibrate(&[shape("128x64x64")], v1::Freshness::Reuse, "the second").await.unwrap();
    assert!(matches!(second.next().await.unwrap(), Some(Event::Queued(v1::JobQueued { position: 1, .. }))));
    let status = client.status().await.unwrap();
    assert_eq!(status.running.unwrap().title, "the first");
    assert_eq!(status.waiting.iter().map(|job| job.title.as_str()).collect::<Vec<_>>(), ["the second"]);
    let mut last = None;
    while let Some(event) = second.next().await.unwrap() {
        last = Some(event);
    }
    assert!(matches!(last, Some(Event::Finished(v1::JobFinished { measured: 1, .. }))), "{last:?}");
}

pub async fn a_caller_that_leaves_takes_the_worker_along() {
    let place = Place::new();
    let daemon = place.start("slow").await;
    let client = daemon.client().await;
    eventually("the identifying worker's end", async || daemon.children().is_empty().then_some(())).await;
    let mut calibration =
        client.calibrate(&[shape("64x64x64")], v1::Freshness::Reuse, "leaves early").await.unwrap();
    while !matches!(calibration.next().await.unwrap(), Some(Event::ShapeProgress(_))) {}
    assert_eq!(daemon.children().len(), 1);
    drop(calibration);
    eventually("the worker's end", async || daemon.children().is_empty().then_some(())).await;
    let status = client.status().await.unwrap();
    assert_eq!(status.last_job.unwrap().outcome, "cancelled");
    assert_eq!(status.store.unwrap().estimates, 0);
}

pub async fn a_second_calibration_measures_nothing() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let shapes = [shape("64x64x64"), shape("128x64x64")];
    let client = daemon.client().await;
    let first = collect(&client, &shapes, v1::Freshness::Reuse).await.unwrap();
    let second = collect(&client, &shapes, v1::Freshness::Reuse).await.unwrap();
    let third = collect(&client, &shapes, v1::Freshness::Remeasure).await.unwrap();
    assert_eq!([tally(&first), tally(&second), tally(&third)], [(2, 0, 0), (0, 2, 0), (2, 0, 0)]);
    assert!(!second.iter().any(|event| matches!(event, Event::ShapeProgress(_))));
}

pub async fn repeated_shapes_are_measured_once() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let events = daemon.calibrate(&["64x64x64", "128x64x64", "64x64x64"]).await;
    assert_eq!(tally(&events), (2, 0, 0));
}

pub async fn a_cancelled_job_keeps_what_was_committed() {
    let place = Place::new();
    let daemon = place.start("slow").await;
    let client = daemon.client().await;
    let shapes = [shape("64x64x64"), shape("128x64x64")];
    let mut calibration = client.calibrate(&shapes, v1::Freshness::Reuse, "half").await.unwrap();
    while !matches!(calibration.next().await.unwrap(), Some(Event::ShapeFinished(_))) {}
    drop(calibration);
    eventually("the job's end", async || client.status().await.unwrap().last_job).await;
    let answer = client.get_ratio(shapes[0], None).await.unwrap();
    assert_eq!(answer.source(), v1::Source::Exact);
    assert_eq!(client.status().await.unwrap().store.unwrap().estimates, 1);
}

pub async fn a_client_that_turns_busy_ends_the_worker_and_rest_goes_on() {
    let place = Place::new();
    let daemon = place.start("slow").await;
    let client = daemon.client().await;
    eventually("the identifying worker's end", async || daemon.children().is_empty().then_some(())).await;
    let mut options = Options::new(place.socket(), "an inference", vec![shape("1x64x64").layer()]);
    options.state_directory = None;
    let attachment = tokio::task::spawn_blocking(|| Attachment::attach(options)).await.unwrap();
    let mut calibration =
        client.calibrate(&[shape("64x64x64")], v1::Freshness::Reuse, "gives way").await.unwrap();
    while !matches!(calibration.next().await.unwrap(), Some(Event::ShapeProgress(_))) {}
    let busy = attachment.busy();
    eventually("the worker's end", async || daemon.children().is_empty().then_some(())).await;
    while !matches!(calibration.next().await.unwrap(), Some(Event::Queued(v1::JobQueued { position: 0, .. })))
    {
    }
    drop(busy);
    let mut last = None;
    while let Some(event) = calibration.next().await.unwrap() {
        last = Some(event);
    }
    assert!(matches!(last, Some(Event::Finished(v1::JobFinished { measured: 1, .. }))), "{last:?}");
}

pub async fn cancelled_jobs_take_no_places() {
    let place = Place::new();
    let daemon = place.start("slow").await;
    let client = daemon.client().await;
    let _running = client.calibrate(&[shape("64x64x64")], v1::Freshness::Reuse, "runs").await.unwrap();
    for _ in 0..40 {
        // Each leaves at once; more of them than the queue has places.
        drop(client.calibrate(&[shape("128x64x64")], v1::Freshness::Reuse, "leaves").await.unwrap());
        eventually("leaving", async || client.status().await.unwrap().waiting.is_empty().then_some(())).await;
    }
}
