//! Notices changes, and swaps what is valid in.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fs_err as fs;
use notify::{RecursiveMode, Watcher as _};
use tokio::sync::{mpsc, oneshot, watch};

use super::{Configuration, load};
use crate::measure::unix_ms;

/// How long the files must be at peace before they are read: editors and copies write in several steps.
const PEACE: Duration = Duration::from_millis(200);
/// Reload requests that may wait.
const BACKLOG: usize = 8;

/// The configuration that holds, and what is wrong with the files now.
#[derive(Debug, Clone, PartialEq)]
pub struct Current {
    /// What holds.
    pub configuration: Arc<Configuration>,
    /// Why the files aren't it; `None` if they are.
    pub trouble: Option<String>,
    /// When the files were last read, in ms since 1970 (UTC).
    pub read_at_unix_ms: u64,
}

/// Reads the files when they change, when asked, and at the start.
#[derive(Debug)]
pub struct Keeper {
    directory: PathBuf,
    current: watch::Sender<Current>,
    requests: mpsc::Receiver<oneshot::Sender<Current>>,
    changes: mpsc::Receiver<()>,
    /// Keeps watching as long as it lives.
    _watcher: Option<notify::RecommendedWatcher>,
}

/// Asks for the files to be read now.
#[derive(Debug, Clone)]
pub struct Reloader(mpsc::Sender<oneshot::Sender<Current>>);

impl Reloader {
    /// Reads the files now; what came of it. `None` if the daemon is on its way out.
    pub async fn reload(&self) -> Option<Current> {
        let (sender, answer) = oneshot::channel();
        self.0.send(sender).await.ok()?;
        answer.await.ok()
    }
}

impl Keeper {
    /// Reads `directory` and watches it. It is made if it isn't there; where that or watching fails, the files are read when asked only, and the log says so.
    ///
    /// At the start there is no old configuration to keep: with bad files everything is as usual.
    pub fn start(directory: PathBuf) -> (Self, Reloader) {
        let (sender, changes) = mpsc::channel(1);
        let watcher = watch_directory(&directory, sender)
            .inspect_err(|error| {
                tracing::warn!(
                    "changes in {} aren't noticed: {error}; 'fusionctl config reload' reads it",
                    directory.display()
                );
            })
            .ok();
        let (ask, requests) = mpsc::channel(BACKLOG);
        let usual = Current { configuration: Arc::default(), trouble: None, read_at_unix_ms: 0 };
        let mut keeper =
            Self { directory, current: watch::Sender::new(usual), requests, changes, _watcher: watcher };
        keeper.read();
        (keeper, Reloader(ask))
    }

    /// What holds, and every change of it.
    pub fn subscribe(&self) -> watch::Receiver<Current> {
        self.current.subscribe()
    }

    /// Works until nobody can ask any more.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                request = self.requests.recv() => {
                    let Some(answer) = request else { return };
                    self.read();
                    // Whoever asked may be gone.
                    let _ = answer.send(self.current.borrow().clone());
                }
                Some(()) = self.changes.recv() => {
                    self.wait_for_peace().await;
                    self.read();
                }
            }
        }
    }

    async fn wait_for_peace(&mut self) {
        while let Ok(Some(())) = tokio::time::timeout(PEACE, self.changes.recv()).await {}
    }

    fn read(&mut self) {
        let read_at_unix_ms = unix_ms(SystemTime::now());
        match load(&self.directory) {
            Ok(configuration) => {
                let wanted = configuration.wanted.len();
                if *self.current.borrow().configuration != configuration {
                    tracing::info!(wanted, "the configuration is read from {}", self.directory.display());
                }
                let configuration = Arc::new(configuration);
                self.current.send_replace(Current { configuration, trouble: None, read_at_unix_ms });
            }
            Err(error) => {
                tracing::warn!("the configuration stays as it was: {error}");
                self.current.send_modify(|current| {
                    current.trouble = Some(error.to_string());
                    current.read_at_unix_ms = read_at_unix_ms;
                });
            }
        }
    }
}

/// Tells `changed` that something changed; once, however much did.
fn watch_directory(
    directory: &Path,
    changed: mpsc::Sender<()>,
) -> Result<notify::RecommendedWatcher, WatchError> {
    fs::create_dir_all(directory)?;
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading the files is an event too, on some systems.
        if event.is_ok_and(|event| event.kind.is_access()) {
            return;
        }
        // A full channel holds the same news already.
        let _ = changed.try_send(());
    })?;
    watcher.watch(directory, RecursiveMode::Recursive)?;
    Ok(watcher)
}

/// Why a directory isn't watched.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    /// It can't be made.
    #[error(transparent)]
    Directory(#[from] std::io::Error),
    /// The system refuses.
    #[error(transparent)]
    Notify(#[from] notify::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    async fn changed(receiver: &mut watch::Receiver<Current>) -> Current {
        tokio::time::timeout(Duration::from_secs(20), receiver.changed()).await.expect("noticed").unwrap();
        receiver.borrow_and_update().clone()
    }

    #[tokio::test]
    async fn changes_are_noticed_and_a_bad_file_keeps_what_was() {
        let place = TempDir::new().unwrap();
        let directory = place.path().join("fusion");
        let (keeper, reloader) = Keeper::start(directory.clone());
        let mut current = keeper.subscribe();
        current.borrow_and_update();
        let running = tokio::spawn(keeper.run());
        fs::create_dir_all(directory.join("shapes")).unwrap();
        fs::write(directory.join("config.toml"), "[budget]\non_ac = 0.02").unwrap();
        let mut seen = changed(&mut current).await;
        while seen.configuration.duty.on_ac != 0.02 {
            seen = changed(&mut current).await;
        }
        // A directory that came later is watched too.
        fs::write(directory.join("shapes/mine.toml"), "shapes = ['64x64x64']").unwrap();
        while seen.configuration.wanted.len() != 1 {
            seen = changed(&mut current).await;
        }
        fs::write(directory.join("config.toml"), "[budget]\non_ac = 2").unwrap();
        while seen.trouble.is_none() {
            seen = changed(&mut current).await;
        }
        assert!(seen.trouble.as_ref().unwrap().contains("config.toml"), "{:?}", seen.trouble);
        assert_eq!((seen.configuration.duty.on_ac, seen.configuration.wanted.len()), (0.02, 1));
        fs::remove_file(directory.join("config.toml")).unwrap();
        let read = reloader.reload().await.unwrap();
        assert_eq!((read.trouble, read.configuration.duty.on_ac), (None, 0.01));
        drop(reloader);
        running.await.unwrap();
    }

    #[tokio::test]
    async fn a_place_that_can_not_be_watched_is_read_when_asked() {
        let place = TempDir::new().unwrap();
        fs::write(place.path().join("file"), "").unwrap();
        let (keeper, reloader) = Keeper::start(place.path().join("file/below"));
        let current = keeper.subscribe();
        assert!(current.borrow().trouble.is_some());
        let running = tokio::spawn(keeper.run());
        assert!(reloader.reload().await.unwrap().trouble.is_some());
        drop(reloader);
        running.await.unwrap();
    }
}
