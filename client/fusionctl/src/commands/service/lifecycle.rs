//! `fusionctl start`, `stop` and `restart`.

use std::time::{Duration, Instant};

use fusion_client::failures::{FailedStarts, MOST_FAILED_STARTS};
use fusion_client::{Client, ClientError, SocketPath, wait_until_gone};
use fusion_service::definition::{Definition, definitions};
use fusion_service::installation::exclusive;
use fusion_service::{Checkpoints, running};

use super::{Service, rehearsal};
use crate::arguments::Rehearsal;
use crate::commands::connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::status::{Started, Stopped};
use crate::json::{self, Schema};
use crate::output::Output;
use crate::render::progress::Waiting;

/// Beyond the daemon's deadline for its callers: ending the worker and closing the store come after it.
const GRACE: Duration = Duration::from_secs(3);
/// launchd waits up to 10 s between two starts.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Between two looks at a daemon that starts.
const INTERVAL: Duration = Duration::from_millis(50);

pub(in super::super) async fn start(
    command: Rehearsal,
    socket: &SocketPath,
    output: Output,
) -> Result<(), Failure> {
    let service = installed(socket)?;
    if command.dry_run {
        return rehearsal::told(service.would_start()?, output);
    }
    let _alone = exclusive(&service.places)?;
    service.start()?;
    answer(socket, Schema::Start, output).await
}

pub(in super::super) async fn restart(
    command: Rehearsal,
    socket: &SocketPath,
    output: Output,
) -> Result<(), Failure> {
    let service = installed(socket)?;
    if command.dry_run {
        return rehearsal::told(service.would_restart()?, output);
    }
    let _alone = exclusive(&service.places)?;
    output.tell("stopping fusiond");
    service.stop()?;
    service.start()?;
    answer(socket, Schema::Restart, output).await
}

/// Through the manager where there is one, so that it doesn't start the daemon again; else by asking the daemon.
pub(in super::super) async fn stop(
    command: Rehearsal,
    socket: &SocketPath,
    output: Output,
) -> Result<(), Failure> {
    let Some(service) = Service::of(socket)? else { return drain(command, socket, output).await };
    if command.dry_run {
        return rehearsal::told(service.would_stop()?, output);
    }
    let _alone = exclusive(&service.places)?;
    let pid = running::holder(socket);
    service.stop()?;
    if output.json {
        return output.print(&json::document(Schema::Stop, &Stopped { pid, stopped: true })?);
    }
    let what = pid.map_or_else(
        || "fusiond was not running".to_owned(),
        |pid| format!("fusiond (process {pid}) has stopped"),
    );
    output.print(&format!("{what}; 'fusionctl start' or the next login starts it"))
}

fn installed(socket: &SocketPath) -> Result<Service, Failure> {
    Service::of(socket)?.ok_or_else(|| {
        let message = "fusiond is not installed: 'fusionctl install' does that; to run it in a terminal, type 'fusiond'";
        Failure::ended(Exit::Config, message)
    })
}

impl Service {
    fn start(&self) -> Result<(), Failure> {
        let socket = &self.places.socket;
        if FailedStarts::read(socket).is_some_and(|failed| failed.count >= MOST_FAILED_STARTS) {
            // The one that gave up may still be telling so on the socket.
            self.stop()?;
        }
        // A daemon that gave up tries again.
        FailedStarts::clear(socket)?;
        Ok(self.manager.start(&self.definitions()?, &Checkpoints::default())?)
    }

    fn stop(&self) -> Result<(), Failure> {
        self.manager.stop(&Checkpoints::default())?;
        // One that a terminal started beside it.
        running::end(&self.places.socket)?;
        Ok(())
    }

    pub(super) fn definitions(&self) -> Result<Vec<Definition>, Failure> {
        Ok(definitions(self.kind(), self.start_when(), &self.places)?)
    }
}

/// Waits for the daemon's first answer, and tells it.
async fn answer(socket: &SocketPath, schema: Schema, output: Output) -> Result<(), Failure> {
    let started = first_answer(socket, output).await?;
    if output.json {
        return output.print(&json::document(schema, &started)?);
    }
    output.print(&format!("fusiond {} (process {}) runs", started.version, started.pid))
}

/// Waits for the daemon's first answer.
pub(super) async fn first_answer(socket: &SocketPath, output: Output) -> Result<Started, Failure> {
    let waiting = Waiting::new("waiting for fusiond's first answer", output);
    let start = Instant::now();
    let answered = loop {
        match Client::connect(socket).await {
            Ok(client) => break client.status().await.map_err(Failure::from),
            Err(ClientError::FailedPrecondition(reason)) => {
                break Err(Failure::ended(Exit::Config, format!("{reason}; 'fusionctl logs' says more")));
            }
            Err(error) if start.elapsed() > START_LIMIT => break Err(silent(socket, &error)),
            Err(_) => tokio::time::sleep(INTERVAL).await,
        }
    };
    waiting.clear();
    answered.map(|status| Started { pid: status.pid, version: status.version })
}

fn silent(socket: &SocketPath, error: &ClientError) -> Failure {
    let seconds = START_LIMIT.as_secs();
    let message = format!(
        "no daemon has answered on {socket} within {seconds} s: 'fusionctl logs' tells what it does, 'fusionctl doctor' what stands in its way"
    );
    Failure::ended(Exit::from(error), message)
}

async fn drain(command: Rehearsal, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let client = match connect(socket).await {
        Err(Failure::Client(ClientError::NotRunning { socket, because })) => {
            let message =
                format!("nothing to stop: fusiond is not running ({because} at {})", socket.display());
            return Err(Failure::ended(Exit::NotRunning, message));
        }
        other => other?,
    };
    if command.dry_run {
        let pid = client.status().await?.pid;
        return rehearsal::told(vec![format!("end fusiond (process {pid})")], output);
    }
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
        let stopped = Stopped { pid: Some(reply.pid), stopped: true };
        return output.print(&json::document(Schema::Stop, &stopped)?);
    }
    output.print(&format!("fusiond (process {}) has stopped", reply.pid))
}
