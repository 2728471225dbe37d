//! Makes the daemon part of the machine, and leaves nothing behind.
//!
//! ```text
//! Installation (what is wanted) --+
//!                                 +--> plan (pure): steps --> perform: files, launchctl or systemctl
//! Observed (what is there) -------+
//! ```
//!
//! A plan is the difference between what is wanted and what is there. So a second run does nothing, `--dry-run` prints the plan, and a run that was
//! cut short, at whatever step, is mended by the next one.
//!
//! | module | holds |
//! |---|---|
//! | [`places`] | where everything lies |
//! | [`definition`] | what the manager is told: the agent's property list, the units |
//! | [`manager`] | launchd and systemd, through `launchctl` and `systemctl` |
//! | [`installation`] | the plans and how they are carried out |
//! | [`libraries`] | MLX's libraries, where they aren't part of the worker |
//! | [`running`] | the daemon that runs, as its lock tells |
//!
//! `homebrew/` holds the formula, whose `service` block stands for the property list where Homebrew installs.

pub mod definition;
pub mod error;
pub mod installation;
pub mod libraries;
pub mod manager;
pub mod places;
pub mod running;

mod checkpoint;
mod files;
mod record;
mod tool;

pub use checkpoint::{CRASH_VARIABLE, Checkpoints};
pub use error::ServiceError;
pub use record::{Record, RecordError};

/// The daemon's name to launchd; systemd's units are `fusiond.socket` and `fusiond.service`.
pub const LABEL: &str = "dev.fusion.fusiond";

/// When the daemon starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// With the user's session: it measures while nobody asks.
    AtLogin,
    /// With the first client: nothing runs before.
    OnDemand,
}

impl std::fmt::Display for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::AtLogin => "at login",
            Self::OnDemand => "on demand",
        })
    }
}
