//! A daemon in a directory of its own.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_client::v1::{self, calibrate_event::Event};
use fusion_client::{Client, ClientError, SocketPath};
use tempfile::TempDir;

use crate::scripted_worker;

/// Nothing here takes longer, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

pub fn shape(text: &str) -> Shape {
    Shape::parse(text, WeightFormat::F32, Layout::default()).unwrap()
}

/// Waits until `condition` holds.
pub async fn eventually<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A place for a daemon: its socket and its state.
pub struct Place {
    pub directory: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { directory: tempfile::Builder::new().prefix("fusiond-").tempdir().unwrap() }
    }

    pub fn socket(&self) -> SocketPath {
        SocketPath::new(self.directory.path().join("run/fusiond.sock")).unwrap()
    }

    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// The daemon's command line with a scripted worker.
    pub fn command(&self, script: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fusiond"));
        command.arg("--socket").arg(self.socket().as_path()).arg("--state-dir").arg(self.state());
        // Daemons that are tested at once measure at once.
        command.arg("--measuring-lock").arg(self.directory.path().join("measuring.lock"));
        command.arg("--worker").arg(std::env::current_exe().unwrap());
        command.args(["--worker-arg", scripted_worker::FLAG, "--worker-arg", script]);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    pub async fn start(&self, script: &str) -> Daemon {
        self.start_with(self.command(script)).await
    }

    pub async fn start_with(&self, mut command: Command) -> Daemon {
        let child = command.spawn().unwrap();
        let mut daemon = Daemon { child, socket: self.socket() };
        eventually("the daemon's first answer", async || {
            if let Some(status) = daemon.child.try_wait().unwrap() {
                panic!("the daemon ended at once with {status}: {}", daemon.errors());
            }
            Client::connect(&daemon.socket).await.ok()
        })
        .await;
        daemon
    }

    /// Runs a daemon that is expected to end by itself: its exit code and what it says.
    pub fn fails(&self, mut command: Command) -> (i32, String) {
        let output = command.output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}

/// A copy of a program, made by another process: while this one held it open for writing, a child that another test starts would inherit that, and nobody could run the copy.
pub fn copy_program(from: impl AsRef<Path>, to: &Path) {
    assert!(Command::new("cp").arg(from.as_ref()).arg(to).status().unwrap().success());
}

/// A running daemon; killed when dropped.
pub struct Daemon {
    pub child: Child,
    pub socket: SocketPath,
}

impl Daemon {
    pub async fn client(&self) -> Client {
        Client::connect(&self.socket).await.unwrap()
    }

    pub async fn calibrate(&self, shapes: &[&str]) -> Vec<Event> {
        let client = self.client().await;
        let shapes: Vec<Shape> = shapes.iter().map(|text| shape(text)).collect();
        collect(&client, &shapes, v1::Freshness::Reuse).await.unwrap()
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Waits for the end.
    pub async fn ended(&mut self) -> ExitStatus {
        eventually("the daemon's end", async || self.child.try_wait().unwrap()).await
    }

    /// Processes whose parent the daemon is.
    pub fn children(&self) -> Vec<u32> {
        let pid = self.child.id();
        let children = format!("/proc/{pid}/task/{pid}/children");
        let text = std::fs::read_to_string(children).unwrap_or_default();
        text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }

    pub fn errors(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every event of a job.
pub async fn collect(
    client: &Client,
    shapes: &[Shape],
    freshness: v1::Freshness,
) -> Result<Vec<Event>, ClientError> {
    let mut calibration = client.calibrate(shapes, freshness, "a test").await?;
    let mut events = Vec::new();
    while let Some(event) = calibration.next().await? {
        events.push(event);
    }
    Ok(events)
}

/// How a job ended.
pub fn tally(events: &[Event]) -> (u32, u32, u32) {
    match events.last() {
        Some(Event::Finished(end)) => (end.measured, end.from_store, end.failed),
        other => panic!("the last event is {other:?}"),
    }
}

/// Why shapes failed.
pub fn failures(events: &[Event]) -> Vec<String> {
    let reason = |event: &Event| match event {
        Event::ShapeFailed(failed) => Some(failed.reason.clone()),
        _ => None,
    };
    events.iter().filter_map(reason).collect()
}

/// The only entry of a directory whose name begins so.
pub fn entry(directory: &Path, prefix: &str) -> PathBuf {
    let mut found = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix));
    let first =
        found.next().unwrap_or_else(|| panic!("nothing in {} begins with {prefix}", directory.display()));
    assert_eq!(found.next(), None);
    first
}
