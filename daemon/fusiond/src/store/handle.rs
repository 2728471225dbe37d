//! The store for async code: one thread owns it and does one thing after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use fusion_calibrations::record::Record;
use tokio::sync::{mpsc, oneshot};

use super::error::StoreError;
use super::key::{CalibrationKey, Scope};
use super::report::{Exported, Rebuilt, Trimmed, VerifyReport};
use super::{CalibrationStore, Identity, Revision, Stored};

/// Requests that may wait for the thread; more wait in their callers.
const QUEUE: usize = 64;

type Work = Box<dyn FnOnce(&mut dyn CalibrationStore) + Send>;

enum Request {
    Work(Work),
    Close(oneshot::Sender<()>),
}

/// A store on a thread of its own. Clones share it; the store is closed by [`Self::close`] or when the last clone is gone.
///
/// A request that was sent is carried out also if its future is dropped.
#[derive(Clone)]
pub struct StoreHandle {
    requests: mpsc::Sender<Request>,
}

impl StoreHandle {
    /// Starts the thread.
    ///
    /// # Errors
    /// What the system says when it has no thread to give.
    pub fn spawn(store: impl CalibrationStore + 'static) -> std::io::Result<Self> {
        let (requests, incoming) = mpsc::channel(QUEUE);
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || serve(Box::new(store), incoming))?;
        Ok(Self { requests })
    }

    /// Runs `work` on the store's thread.
    ///
    /// # Errors
    /// That of `work`; [`StoreError::Closed`] after [`Self::close`]; [`StoreError::Stopped`] if `work` panicked.
    pub async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn CalibrationStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let work: Work = Box::new(move |store| {
            // A caller that is gone doesn't want the answer.
            let _ = reply.send(work(store));
        });
        self.requests.send(Request::Work(work)).await.map_err(|_| StoreError::Closed)?;
        answer.await.unwrap_or_else(|_| {
            Err(StoreError::Stopped { reason: "the store's thread failed while doing this".to_owned() })
        })
    }

    /// [`CalibrationStore::commit`]: durable when it returns.
    ///
    /// # Errors
    /// As [`Self::with`] and [`CalibrationStore::commit`]; likewise below.
    pub async fn commit(&self, record: Record) -> Result<Revision, StoreError> {
        self.with(move |store| store.commit(&record)).await
    }

    /// The current record of every key.
    ///
    /// # Errors
    /// As [`CalibrationStore::latest`].
    pub async fn all(&self) -> Result<Vec<Stored>, StoreError> {
        self.with(|store| store.latest(Scope::All)).await
    }

    /// The current records of one chip.
    ///
    /// # Errors
    /// As [`CalibrationStore::latest`].
    pub async fn of_chip(&self, chip: String) -> Result<Vec<Stored>, StoreError> {
        self.with(move |store| store.latest(Scope::Chip(&chip))).await
    }

    /// [`CalibrationStore::history`].
    ///
    /// # Errors
    /// As [`CalibrationStore::history`].
    pub async fn history(&self, key: CalibrationKey) -> Result<Vec<Stored>, StoreError> {
        self.with(move |store| store.history(&key)).await
    }

    /// [`CalibrationStore::revision`].
    ///
    /// # Errors
    /// As [`Self::with`].
    pub async fn revision(&self) -> Result<Revision, StoreError> {
        self.with(|store| Ok(store.revision())).await
    }

    /// [`CalibrationStore::last_identity`].
    ///
    /// # Errors
    /// As [`CalibrationStore::last_identity`].
    pub async fn last_identity(&self) -> Result<Option<Identity>, StoreError> {
        self.with(|store| store.last_identity()).await
    }

    /// [`CalibrationStore::set_identity`].
    ///
    /// # Errors
    /// As [`CalibrationStore::set_identity`].
    pub async fn set_identity(&self, identity: Identity) -> Result<(), StoreError> {
        self.with(move |store| store.set_identity(&identity)).await
    }

    /// [`CalibrationStore::trim`].
    ///
    /// # Errors
    /// As [`CalibrationStore::trim`].
    pub async fn trim(&self) -> Result<Trimmed, StoreError> {
        self.with(|store| store.trim()).await
    }

    /// [`CalibrationStore::verify`].
    ///
    /// # Errors
    /// As [`CalibrationStore::verify`].
    pub async fn verify(&self) -> Result<VerifyReport, StoreError> {
        self.with(|store| store.verify()).await
    }

    /// [`CalibrationStore::rebuild`].
    ///
    /// # Errors
    /// As [`CalibrationStore::rebuild`].
    pub async fn rebuild(&self) -> Result<Rebuilt, StoreError> {
        self.with(|store| store.rebuild()).await
    }

    /// [`CalibrationStore::export`].
    ///
    /// # Errors
    /// As [`CalibrationStore::export`].
    pub async fn export(&self, to: PathBuf) -> Result<Exported, StoreError> {
        self.with(move |store| store.export(&to)).await
    }

    /// Closes the store after everything that was sent before, and returns when it is closed.
    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.requests.send(Request::Close(reply)).await.is_ok() {
            let _ = closed.await;
        }
    }
}

/// Serves until asked to close or nobody can ask any more. A panic ends it: what state the store is in is unknown, so nothing
/// more is written to it, and it isn't closed as if all were well.
fn serve(mut store: Box<dyn CalibrationStore>, mut incoming: mpsc::Receiver<Request>) {
    while let Some(request) = incoming.blocking_recv() {
        match request {
            Request::Work(work) => {
                if catch_unwind(AssertUnwindSafe(|| work(store.as_mut()))).is_err() {
                    tracing::error!("the store's thread failed: nothing is stored any more, restart fusiond");
                    std::mem::forget(store);
                    return;
                }
            }
            Request::Close(closed) => {
                incoming.close();
                drop(store);
                let _ = closed.send(());
                return;
            }
        }
    }
}
