//! `fusionctl.logs/1` and `fusionctl.log-level/1`.

use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct Logs {
    pub(crate) file: String,
    pub(crate) lines: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct LogLevel {
    pub(crate) filter: String,
}
