//! Recalibration: keeps what is wanted known, when the planner allows it.
//!
//! ```text
//! clients, configuration --> wants --+
//! sensors, clocks, lock, pause ------+--> planner --Run--> jobs (one shape, cancelled when a client turns busy)
//!            ^                             |                  |
//!            +---- something changed ------+ NotNow           +--> what it spent, and what came of it
//! ```
//!
//! Engines that clients' own workers measure have a planner each beside the own worker's, on one budget (`measurers`).
//!
//! The [planner](crate::planner) decides; here it is asked, told, and obeyed. One task; it sleeps until something that a decision rests on
//! changes, or until the moment that the planner named.

mod asked;
mod changes;
mod driver;
mod end;
mod measurers;
mod measuring_lock;
mod recent;
mod state_file;
mod wants;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::lines::Lines;
use fusion_calibrations::shape::{Layer, Shape};
use tokio::sync::watch;

use crate::clients::Introduction;
use crate::configuration::ClientWorkers;
use crate::jobs::Measurer;
use crate::measure::unix_ms;
use crate::planner::{Decision, Freshness, Hold, Known, Moment, Planner, Policy, Staleness};
use crate::table::Identity;

use measurers::Planners;

pub use driver::run;
pub use measuring_lock::default_path as default_measuring_lock;
pub use recent::{Recent, shapes as client_shapes};
pub use state_file::{Kept, KeptError, to_text as kept_text};
pub use wants::Served;

/// How long a person waits for the decision that follows a command. It takes a look at the processors and the end of a job, together well below a second.
const DECIDES_WITHIN: Duration = Duration::from_secs(5);

/// What the planner does, for people.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    /// What it decided last, in words.
    pub decision: String,
    /// That decision; `None` before the first.
    pub decided: Option<Decision>,
    /// What held it back then.
    pub hold: Hold,
    /// The shape that is measured, or comes next; `None` if nothing is due.
    pub next: Option<Shape>,
    /// When it looks again, in ms since 1970 (UTC), if it named a moment.
    pub until_unix_ms: Option<u64>,
    /// Machine time that may be spent, in ms.
    pub credit_ms: f64,
    /// Share of wall time that may be spent under the present conditions.
    pub duty: f64,
    /// Shapes that are wanted.
    pub wanted: usize,
    /// Those that are stale, with the reason.
    pub stale: Vec<(Shape, Staleness)>,
    /// What keeps failing: what, why, how often in a row, and when it is tried again in ms since 1970 (UTC).
    pub troubles: Vec<(String, String, u32, u64)>,
}

/// The planner, as the rest of the daemon sees it.
#[derive(Debug)]
pub struct Recalibration {
    planners: Mutex<Planners>,
    recent: Mutex<Recent>,
    hold: watch::Sender<Hold>,
    view: watch::Sender<View>,
}

impl Recalibration {
    /// With what was kept in `state_directory`.
    pub fn open(state_directory: &Path, conditions: Conditions) -> Arc<Self> {
        let Kept { planner, recent } = Kept::read(state_directory);
        let planner = Planner::new(Policy::default(), planner, now(), conditions);
        Arc::new(Self {
            planners: Mutex::new(Planners::new(planner)),
            recent: Mutex::new(recent),
            hold: watch::Sender::new(Hold::Released),
            view: watch::Sender::default(),
        })
    }

    /// Measures nothing by itself until `until`, or until resumed. A job that runs is ended.
    pub fn pause(&self, until: Option<Moment>) {
        self.hold.send_replace(Hold::Paused { until });
    }

    /// Goes on.
    pub fn resume(&self) {
        self.hold.send_replace(Hold::Released);
    }

    /// Whether it is paused. A pause whose time is over is none.
    pub fn hold(&self) -> Hold {
        let at = now();
        self.hold.send_if_modified(|hold| {
            let over = matches!(hold, Hold::Paused { until: Some(until) } if *until <= at);
            if over {
                *hold = Hold::Released;
            }
            over
        });
        *self.hold.borrow()
    }

    /// Waits until a decision was made under the present hold: what a person who changed it wants to see. Not for ever.
    pub async fn decided(&self) {
        let hold = self.hold();
        let mut view = self.view.subscribe();
        let decided = view.wait_for(|view| view.decided.is_some() && view.hold == hold);
        if tokio::time::timeout(DECIDES_WITHIN, decided).await.is_err() {
            tracing::warn!("the planner did not decide within {DECIDES_WITHIN:?}");
        }
    }

    /// What it does.
    pub fn view(&self) -> View {
        let credit_ms = self.planners().own().credit_ms(now());
        View { credit_ms, ..self.view.borrow().clone() }
    }

    /// Why what is served for a shape is stale; `None` if it isn't.
    pub fn staleness(&self, shape: Shape, known: &Known) -> Option<Staleness> {
        match self.planners().own().freshness(now(), shape, known) {
            Freshness::Stale(why) => Some(why),
            Freshness::Until(_) => None,
        }
    }

    /// A client's calls moved a layer's live lines away from the stored ones.
    pub fn observed(&self, by: &Measurer, layer: Layer, stored: &Lines, live: &Lines) {
        self.planners().of(by).observed(now(), layer, stored, live);
    }

    /// Who measures for a client; and why it isn't the worker that it named, if it named one.
    pub fn measurer(
        &self,
        client: &Introduction,
        own: Option<&Identity>,
        workers: ClientWorkers,
    ) -> (Measurer, Option<String>) {
        measurers::choose(client, own, workers, |engine| self.planners().worker_trouble(engine, now()))
    }

    fn planners(&self) -> MutexGuard<'_, Planners> {
        self.planners.lock().expect("no holder of this lock panics")
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().expect("no holder of this lock panics")
    }
}

fn now() -> Moment {
    Moment::from_unix_ms(unix_ms(SystemTime::now()))
}
