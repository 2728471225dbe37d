//! A daemon that answers from a script, over a real Unix socket. Shared by path between the tests of `fusion-client` and
//! of `fusionctl`; never published.
//!
//! It runs on a thread of its own, so that tests that start a process can use it.

// Each test binary uses another part of this.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

mod attached;
pub mod canned;
pub mod canned_gates;
mod services;

use std::os::unix::net::UnixListener as StdListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fusion_client::{SocketPath, v1};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Code;
use tonic::transport::Server;

/// How a calibration goes on after its last scripted event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The stream ends: as it should be where the last event is `JobFinished`.
    Close,
    /// Nothing more is ever sent.
    Hang,
    /// The whole daemon is gone.
    Die,
    /// The whole daemon stands still for two seconds.
    Freeze,
}

/// What the fake daemon does.
#[derive(Debug, Clone)]
pub struct Script {
    /// The version it claims.
    pub version: &'static str,
    /// The protocol it claims.
    pub protocol: u32,
    /// What every call but `GetStatus` and `Drain` is refused with.
    pub refusal: Option<(Code, String)>,
    /// The places of the shapes of a calibration that fail, and of those answered from the store.
    pub failing: Vec<usize>,
    /// Whether shapes are answered from the store.
    pub from_store: bool,
    /// Shapes after which a calibration stops.
    pub stop_after: Option<usize>,
    /// What happens then.
    pub ending: Ending,
    /// Estimates that it holds.
    pub estimates: Vec<v1::Estimate>,
    /// Bytes to blow the status up with.
    pub padding: usize,
    /// What `VerifyStore` complains about.
    pub problems: Vec<String>,
    /// Whether it stays after `Drain`.
    pub stubborn: bool,
    /// What it knows of gates.
    pub gates: v1::ListGatesReply,
    /// Who is attached.
    pub clients: Vec<v1::ClientStatus>,
    /// The same in numbers; `None` for a daemon that doesn't tell.
    pub summary: Option<v1::ClientsSummary>,
    /// What it measures by itself; `None` for a daemon that doesn't tell.
    pub planner: Option<v1::PlannerStatus>,
    /// What the user wants; `None` for a daemon that doesn't tell.
    pub configuration: Option<v1::ConfigurationStatus>,
    /// What the sensors say beyond the conditions; `None` for a daemon that doesn't tell.
    pub readings: Option<v1::Readings>,
    /// Since when the conditions hold; 0 for a daemon that doesn't tell.
    pub conditions_since_unix_ms: u64,
    /// How often every shape was calibrated.
    pub past: usize,
}

impl Script {
    /// A daemon from before anything was measured without being asked.
    pub fn old() -> Self {
        Self {
            planner: None,
            configuration: None,
            readings: None,
            conditions_since_unix_ms: 0,
            ..Self::default()
        }
    }
}

impl Default for Script {
    fn default() -> Self {
        Self {
            version: fusion_client::VERSION,
            protocol: fusion_client::PROTOCOL,
            refusal: None,
            failing: Vec::new(),
            from_store: false,
            stop_after: None,
            ending: Ending::Close,
            estimates: canned::estimates(),
            padding: 0,
            problems: Vec::new(),
            stubborn: false,
            gates: canned_gates::gates(),
            clients: canned_gates::clients(),
            summary: Some(canned_gates::summary()),
            planner: Some(canned::planner()),
            configuration: Some(canned::configuration()),
            readings: Some(canned::readings()),
            conditions_since_unix_ms: canned::THEN,
            past: 3,
        }
    }
}

/// What was seen of the clients.
#[derive(Debug, Default)]
pub struct Seen {
    /// The last calibration that was asked for.
    pub calibrate: Mutex<Option<v1::CalibrateRequest>>,
    /// The last question for a status.
    pub status: Mutex<Option<v1::GetStatusRequest>>,
    /// The reason of the last drain.
    pub drain: Mutex<Option<String>>,
    /// The pages that were asked for.
    pub pages: AtomicUsize,
    /// The last reset of a gate.
    pub reset: Mutex<Option<v1::ResetGateRequest>>,
    /// The last decision on a gate.
    pub lock: Mutex<Option<v1::LockGateRequest>>,
    /// The seconds of the last pause.
    pub pause: Mutex<Option<u64>>,
    /// How often it was told to go on.
    pub resumed: AtomicUsize,
    /// How often it was told to read the configuration.
    pub reloaded: AtomicUsize,
    /// The limit of the last question for the past.
    pub history: Mutex<Option<u32>>,
    /// The chip of the last export; empty for the machine's own.
    pub exported: Mutex<Option<String>>,
    /// How the last bundle was taken over, and its bytes.
    pub imported: Mutex<Option<(v1::TakenAs, Vec<u8>)>>,
    /// Calibrations that a client walked away from.
    pub cancelled: AtomicU32,
}

impl Seen {
    /// Waits until a client has walked away from a calibration.
    pub fn wait_for_cancel(&self) -> bool {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            if self.cancelled.load(Ordering::SeqCst) > 0 {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

/// A running fake; gone when dropped.
#[derive(Debug)]
pub struct Fake {
    directory: TempDir,
    /// What it has seen.
    pub seen: Arc<Seen>,
    stop: Arc<Mutex<Option<oneshot::Sender<()>>>>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    /// Starts one that does as `script` says.
    pub fn start(script: Script) -> Self {
        let directory = directory();
        let path = directory.path().join("s");
        let seen = Arc::new(Seen::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let stop = Arc::new(Mutex::new(Some(stop)));
        let service = services::Service {
            script: Arc::new(script),
            seen: Arc::clone(&seen),
            stop: Arc::clone(&stop),
            socket: path.clone(),
        };
        // Bound here, so that it listens when this returns.
        let listener = StdListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = UnixListener::from_std(listener).unwrap();
                let serve = services::add(&mut Server::builder(), &service)
                    .serve_with_incoming(UnixListenerStream::new(listener));
                tokio::select! { _ = serve => {}, _ = stopped => {} }
            });
            // As the daemon does; then every connection breaks with the runtime.
            let _ = std::fs::remove_file(path);
        });
        Self { directory, seen, stop, thread: Some(thread) }
    }

    /// Where it listens.
    pub fn socket(&self) -> SocketPath {
        SocketPath::new(self.path()).unwrap()
    }

    /// Where it listens.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("s")
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.lock().unwrap().take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Somebody that accepts connections and never says a word.
#[derive(Debug)]
pub struct Hung {
    directory: TempDir,
    _listener: StdListener,
}

impl Hung {
    /// Starts listening; the kernel accepts.
    pub fn start() -> Self {
        let directory = directory();
        let listener = StdListener::bind(directory.path().join("s")).unwrap();
        Self { directory, _listener: listener }
    }

    /// Where it listens.
    pub fn socket(&self) -> SocketPath {
        SocketPath::new(self.directory.path().join("s")).unwrap()
    }
}

/// An empty directory with a path that is short enough for a socket.
pub fn directory() -> TempDir {
    tempfile::Builder::new().prefix("fusion").tempdir().unwrap()
}
