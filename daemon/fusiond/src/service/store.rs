//! `fusion.v1.Store`.

use std::path::PathBuf;
use std::sync::Arc;

use fusion_proto::v1::store_server::Store;
use fusion_proto::{REASON_METADATA, STORE_FAILED, v1};
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

use super::Parts;
use crate::store::{StoreError, VerifyReport};

/// Care for the store.
pub struct StoreService(pub Arc<Parts>);

#[tonic::async_trait]
impl Store for StoreService {
    async fn verify_store(
        &self,
        _request: Request<v1::VerifyStoreRequest>,
    ) -> Result<Response<v1::VerifyStoreReply>, Status> {
        let report = self.0.store.verify().await.map_err(|error| status(&error))?;
        Ok(Response::new(verified(&report)))
    }

    async fn rebuild_store(
        &self,
        _request: Request<v1::RebuildStoreRequest>,
    ) -> Result<Response<v1::RebuildStoreReply>, Status> {
        if self.0.jobs.status().0.running.is_some() {
            return Err(Status::aborted("a job runs: rebuild when 'fusionctl status' shows none"));
        }
        let rebuilt = self.0.store.rebuild().await.map_err(|error| status(&error))?;
        let records = self.0.store.all().await.map_err(|error| status(&error))?;
        self.0.table.replace(records.into_iter().map(|stored| stored.record));
        Ok(Response::new(v1::RebuildStoreReply {
            records: rebuilt.records,
            unreadable: rebuilt.damaged_files,
            set_aside: rebuilt.set_aside.map(|path| path.display().to_string()).unwrap_or_default(),
        }))
    }

    async fn export_store(
        &self,
        request: Request<v1::ExportStoreRequest>,
    ) -> Result<Response<v1::ExportStoreReply>, Status> {
        let path = PathBuf::from(request.into_inner().path);
        if !path.is_absolute() {
            return Err(Status::invalid_argument(format!(
                "'{}' is not absolute: the daemon doesn't know your working directory",
                path.display()
            )));
        }
        let exported = self.0.store.export(path).await.map_err(|error| status(&error))?;
        Ok(Response::new(v1::ExportStoreReply {
            records: exported.records,
            path: exported.directory.display().to_string(),
        }))
    }
}

/// A verification in the wire's words.
pub fn verified(report: &VerifyReport) -> v1::VerifyStoreReply {
    let missing_entries =
        report.files_without_entry.iter().map(|file| format!("{file}: a record file that the index lacks"));
    let missing_files = report
        .entries_without_file
        .iter()
        .map(|revision| format!("revision {revision}: its record file is missing"));
    let damage = report.damaged_entries.iter().chain(&report.damaged_files).cloned();
    v1::VerifyStoreReply {
        estimates: report.current,
        history: report.records.saturating_sub(report.current),
        record_files: report.files,
        bytes: report.index_bytes + report.files_bytes,
        problems: damage.chain(missing_entries).chain(missing_files).collect(),
        set_aside: report
            .set_aside
            .iter()
            .map(|aside| format!("{} ({} KiB)", aside.path.display(), aside.bytes.div_ceil(1024)))
            .collect(),
    }
}

/// What a failure of the store is answered as, marked as one.
pub(super) fn status(error: &StoreError) -> Status {
    let message = error.to_string();
    let mut status = match error {
        StoreError::ExportExists { .. } => Status::already_exists(message),
        StoreError::Full { .. } => Status::resource_exhausted(message),
        StoreError::ReadOnly { .. } => Status::failed_precondition(message),
        StoreError::Damaged { .. } | StoreError::Corrupt { .. } => Status::data_loss(message),
        StoreError::Closed => Status::unavailable(message),
        _ => Status::internal(message),
    };
    status.metadata_mut().insert(REASON_METADATA, MetadataValue::from_static(STORE_FAILED));
    status
}
