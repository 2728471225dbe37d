//! What a decision rests on, watched: the next question waits for the first change.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use fusion_calibrations::record::Record;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};

use super::now;
use crate::clocks;
use crate::configuration;
use crate::jobs::Board;
use crate::planner::{Hold, Moment};
use crate::sensors::Observed;
use crate::service::Parts;
use crate::table::Identity;

/// Everything whose change may change a decision.
pub(super) struct Changes {
    busy: watch::Receiver<usize>,
    population: watch::Receiver<u64>,
    revision: watch::Receiver<u64>,
    observed: watch::Receiver<Observed>,
    configuration: watch::Receiver<configuration::Current>,
    identity: watch::Receiver<Option<Identity>>,
    hold: watch::Receiver<Hold>,
    pub(super) board: watch::Receiver<Board>,
    commits: broadcast::Receiver<Arc<Record>>,
}

impl Changes {
    /// Of what the daemon consists of.
    pub(super) fn of(parts: &Parts) -> Self {
        Self {
            busy: parts.clients.busy(),
            population: parts.clients.population(),
            revision: parts.clients.revision(),
            observed: parts.sensors.subscribe(),
            configuration: parts.configuration.clone(),
            identity: parts.jobs.identity(),
            hold: parts.recalibration.hold.subscribe(),
            board: parts.jobs.board(),
            commits: parts.jobs.commits(),
        }
    }

    /// Waits for the first change, or for `until`; with the record, if it is a commit.
    pub(super) async fn wait(&mut self, until: Option<Moment>) -> Option<Arc<Record>> {
        let timer = async {
            match until {
                Some(until) => tokio::time::sleep(until.since(now())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = timer => None,
            _ = self.busy.changed() => None,
            _ = self.population.changed() => None,
            _ = self.revision.changed() => None,
            _ = self.observed.changed() => None,
            _ = self.configuration.changed() => None,
            _ = self.identity.changed() => None,
            _ = self.hold.changed() => None,
            _ = self.board.changed() => None,
            commit = self.commits.recv() => match commit {
                Ok(record) => Some(record),
                // The table has them all.
                Err(RecvError::Lagged(_)) => None,
                Err(RecvError::Closed) => std::future::pending().await,
            },
        }
    }

    /// A commit that was made meanwhile.
    pub(super) fn commit_that_waits(&mut self) -> Option<Arc<Record>> {
        loop {
            match self.commits.try_recv() {
                Ok(record) => return Some(record),
                Err(TryRecvError::Lagged(_)) => {}
                Err(_) => return None,
            }
        }
    }
}

/// Tells when the clocks part.
pub(super) struct Clocks {
    monotonic: Instant,
    wall: SystemTime,
}

impl Clocks {
    pub(super) fn now() -> Self {
        Self { monotonic: Instant::now(), wall: SystemTime::now() }
    }

    /// Whether they parted since the last question.
    pub(super) fn jumped(&mut self) -> bool {
        let before = std::mem::replace(self, Self::now());
        let passed = self.monotonic.duration_since(before.monotonic);
        clocks::part(passed, self.wall.duration_since(before.wall).ok())
    }
}
