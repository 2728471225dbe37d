//! The snapshot file: what clients would be told, for those that start while the daemon isn't there. Replaced by rename, so that a
//! reader sees the old one or the new one. The daemon itself reads its gates from it at the start.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fs_err as fs;
use fusion_proto::{snapshot, state, v1};

use crate::gates::Gates;
use crate::service::Parts;

/// How long news wait for more: they come with the calls of clients.
const GATHERING: Duration = Duration::from_millis(500);
/// Pause before a write that failed is tried again, if nothing changes meanwhile: as long as it fails, no client explores.
const RETRY: Duration = Duration::from_secs(5);

/// Announces what jobs commit and other conditions, and writes the file at the start and after each change.
pub async fn keep(parts: Arc<Parts>) {
    // Writing waits for more; telling doesn't.
    tokio::select! {
        () = announce(&parts) => {}
        () = write_changes(&parts) => {}
    }
}

async fn announce(parts: &Parts) {
    let mut commits = parts.jobs.commits();
    let mut identity = parts.jobs.identity();
    let mut conditions = parts.sensors.subscribe();
    loop {
        tokio::select! {
            record = commits.recv() => match record {
                Ok(record) => parts.knowledge.committed(&record),
                // So many commits at once that some were missed: the table has them all.
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => parts.knowledge.forget_all_corrections(),
                Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
            },
            changed = identity.changed() => if changed.is_err() { return },
            changed = conditions.changed() => if changed.is_err() { return },
        }
        parts.clients.announce();
    }
}

async fn write_changes(parts: &Arc<Parts>) {
    let mut revision = parts.clients.revision();
    let mut gates = parts.gates.version();
    loop {
        revision.borrow_and_update();
        gates.borrow_and_update();
        let file = Arc::clone(parts);
        // The disk may take its time; callers don't wait for it.
        let _ = tokio::task::spawn_blocking(move || save(&file)).await;
        let changed = tokio::select! {
            changed = revision.changed() => changed,
            changed = gates.changed() => changed,
            () = tokio::time::sleep(RETRY), if !parts.gates.is_written() => Ok(()),
        };
        if changed.is_err() {
            return;
        }
        tokio::time::sleep(GATHERING).await;
    }
}

/// Writes the file; one writer at a time.
pub fn save(parts: &Parts) {
    static WRITING: Mutex<()> = Mutex::new(());
    let _alone = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = state::snapshot_file(&parts.settings.state_directory);
    let Some(snapshot) = parts.whole_snapshot() else { return };
    match write(&path, &snapshot) {
        Ok(()) => parts.gates.written(),
        Err(error) => {
            if parts.gates.is_written() {
                tracing::warn!(
                    "the snapshot file can't be written; no client explores until it can: {error}"
                );
            }
            parts.gates.not_written();
        }
    }
}

/// The gates that the file holds; none, and a word in the log, if it can't be read.
pub fn restore_gates(state_directory: &Path) -> Gates {
    let gates = Gates::default();
    let path = state::snapshot_file(state_directory);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return gates,
        Err(error) => {
            tracing::warn!("what gates learned is lost: {error}");
            return gates;
        }
    };
    match snapshot::decode(&bytes) {
        Ok(snapshot) => {
            let regions = gates.restore(&snapshot);
            tracing::info!(regions, "gates are restored");
        }
        Err(error) => tracing::warn!("what gates learned is lost: {}: {error}", path.display()),
    }
    gates
}

fn write(path: &Path, snapshot: &v1::Snapshot) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = fs::File::create(&temporary)?;
    file.write_all(&snapshot::encode(snapshot))?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}
