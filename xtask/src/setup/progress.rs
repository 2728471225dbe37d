//! `[ 3s] building mlx-c`: what is being done, and how long it has been going.

use std::time::Instant;

pub(super) struct Progress(Instant);

impl Progress {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn step(&self, what: &str) {
        eprintln!("[{:>2}s] {what}", self.0.elapsed().as_secs());
    }
}
