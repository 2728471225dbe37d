//! What the checks rest on: plain data, so that every check can be tried on every machine.

use std::path::PathBuf;

use fusion_calibrations::self_test::Comparison;
use fusion_client::failures::FailedStarts;
use fusion_client::v1;
use fusion_service::manager::{ManagerKind, ManagerState};

/// The system, as far as it makes a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// macOS.
    Macos,
    /// Everything else.
    Linux,
}

/// What became of a program that was run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ran {
    /// It ended by itself.
    Ended {
        /// With this code.
        code: i32,
        /// Both outputs, one after the other.
        said: String,
    },
    /// It isn't there, or didn't end in time.
    Not {
        /// Why, in words.
        why: String,
    },
}

/// A file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Whether it is a socket.
    pub(crate) is_socket: bool,
    /// Its permission bits.
    pub(crate) mode: u32,
    /// Its owner.
    pub(crate) owner: u32,
}

/// One of our programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// "fusiond".
    pub(crate) name: &'static str,
    /// Where it lies, if it was found.
    pub(crate) path: Option<PathBuf>,
    /// What `xattr -p com.apple.quarantine` says of it; `None` on other systems than macOS.
    pub(crate) quarantine: Option<Ran>,
    /// What `codesign -v` says of it; `None` on other systems than macOS.
    pub(crate) signature: Option<Ran>,
}

/// The directory of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The directory itself, if it is there.
    pub(crate) directory: Option<Entry>,
    /// What lies in it and in its directory of records.
    pub(crate) names: Vec<String>,
    /// The end of the daemon's crash log; empty if there is none.
    pub(crate) last_words: String,
    /// What its disk has room for, in bytes, if the system tells.
    pub(crate) free_bytes: Option<u64>,
}

/// What came of the self-test.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SelfTested {
    /// It was made, and reported.
    Done(Comparison),
    /// It couldn't be made.
    Not {
        /// Why, in words.
        why: String,
    },
    /// Nobody wanted it.
    Unwanted,
}

/// Everything.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    /// The system.
    pub(crate) system: System,
    /// `sw_vers`, or what /etc/os-release holds.
    pub(crate) release: Ran,
    /// What the daemon says, or why it says nothing.
    pub(crate) daemon: Result<v1::GetStatusReply, String>,
    /// Without a daemon: the engine that the worker beside this program names, or why it names none; `None` if there is no worker.
    pub(crate) worker: Option<Result<v1::Engine, String>>,
    /// `xcode-select -p`; `None` on other systems than macOS.
    pub(crate) xcode: Option<Ran>,
    /// `xcrun -f metal`; `None` on other systems than macOS.
    pub(crate) metal: Option<Ran>,
    /// Our programs.
    pub(crate) programs: Vec<Program>,
    /// Where the socket should be.
    pub(crate) socket_path: PathBuf,
    /// What is there.
    pub(crate) socket: Option<Entry>,
    /// The directory it is in.
    pub(crate) socket_directory: Option<Entry>,
    /// The user who asks.
    pub(crate) user: u32,
    /// Who starts the daemon here.
    pub(crate) manager_kind: ManagerKind,
    /// What the manager does with the daemon, or why it doesn't tell.
    pub(crate) manager: Result<ManagerState, String>,
    /// Failed starts under the manager, of which the last may be going on.
    pub(crate) failed_starts: Option<FailedStarts>,
    /// The state.
    pub(crate) state: State,
    /// The self-test.
    pub(crate) self_test: SelfTested,
}
