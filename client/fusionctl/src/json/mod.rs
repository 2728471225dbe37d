//! The versioned JSON of `--json`, documented in JSON.md.
//!
//! A schema's number changes when a reader of the old one would misread the new one; new fields don't change it.

pub(crate) mod calibrate;
pub(crate) mod clients;
pub(crate) mod configuration;
pub(crate) mod doctor;
pub(crate) mod gates;
pub(crate) mod history;
pub(crate) mod logs;
pub(crate) mod models;
pub(crate) mod planner;
pub(crate) mod ratios;
mod readings;
pub(crate) mod service;
pub(crate) mod shared;
pub(crate) mod sharing;
pub(crate) mod status;
pub(crate) mod store;

use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;

/// The documents there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schema {
    Status,
    Install,
    Uninstall,
    Start,
    Stop,
    Restart,
    DryRun,
    Logs,
    LogLevel,
    Pause,
    Resume,
    ConfigShow,
    ConfigReload,
    Calibrate,
    RatiosList,
    RatiosGet,
    RatiosExplain,
    RatiosPlot,
    GatesList,
    GatesShow,
    GatesReset,
    GatesLock,
    GatesUnlock,
    History,
    Clients,
    ModelsList,
    ModelsShow,
    StoreVerify,
    StoreRebuild,
    StoreExport,
    Export,
    Import,
    Doctor,
    BenchTtft,
}

impl Schema {
    fn name(self) -> &'static str {
        match self {
            Self::Status => "fusionctl.status/1",
            Self::Install => "fusionctl.install/1",
            Self::Uninstall => "fusionctl.uninstall/1",
            Self::Start => "fusionctl.start/1",
            Self::Stop => "fusionctl.stop/1",
            Self::Restart => "fusionctl.restart/1",
            Self::DryRun => "fusionctl.dry-run/1",
            Self::Logs => "fusionctl.logs/1",
            Self::LogLevel => "fusionctl.log-level/1",
            Self::Pause => "fusionctl.pause/1",
            Self::Resume => "fusionctl.resume/1",
            Self::ConfigShow => "fusionctl.config.show/1",
            Self::ConfigReload => "fusionctl.config.reload/1",
            Self::Calibrate => "fusionctl.calibrate/1",
            Self::RatiosList => "fusionctl.ratios.list/1",
            Self::RatiosGet => "fusionctl.ratios.get/1",
            Self::RatiosExplain => "fusionctl.ratios.explain/1",
            Self::RatiosPlot => "fusionctl.ratios.plot/1",
            Self::GatesList => "fusionctl.gates.list/1",
            Self::GatesShow => "fusionctl.gates.show/1",
            Self::GatesReset => "fusionctl.gates.reset/1",
            Self::GatesLock => "fusionctl.gates.lock/1",
            Self::GatesUnlock => "fusionctl.gates.unlock/1",
            Self::History => "fusionctl.history/1",
            Self::Clients => "fusionctl.clients/1",
            Self::ModelsList => "fusionctl.models.list/1",
            Self::ModelsShow => "fusionctl.models.show/1",
            Self::StoreVerify => "fusionctl.store.verify/1",
            Self::StoreRebuild => "fusionctl.store.rebuild/1",
            Self::StoreExport => "fusionctl.store.export/1",
            Self::Export => "fusionctl.export/1",
            Self::Import => "fusionctl.import/1",
            Self::Doctor => "fusionctl.doctor/1",
            Self::BenchTtft => "fusionctl.bench.ttft/1",
        }
    }
}

#[derive(Serialize)]
struct Document<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

/// A document, indented for people who look at it.
pub(crate) fn document<T: Serialize>(schema: Schema, body: &T) -> Result<String, Failure> {
    serde_json::to_string_pretty(&Document { schema: schema.name(), body }).map_err(|error| {
        Failure::ended(Exit::Internal, format!("cannot write JSON: {error}; please report this"))
    })
}
