//! Living with the daemon, for inference threads.
//!
//! Those threads aren't async and must never wait for us. So an [`Attachment`] keeps a local copy of what the daemon knows, refreshed by a thread
//! of its own, and every question is answered from that copy: no lock, no allocation, no system call.
//!
//! ```text
//!              attach: at most the limit, 250 ms by default
//!                 |
//!   Attached <----+----> Snapshot (the file that the daemon left) ----> Stock (nothing is known: no split)
//!      |  ^                 ^
//!      |  +-- reconnects ---+    with jittered back-off, for ever, in the background
//!      +---- daemon gone ---+    what was known stays in use
//! ```
//!
//! A daemon that is absent, hung, killed, older or newer changes speed, never results and never liveness.

mod activity;
mod answers;
mod background;
mod gates;
mod local_copy;
mod region;
mod table;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fusion_calibrations::engine::Engine;
use fusion_calibrations::gate::Explanation;
use fusion_calibrations::live::Observation;
use fusion_calibrations::shape::Layer;
use fusion_proto::endpoint::SocketPath;
use tokio::sync::mpsc;

use background::{Background, Ready};
use local_copy::Shared;

pub use answers::Answers;
pub use local_copy::LocalCopy;
pub use region::{CallGuard, Decided, RegionHandle};

/// Longest time that [`Attachment::attach`] takes, unless another is given.
pub const ATTACH_LIMIT: Duration = Duration::from_millis(250);
/// Characters of a region's name; a character has at most four bytes.
const LONGEST_NAME: usize = fusion_proto::MAX_WORKLOAD_BYTES / 4;
/// Observations that may wait for the background thread. More are dropped: they are samples.
const OBSERVATION_BACKLOG: usize = 256;

/// What the answers rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// A daemon that keeps them up to date.
    Attached,
    /// What a daemon told, or left in its snapshot file, before it went.
    Snapshot,
    /// Nothing: every answer is stock.
    Stock,
}

/// What measures with this process's very engine, where that isn't the daemon's own: the daemon runs `interpreter -m fusiond.worker`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientWorker {
    /// The Python interpreter, an absolute path.
    pub interpreter: PathBuf,
    /// Variables that it needs to find the same libraries: PYTHONPATH, LD_PRELOAD and the like; the daemon takes no others.
    pub environment: BTreeMap<String, String>,
}

/// Who attaches, and what for.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the daemon listens.
    pub socket: SocketPath,
    /// The daemon's state directory, for its snapshot file; `None` does without.
    pub state_directory: Option<PathBuf>,
    /// What a person calls this program.
    pub name: String,
    /// The engine that runs the products; `None` for that of the daemon's worker.
    pub engine: Option<Engine>,
    /// What measures with `engine`; `None` if only the daemon's worker can measure.
    pub worker: Option<ClientWorker>,
    /// The layers that are run. Handles are given for these.
    pub layers: Vec<Layer>,
    /// A number of rows that is used, so that the daemon measures what matters; 0 if that can't be said.
    pub typical_rows: u32,
    /// What the process needs at once (weights, activations and caches), in bytes; `None` if it can't say. One that is larger than what the GPU may
    /// hold pages, and then no arm is tried.
    pub working_set_bytes: Option<u64>,
    /// How long [`Attachment::attach`] may take.
    pub limit: Duration,
}

impl Options {
    /// Options for `layers`, with everything else as usual.
    pub fn new(socket: SocketPath, name: impl Into<String>, layers: Vec<Layer>) -> Self {
        let state_directory = fusion_proto::state::state_directory(None).ok();
        Self {
            socket,
            state_directory,
            name: name.into(),
            engine: None,
            worker: None,
            layers,
            typical_rows: 0,
            working_set_bytes: None,
            limit: ATTACH_LIMIT,
        }
    }
}

/// A layer of an attachment: what questions are asked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LayerHandle(usize);

/// A live copy of the daemon's knowledge: its [`Answers`] are kept up to date. Dropping it leaves the daemon.
#[derive(Debug)]
pub struct Attachment {
    answers: Answers,
    observations: Option<mpsc::Sender<(Layer, Observation)>>,
    thread: Option<JoinHandle<()>>,
}

impl Attachment {
    /// Attaches. Never fails, and takes at most the limit: whatever is there by then is the first basis, and the rest comes in the background.
    pub fn attach(options: Options) -> Self {
        let answers = Answers::new(&options.layers, options.engine.as_ref(), options.working_set_bytes);
        let (observations, taken) = mpsc::channel(OBSERVATION_BACKLOG);
        let (ready, waiting) = std::sync::mpsc::sync_channel::<Ready>(1);
        let limit = options.limit;
        let background = Background::new(Arc::clone(&answers.shared), options, taken, ready);
        // Without a thread there is stock.
        let thread =
            std::thread::Builder::new().name("fusion-client".to_owned()).spawn(move || background.run()).ok();
        // A time-out and a thread that is gone mean the same: go on with what is there.
        let _ = waiting.recv_timeout(limit);
        Self { answers, observations: Some(observations), thread }
    }

    /// Why calls of `rows` rows of a region are executed as they are; `None` before the first. Not for every call: this waits and allocates.
    pub fn explain(&self, region: &RegionHandle, rows: u32) -> Option<Explanation> {
        region.explain(rows)
    }

    /// Says that products run until the guard is dropped, so that nothing is measured meanwhile. Costs one wake of the background thread
    /// when it is the first, and nothing else.
    pub fn busy(&self) -> BusyGuard {
        let shared = &self.answers.shared;
        if shared.activity.hold() {
            shared.wake.notify_one();
        }
        BusyGuard { shared: Arc::clone(shared) }
    }

    /// Says that something short runs, such as a decode step: the process counts as busy until nothing has run for a quarter of a second, or up to twice that.
    /// Cheaper than a guard or a call, for who has many: 10 a second are enough.
    pub fn touch(&self) {
        let shared = &self.answers.shared;
        let (mark, wake) = shared.activity.begin();
        shared.activity.end(mark);
        if wake {
            shared.wake.notify_one();
        }
    }

    /// Reports a split call whose units were waited for one after the other. Never blocks; whether it was taken.
    pub fn observe(&self, layer: LayerHandle, observation: Observation) -> bool {
        let Some(layer) = self.answers.layers().get(layer.0) else { return false };
        self.observations.as_ref().is_some_and(|sender| sender.try_send((*layer, observation)).is_ok())
    }
}

impl Deref for Attachment {
    type Target = Answers;

    fn deref(&self) -> &Answers {
        &self.answers
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // The closed channel is the sign to leave.
        self.observations = None;
        self.answers.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// While it is held, the daemon measures nothing.
#[derive(Debug)]
pub struct BusyGuard {
    shared: Arc<Shared>,
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.shared.activity.release();
    }
}
