//! The store for async code: one thread owns it and does one thing after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fusion_calibrations::record::Record;
use fusion_calibrations::sharing::{self, Decision};
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
    /// Set when the thread ended by a panic.
    failed: Arc<AtomicBool>,
}

impl StoreHandle {
    /// Starts the thread.
    ///
    /// # Errors
    /// What the system says when it has no thread to give.
    pub fn spawn(store: impl CalibrationStore + 'static) -> std::io::Result<Self> {
        let (requests, incoming) = mpsc::channel(QUEUE);
        let failed = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&failed);
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || serve(Box::new(store), incoming, &noted))?;
        Ok(Self { requests, failed })
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
        self.requests.send(Request::Work(work)).await.map_err(|_| self.gone())?;
        answer.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Why the thread doesn't answer.
    fn gone(&self) -> StoreError {
        if self.failed.load(Ordering::Acquire) {
            StoreError::Stopped { reason: "the store's thread panicked, see the log".to_owned() }
        } else {
            StoreError::Closed
        }
    }

    /// [`CalibrationStore::commit`]: durable when it returns.
    ///
    /// # Errors
    /// As [`Self::with`] and [`CalibrationStore::commit`]; likewise below.
    pub async fn commit(&self, record: Record) -> Result<Revision, StoreError> {
        self.with(move |store| store.commit(&record)).await
    }

    /// Commits a record of another machine, unless what is known of its key is better. Decided on the store's thread, so that nothing that
    /// was measured meanwhile is replaced.
    ///
    /// # Errors
    /// As [`Self::with`], [`CalibrationStore::history`] and [`CalibrationStore::commit`].
    pub async fn take_over(&self, record: Record) -> Result<Decision, StoreError> {
        self.with(move |store| {
            let history = store.history(&CalibrationKey::of(&record))?;
            let decision = sharing::decide(history.last().map(|stored| &stored.record), &record);
            if decision == Decision::Take {
                store.commit(&record)?;
            }
            Ok(decision)
        })
        .await
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
fn serve(mut store: Box<dyn CalibrationStore>, mut incoming: mpsc::Receiver<Request>, failed: &AtomicBool) {
    while let Some(request) = incoming.blocking_recv() {
        match request {
            Request::Work(work) => {
                // Noted before and taken back after: a panic drops the answer's sender, which wakes the caller, before it gets here.
                failed.store(true, Ordering::Release);
                let work = AssertUnwindSafe(|| work(store.as_mut()));
                if catch_unwind(work).is_err() {
                    tracing::error!("the store's thread failed: nothing is stored any more, restart fusiond");
                    std::mem::forget(store);
                    return;
                }
                failed.store(false, Ordering::Release);
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
