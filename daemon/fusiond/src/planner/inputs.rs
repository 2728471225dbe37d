//! What the planner is asked with: the present state of everything that it doesn't keep itself.

use super::demand::Want;
use super::moment::Moment;

/// What attached clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientActivity {
    /// Products run.
    Busy {
        /// The process of one of those that are busy.
        pid: u32,
        /// How many others are.
        others: usize,
    },
    /// None is busy.
    Idle {
        /// Since when; `None` if none was since the daemon started.
        since: Option<Moment>,
    },
}

/// What others than attached clients do with the machine, as shares of it. `None` where no sensor says: then the measurement notices.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// Share of all cores.
    pub cpu: Option<f64>,
    /// Share of the GPU.
    pub gpu: Option<f64>,
}

/// The lock that one measuring daemon of the machine holds, whichever user's it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lock {
    /// This one does.
    Held,
    /// Another one does: who, if that is known.
    Elsewhere(Option<String>),
}

/// Whether a worker measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// No job runs.
    Free,
    /// A job runs: a planned one, or one that a person asked for.
    Measuring,
}

/// What holds the planner back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hold {
    /// Nobody does.
    #[default]
    Released,
    /// Until a moment, or until resumed.
    Paused {
        /// When it ends by itself.
        until: Option<Moment>,
    },
    /// The worker is throttled: what it measured would be wrong.
    Throttled,
}

/// A question.
#[derive(Debug, Clone)]
pub struct Inputs<'a> {
    /// The wall clock.
    pub now: Moment,
    /// What attached clients do.
    pub clients: ClientActivity,
    /// What others do.
    pub load: Load,
    /// Memory that could be taken without pushing others out, in bytes; `None` if nobody says.
    pub available_memory_bytes: Option<u64>,
    /// Who may measure.
    pub lock: Lock,
    /// Whether something is measured.
    pub worker: WorkerState,
    /// What holds it back.
    pub hold: Hold,
    /// What should be known, in any order, each shape once.
    pub wants: &'a [Want],
}
