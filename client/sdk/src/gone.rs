//! Waiting for a daemon to go.

use std::fs::File;
use std::time::Duration;

use fusion_proto::endpoint::SocketPath;
use tokio::time::{sleep, timeout};

use crate::connection::open;

/// How often to look.
const INTERVAL: Duration = Duration::from_millis(20);

/// Waits until the daemon of `socket` is gone, at most for `deadline`: nobody listens, and nobody holds its lock, so that another one
/// can start and its store can be opened. Whether that came about.
pub async fn wait_until_gone(socket: &SocketPath, deadline: Duration) -> bool {
    let gone = async {
        while open(socket).await.is_ok() || is_locked(socket) {
            sleep(INTERVAL).await;
        }
    };
    timeout(deadline, gone).await.is_ok()
}

/// A draining daemon stops listening first and lets its lock go last.
fn is_locked(socket: &SocketPath) -> bool {
    File::open(socket.lock_file()).is_ok_and(|file| file.try_lock().is_err())
}
