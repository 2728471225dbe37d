//! `fusionctl.clients/1`.

use fusion_client::{ClientActivity, ServedLayer, v1};
use serde::Serialize;

use super::shared::{Engine, Shape, time, word};
use crate::commands::clients::Shown;
use crate::render::words;

#[derive(Debug, Serialize)]
pub(crate) struct List {
    clients: Vec<Client>,
}

#[derive(Debug, Serialize)]
struct Client {
    number: u64,
    pid: u32,
    name: String,
    version: String,
    activity: &'static str,
    attached_at: String,
    layers: u32,
    sources: Vec<Source>,
    observations: u64,
    saved_ms: f64,
    split_calls: u64,
    explores: bool,
    other_engine: Option<Engine>,
    worker: Option<Worker>,
    served: Option<Vec<Served>>,
}

#[derive(Debug, Serialize)]
struct Worker {
    program: String,
    unused_because: Option<String>,
}

#[derive(Debug, Serialize)]
struct Source {
    source: String,
    layers: u32,
}

#[derive(Debug, Serialize)]
struct Served {
    shape: Shape,
    source: String,
    provenance: Option<String>,
    stale_reason: Option<String>,
}

impl From<&[Shown]> for List {
    fn from(shown: &[Shown]) -> Self {
        Self { clients: shown.iter().map(Into::into).collect() }
    }
}

impl From<&Shown> for Client {
    fn from(Shown { client, layers }: &Shown) -> Self {
        Self {
            number: client.number,
            pid: client.pid,
            name: client.name.clone(),
            version: client.version.clone(),
            activity: match client.activity {
                ClientActivity::Busy => "busy",
                ClientActivity::Idle => "idle",
            },
            attached_at: time(client.attached_at_unix_ms),
            layers: client.layers,
            sources: client
                .sources
                .iter()
                .map(|(source, layers)| Source { source: words::source_key(*source), layers: *layers })
                .collect(),
            observations: client.observations,
            saved_ms: client.saved_ms,
            split_calls: client.split_calls,
            explores: client.explores,
            other_engine: client.other_engine.as_ref().map(|engine| (&v1::Engine::from(engine)).into()),
            worker: client.worker.as_ref().map(|worker| Worker {
                program: worker.program.clone(),
                unused_because: worker.unused_because.clone(),
            }),
            served: layers.as_ref().map(|layers| layers.iter().map(Into::into).collect()),
        }
    }
}

impl From<&ServedLayer> for Served {
    fn from(layer: &ServedLayer) -> Self {
        let provenance = Some(layer.provenance).filter(|known| *known != v1::Provenance::Unspecified);
        Self {
            shape: (&v1::Shape::from(layer.shape)).into(),
            source: words::source_key(layer.source),
            provenance: provenance.map(|known| word(known.as_str_name(), "PROVENANCE_")),
            stale_reason: layer.stale_reason.clone(),
        }
    }
}
