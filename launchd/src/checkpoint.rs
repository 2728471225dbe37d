//! Being cut short, on purpose, wherever it hurts: for tests.

use std::cell::Cell;

/// The environment variable that kills a debug build's run at a checkpoint: 0 is the first one.
pub const CRASH_VARIABLE: &str = "FUSION_CRASH_AT_STEP";

/// Counts the moments at which a run might be cut short, and kills the process at one of them if it is told to.
#[derive(Debug, Default)]
pub struct Checkpoints {
    left: Cell<Option<u32>>,
}

impl Checkpoints {
    /// As [`CRASH_VARIABLE`] says; release builds pass every checkpoint.
    pub fn from_environment() -> Self {
        let told = std::env::var(CRASH_VARIABLE).ok().and_then(|number| number.parse().ok());
        Self { left: Cell::new(told.filter(|_| cfg!(debug_assertions))) }
    }

    /// Lets the run go on, or ends it without a word, as a crash does.
    pub fn pass(&self) {
        let Some(left) = self.left.get() else { return };
        if left == 0 {
            // A process may kill itself; if not, the test that wants it dead sees it alive.
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
        self.left.set(Some(left.saturating_sub(1)));
    }
}
