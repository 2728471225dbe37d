//! Measuring with a client's own engine. This program stands in for the client's interpreter: started with `-m fusiond.worker`, it is a scripted worker whose
//! script and engine come from PYTHONPATH.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fusion_calibrations::engine::Engine;
use fusion_client::attach::{Attachment, ClientWorker, LayerHandle, Options};
use fusion_client::v1;

use crate::attachment;
use crate::recalibration::{AT_ONCE, QUIET, configure, planner, says, start};
use crate::support::{Daemon, Place, eventually};

fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// A client that runs the engine `hash`, and a worker of it that behaves as `script` says.
async fn attach(place: &Place, hash: &str, script: &str, interpreter: PathBuf) -> (Attachment, LayerHandle) {
    let engine =
        Engine { os_build: "1".to_owned(), mlx_version: "0.0.0".to_owned(), library_hash: hash.to_owned() };
    let environment = BTreeMap::from([("PYTHONPATH".to_owned(), script.to_owned())]);
    attachment::attach(Options {
        typical_rows: 512,
        engine: Some(engine),
        worker: Some(ClientWorker { interpreter, environment }),
        ..attachment::options(place)
    })
    .await
}

async fn client(daemon: &Daemon) -> v1::ClientStatus {
    attachment::clients(daemon).await.remove(0)
}

async fn layers_from(daemon: &Daemon, source: v1::Source) -> u32 {
    let sources = client(daemon).await.sources;
    sources.iter().find(|known| known.source() == source).map_or(0, |known| known.layers)
}

pub async fn another_engine_is_served_at_once_and_measured_by_its_clients_worker() {
    let place = Place::new();
    let daemon = start(&place, "steady", QUIET).await;
    daemon.client().await.pause(None).await.unwrap();
    daemon.calibrate(&["512x896x4864"]).await;
    let (attachment, handle) = attach(&place, "client", "slower-client", this_program()).await;
    // The own worker's lines until then, and marked.
    assert_eq!(layers_from(&daemon, v1::Source::OtherEngine).await, 1);
    assert!((170..=172).contains(&attachment.secondary_rows(handle, 512)));
    daemon.client().await.resume().await.unwrap();
    eventually("its own lines", async || (layers_from(&daemon, v1::Source::Exact).await == 2).then_some(()))
        .await;
    // That engine's secondary unit takes three times as long a row, not twice.
    eventually("its own rows", async || {
        attachment.secondary_rows(handle, 512).abs_diff(128).le(&2).then_some(())
    })
    .await;
    let status = client(&daemon).await;
    assert!(status.worker.ends_with(" -m fusiond.worker") && status.worker_trouble.is_empty(), "{status:?}");
    let last = daemon.client().await.status().await.unwrap().last_job.unwrap().job.unwrap();
    assert!(last.title.starts_with("recalibration with '"), "{}", last.title);
    // The daemon's own engine is still the own worker's: only what was asked for is known of it.
    let status = daemon.client().await.status().await.unwrap();
    assert_eq!(status.engine.unwrap().library_hash, "0");
    assert_eq!(status.store.unwrap().current_estimates, 1);
}

pub async fn it_can_be_turned_off() {
    let place = Place::new();
    let daemon = start(&place, "steady", QUIET).await;
    configure(&place, "config.toml", &format!("{AT_ONCE}client_workers = false\n"));
    daemon.client().await.reload_configuration().await.unwrap();
    let _attached = attach(&place, "client", "slower-client", this_program()).await;
    says(&daemon, "all 2 wanted shapes are known").await;
    let status = client(&daemon).await;
    assert!(status.worker_trouble.contains("turned off"), "{status:?}");
    assert_eq!(layers_from(&daemon, v1::Source::OtherEngine).await, 2);
}

pub async fn one_that_fails_is_told_of_and_the_own_worker_measures() {
    for (script, interpreter, words) in [
        ("slower-client", PathBuf::from("/nowhere/python3"), "/nowhere/python3"),
        ("slower-impostor", this_program(), "but the client runs"),
    ] {
        let place = Place::new();
        let daemon = start(&place, "steady", QUIET).await;
        let _attached = attach(&place, "client", script, interpreter).await;
        eventually(words, async || client(&daemon).await.worker_trouble.contains(words).then_some(())).await;
        eventually("the own worker", async || {
            (layers_from(&daemon, v1::Source::OtherEngine).await == 2).then_some(())
        })
        .await;
        assert_eq!(planner(&daemon).await.troubles.len(), 0, "the own worker's planner has no trouble");
    }
}

pub async fn the_same_engine_needs_no_other_worker() {
    let place = Place::new();
    let daemon = start(&place, "steady", QUIET).await;
    let _attached = attach(&place, "0", "slower-client", this_program()).await;
    says(&daemon, "all 2 wanted shapes are known").await;
    assert!(client(&daemon).await.worker_trouble.contains("the same engine"));
    assert_eq!(daemon.client().await.status().await.unwrap().store.unwrap().current_estimates, 2);
}

pub async fn a_worker_that_cannot_be_named_is_refused() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let (attachment, _) = attach(&place, "client", "steady", PathBuf::from("python3")).await;
    assert_eq!(attachment.basis(), fusion_client::attach::Basis::Stock);
    assert!(attachment::clients(&daemon).await.is_empty());
}
