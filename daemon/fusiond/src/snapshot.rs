//! The snapshot file: what clients would be told, for those that start while the daemon isn't there. Replaced by rename, so that a
//! reader sees the old one or the new one.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use fs_err as fs;
use fusion_proto::{snapshot, state, v1};

use crate::service::Parts;

/// Announces what jobs commit, and writes the file at the start and after each change.
pub async fn keep(parts: Arc<Parts>) {
    let mut commits = parts.jobs.commits();
    let mut revision = parts.clients.revision();
    let mut identity = parts.jobs.identity();
    let path = state::snapshot_file(&parts.settings.state_directory);
    loop {
        revision.borrow_and_update();
        identity.borrow_and_update();
        if let Some(snapshot) = parts.whole_snapshot()
            && let Err(error) = write(&path, &snapshot)
        {
            tracing::warn!("the snapshot file is not up to date: {error}");
        }
        tokio::select! {
            record = commits.recv() => match record {
                Ok(record) => {
                    parts.knowledge.measured(&record);
                    parts.clients.announce();
                }
                // So many commits at once that some were missed: the table has them all.
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => parts.clients.announce(),
                Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
            },
            changed = revision.changed() => if changed.is_err() { return },
            changed = identity.changed() => if changed.is_err() { return } else { parts.clients.announce() },
        }
    }
}

fn write(path: &Path, snapshot: &v1::Snapshot) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = fs::File::create(&temporary)?;
    file.write_all(&snapshot::encode(snapshot))?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}
