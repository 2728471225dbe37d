//! Who is attached, for people: what each does, what it gained, and where the ratios of its layers come from.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::lookup::{Query, Source};
use fusion_calibrations::record::Record;
use fusion_calibrations::rows::RowRule;
use fusion_calibrations::shape::Layer;
use fusion_proto::v1;

use super::Parts;
use crate::clients::{Activity, Client, Introduction};
use crate::knowledge::TYPICAL_ROWS;
use crate::table::{self, Identity};

impl Parts {
    /// Who is attached, in numbers.
    pub(super) fn clients_summary(&self) -> v1::ClientsSummary {
        let (attached, busy) = self.clients.counts();
        let holder = self.gates.holder();
        let mut summary =
            v1::ClientsSummary { attached: count(attached), busy: count(busy), ..Default::default() };
        for (number, client) in self.clients.list() {
            if holder == Some(number) {
                summary.exploring_pid = client.introduction.pid;
            }
            summary.saved_ms += client.savings.ms;
            summary.split_calls += client.savings.calls;
        }
        summary
    }

    /// Everybody, or only the client with the number `layers_of`, with its layers.
    pub(super) fn client_list(&self, layers_of: Option<u64>) -> Vec<v1::ClientStatus> {
        let identity = self.jobs.identity().borrow().clone();
        let holder = self.gates.holder();
        let wanted: Vec<(u64, Client)> = self
            .clients
            .list()
            .into_iter()
            .filter(|(number, _)| layers_of.is_none_or(|wanted| wanted == *number))
            .collect();
        let lookup = Lookup::new(self, identity.as_ref());
        let mut counted = HashMap::new();
        wanted
            .iter()
            .map(|(number, client)| {
                let introduction = client.introduction.as_ref();
                let sources = counted
                    .entry(Question::of(introduction))
                    .or_insert_with(|| counts(introduction, &lookup))
                    .clone();
                let served = layers_of.map(|_| self.served(introduction, &lookup)).unwrap_or_default();
                let explores = holder == Some(*number);
                let worker = introduction.worker.as_ref().map(ToString::to_string).unwrap_or_default();
                let worker_trouble = self.measurer(introduction).1.unwrap_or_default();
                v1::ClientStatus {
                    explores,
                    served,
                    worker,
                    worker_trouble,
                    ..status(*number, client, sources, identity.as_ref())
                }
            })
            .collect()
    }

    /// What answers for each layer of a client.
    fn served(&self, introduction: &Introduction, lookup: &Lookup<'_>) -> Vec<v1::ServedLayer> {
        let revision = *self.clients.revision().borrow();
        let told = self.layers(lookup.identity, introduction, lookup.conditions, revision);
        let one = |(place, layer): (usize, &Layer)| {
            let told = told.get(place).cloned().unwrap_or_default();
            v1::ServedLayer {
                layer: Some((*layer).into()),
                rows: typical_rows(introduction),
                source: v1::Source::from(lookup.source(introduction, *layer)).into(),
                provenance: told.provenance,
                stale_reason: told.stale_reason,
            }
        };
        introduction.layers.iter().enumerate().map(one).collect()
    }
}

fn status(
    number: u64,
    client: &Client,
    sources: Vec<v1::SourceCount>,
    identity: Option<&Identity>,
) -> v1::ClientStatus {
    let introduction = &client.introduction;
    let own = identity.map(|identity| &identity.engine);
    let other_engine = introduction.engine.as_ref().filter(|engine| Some(*engine) != own);
    let unknown = sources.iter().find(|known| known.source() == v1::Source::None);
    v1::ClientStatus {
        number,
        pid: introduction.pid,
        name: introduction.name.clone(),
        version: introduction.version.clone(),
        activity: match client.activity {
            Activity::Idle => v1::ActivityState::Idle,
            Activity::Busy => v1::ActivityState::Busy,
        }
        .into(),
        layers: count(introduction.layers.len()),
        unknown_layers: unknown.map_or(0, |unknown| unknown.layers),
        observations: client.observations,
        attached_at_unix_ms: client.attached_at_unix_ms,
        other_engine: other_engine.map(Into::into),
        saved_ms: client.savings.ms,
        split_calls: client.savings.calls,
        sources,
        ..Default::default()
    }
}

/// What decides where layers are answered from: clients of one program ask the same, and it is looked up once.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Question<'a> {
    engine: Option<&'a Engine>,
    layers: &'a [Layer],
    typical_rows: u32,
}

impl<'a> Question<'a> {
    fn of(introduction: &'a Introduction) -> Self {
        let Introduction { engine, layers, typical_rows, .. } = introduction;
        Self { engine: engine.as_ref(), layers, typical_rows: *typical_rows }
    }
}

/// The stored records by layer, and under what they are asked.
struct Lookup<'a> {
    identity: Option<&'a Identity>,
    conditions: Conditions,
    records: HashMap<Layer, Vec<Arc<Record>>>,
    rule: RowRule,
}

impl<'a> Lookup<'a> {
    fn new(parts: &Parts, identity: Option<&'a Identity>) -> Self {
        let mut records: HashMap<Layer, Vec<Arc<Record>>> = HashMap::new();
        for record in identity.map(|identity| parts.table.served(&identity.chip)).unwrap_or_default() {
            records.entry(record.estimate.shape.layer()).or_default().push(record);
        }
        let rule = identity.map(|identity| parts.table.row_rule(&identity.chip)).unwrap_or_default();
        Self { identity, conditions: parts.sensors.recent().conditions(), records, rule }
    }

    /// Which knowledge answers a client for a layer.
    fn source(&self, introduction: &Introduction, layer: Layer) -> Source {
        let Some(Identity { chip, engine, .. }) = self.identity else { return Source::None };
        let Ok(shape) = layer.with_rows(typical_rows(introduction)) else { return Source::None };
        let engine = introduction.engine.as_ref().unwrap_or(engine);
        // Records of other layers never answer.
        let records = self.records.get(&layer).map(Vec::as_slice).unwrap_or_default();
        let query = Query { shape, chip, engine, conditions: self.conditions };
        table::answer(records, &query, &self.rule).source
    }
}

/// As for what a client is told: the rows it named, else a chunk.
fn typical_rows(introduction: &Introduction) -> u32 {
    if introduction.typical_rows == 0 { TYPICAL_ROWS } else { introduction.typical_rows }
}

fn counts(introduction: &Introduction, lookup: &Lookup<'_>) -> Vec<v1::SourceCount> {
    let mut counts: BTreeMap<Source, usize> = BTreeMap::new();
    for layer in &introduction.layers {
        *counts.entry(lookup.source(introduction, *layer)).or_default() += 1;
    }
    let wire =
        |(source, layers)| v1::SourceCount { source: v1::Source::from(source).into(), layers: count(layers) };
    counts.into_iter().map(wire).collect()
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
