//! `fusionctl.store.verify/1`, `fusionctl.store.rebuild/1` and `fusionctl.store.export/1`. `fusiond store ... --json` writes
//! the same.

use fusion_client::v1;
use serde::Serialize;

use super::shared::filled;

#[derive(Debug, Serialize)]
pub(crate) struct Verified {
    estimates: u64,
    history: u64,
    record_files: u64,
    bytes: u64,
    problems: Vec<String>,
    set_aside: Vec<String>,
}

impl From<&v1::VerifyStoreReply> for Verified {
    fn from(reply: &v1::VerifyStoreReply) -> Self {
        let reply = reply.clone();
        Self {
            estimates: reply.estimates,
            history: reply.history,
            record_files: reply.record_files,
            bytes: reply.bytes,
            problems: reply.problems,
            set_aside: reply.set_aside,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Rebuilt {
    records: u64,
    unreadable: Vec<String>,
    set_aside: Option<String>,
}

impl From<&v1::RebuildStoreReply> for Rebuilt {
    fn from(reply: &v1::RebuildStoreReply) -> Self {
        Self {
            records: reply.records,
            unreadable: reply.unreadable.clone(),
            set_aside: filled(&reply.set_aside),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Exported {
    records: u64,
    path: String,
}

impl From<&v1::ExportStoreReply> for Exported {
    fn from(reply: &v1::ExportStoreReply) -> Self {
        Self { records: reply.records, path: reply.path.clone() }
    }
}
