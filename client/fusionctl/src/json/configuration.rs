//! `fusionctl.config.show/1` and `fusionctl.config.reload/1`; part of `fusionctl.status/1`.

use fusion_client::v1;
use serde::Serialize;

use super::shared::{Part, some_time};

/// What the user wants.
#[derive(Debug, Serialize)]
pub(crate) struct Configuration {
    directory: String,
    state: Option<Part>,
    wanted_shapes: u32,
    skipped: Vec<String>,
    read_at: Option<String>,
}

impl From<&v1::ConfigurationStatus> for Configuration {
    fn from(known: &v1::ConfigurationStatus) -> Self {
        Self {
            directory: known.directory.clone(),
            state: known.state.as_ref().map(Into::into),
            wanted_shapes: known.wanted_shapes,
            skipped: known.skipped.clone(),
            read_at: some_time(known.read_at_unix_ms),
        }
    }
}
