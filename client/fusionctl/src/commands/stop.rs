//! `fusionctl stop`.

use std::time::Duration;

use fusion_client::{ClientError, SocketPath, wait_until_gone};

use super::connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;

/// Beyond the daemon's deadline for its callers: ending the worker and closing the store come after it.
const GRACE: Duration = Duration::from_secs(3);

pub(super) async fn run(socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let client = match connect(socket).await {
        Err(Failure::Client(ClientError::NotRunning { socket, because })) => {
            let message =
                format!("nothing to stop: fusiond is not running ({because} at {})", socket.display());
            return Err(Failure::ended(Exit::NotRunning, message));
        }
        other => other?,
    };
    let reply = client.drain("fusionctl stop").await?;
    let deadline = Duration::from_millis(reply.deadline_ms.into()) + GRACE;
    if !wait_until_gone(socket, deadline).await {
        let (pid, seconds) = (reply.pid, deadline.as_secs_f64());
        let message = format!(
            "fusiond (process {pid}) still listens on {socket} after {seconds:.1} s: look at its log, then end it with 'kill {pid}'"
        );
        return Err(Failure::ended(Exit::Busy, message));
    }
    if output.json {
        let stopped = json::status::Stopped { pid: reply.pid, stopped: true };
        return output.print(&json::document(Schema::Stop, &stopped)?);
    }
    output.print(&format!("fusiond (process {}) has stopped", reply.pid))
}
