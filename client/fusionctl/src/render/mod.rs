//! Text for people.

pub(crate) mod answer;
pub(crate) mod estimates;
pub(crate) mod explanation;
pub(crate) mod models;
pub(crate) mod progress;
pub(crate) mod ratios;
pub(crate) mod status;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod words;
