//! Text for people.

pub(crate) mod answer;
pub(crate) mod bench;
pub(crate) mod clients;
pub(crate) mod configuration;
pub(crate) mod doctor;
pub(crate) mod estimates;
pub(crate) mod explanation;
pub(crate) mod gate_details;
pub(crate) mod gate_reason;
pub(crate) mod gates;
pub(crate) mod history;
pub(crate) mod models;
pub(crate) mod moments;
pub(crate) mod planner;
pub(crate) mod progress;
pub(crate) mod ratios;
pub(crate) mod sharing;
pub(crate) mod status;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod words;
