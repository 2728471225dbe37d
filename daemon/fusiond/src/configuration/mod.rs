//! What the user wants: a directory of small files, read whole, checked, and swapped in.
//!
//! ```text
//! config.toml            how much may be measured, which shipped models, how many rows, what is logged
//! shapes/NAME.toml       layers and shapes of one's own
//! models/NAME/           a checkpoint's folder, or a link to one: its config.json says which layers there are
//! ```
//!
//! ```text
//! a file changes --> 200 ms of peace --> read all --> valid?  yes: a new Configuration takes the place of the old one
//! SIGHUP, reload ----------------------------------^          no: the old one stays, and the status says what is wrong where
//! ```
//!
//! Nothing has to be there: without files everything is as usual.

mod files;
mod load;
mod watch;

use std::time::Duration;

use fusion_calibrations::shape::Shape;

pub use load::{ConfigurationError, load};
pub use watch::{Current, Keeper, Reloader};

/// Share of wall time that measuring may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DutyShares {
    /// On mains.
    pub on_ac: f64,
    /// On battery.
    pub on_battery: f64,
}

impl DutyShares {
    /// More than this of the machine's time is never taken.
    pub const MOST: f64 = 0.1;
}

impl Default for DutyShares {
    /// 1 % on mains, 0.1 % on battery.
    fn default() -> Self {
        Self { on_ac: 0.01, on_battery: 0.001 }
    }
}

/// How long the planner waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How long conditions must hold before anything is measured under them.
    pub settle: Duration,
    /// How long clients must have been idle.
    pub quiet: Duration,
}

impl Default for Patience {
    /// 30 s and 10 s.
    fn default() -> Self {
        Self { settle: Duration::from_secs(30), quiet: Duration::from_secs(10) }
    }
}

/// What becomes of workers that clients name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientWorkers {
    /// Each measures for its client's engine.
    #[default]
    Used,
    /// None is started: such clients are served what the own worker measured.
    Ignored,
}

/// A shape that the user wants calibrated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The shape.
    pub shape: Shape,
    /// Where it comes from: "model qwen2.5-0.5b", "shapes/mine.toml", "models/my-llama".
    pub origin: String,
}

/// Everything the user wants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Configuration {
    /// How much may be measured.
    pub duty: DutyShares,
    /// How long the planner waits.
    pub patience: Patience,
    /// What becomes of workers that clients name.
    pub client_workers: ClientWorkers,
    /// What is kept calibrated, each shape once.
    pub wanted: Vec<Wanted>,
    /// What a checkpoint holds that can't be split, with the reason: "models/my-moe: 60 routed experts: ...".
    pub skipped: Vec<String>,
    /// What is logged: a filter as FUSION_LOG takes it; `None` leaves it as it is.
    pub log_filter: Option<String>,
}
