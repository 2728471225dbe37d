//! What can go wrong between us and the machine's manager.

use std::io;
use std::path::PathBuf;

use crate::record::RecordError;

/// Why the daemon isn't, or isn't any more, part of the machine. Whatever it is: the same command mends what was left half done.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The manager's program can't be started.
    #[error("can't run '{command}': {source}")]
    CannotRun {
        /// Program and arguments.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// The manager's program failed.
    #[error("'{command}' failed with {exit}, {meaning}{}", in_its_words(.said))]
    Failed {
        /// Program and arguments.
        command: String,
        /// "exit code 5", "signal 9".
        exit: String,
        /// What that means there, and what to do.
        meaning: &'static str,
        /// What it wrote.
        said: String,
    },
    /// The manager still had the old definition when patience ended.
    #[error(
        "launchd still holds {service} after {seconds} s: 'launchctl print {service}' shows what it waits for; run the command again then"
    )]
    StillLoaded {
        /// Domain and label.
        service: String,
        /// How long was waited.
        seconds: u64,
    },
    /// The manager lost what it was given.
    #[error("{0} is not installed: 'fusionctl install' does that")]
    NotInstalled(&'static str),
    /// A daemon that was asked to end doesn't.
    #[error(
        "fusiond (process {pid}) has not ended {seconds} s after it was asked to: look at its log, then end it with 'kill -9 {pid}'"
    )]
    DaemonStays {
        /// The process.
        pid: u32,
        /// How long was waited.
        seconds: u64,
    },
    /// A program is missing where the others are.
    #[error(
        "there is no '{name}' beside this fusionctl in '{directory}': build all three, or give the directory that has them with --from"
    )]
    NoProgram {
        /// The missing one.
        name: &'static str,
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// The worker would not start.
    #[error(
        "'{worker}' doesn't find its library '{name}': 'make setup' in its checkout puts MLX back, then build it again"
    )]
    NoLibrary {
        /// What the loader looks for.
        name: String,
        /// The worker.
        worker: PathBuf,
    },
    /// A path that the manager's files can't hold.
    #[error("'{0}' has a character that the manager's files can't hold: choose another path")]
    UnusablePath(PathBuf),
    /// Another run is at work.
    #[error("another fusionctl installs or uninstalls right now: wait for it")]
    Busy,
    /// The record of what is installed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A file or directory.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The property list.
    #[error("the agent's property list can't be written: {0}")]
    PropertyList(#[from] plist::Error),
}

fn in_its_words(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}
