//! Waiting for a daemon to go.

use std::time::Duration;

use fusion_proto::endpoint::SocketPath;
use tokio::time::{sleep, timeout};

use crate::connection::open;

/// How often to look.
const INTERVAL: Duration = Duration::from_millis(20);

/// Waits until nobody listens on `socket` any more, at most for `deadline`. Whether that came about.
pub async fn wait_until_gone(socket: &SocketPath, deadline: Duration) -> bool {
    let gone = async {
        while open(socket).await.is_ok() {
            sleep(INTERVAL).await;
        }
    };
    timeout(deadline, gone).await.is_ok()
}
