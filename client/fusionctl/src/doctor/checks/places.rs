//! Socket, state and disk.

use crate::doctor::Check;
use crate::doctor::facts::{Entry, Facts};

/// Bits that let somebody else in.
const OTHERS: u32 = 0o077;
/// Bits that let somebody else change something.
const WRITERS: u32 = 0o022;
/// Below this a commit may fail soon: a calibration takes a few KiB, logs some MiB.
const TOO_LITTLE_BYTES: u64 = 100 << 20;
/// Below this the system itself is about to be in trouble.
const LITTLE_BYTES: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

pub(super) fn socket(facts: &Facts) -> Check {
    const ID: &str = "socket";
    let path = facts.socket_path.display();
    if let Some(directory) = facts.socket_directory {
        if directory.owner != facts.user {
            return Check::fail(
                ID,
                format!("the directory of {path} belongs to another user"),
                "whoever owns it could answer in the daemon's place",
                "name a directory of your own with --socket or FUSION_SOCKET",
            );
        }
        if directory.mode & OTHERS != 0 {
            return Check::fail(
                ID,
                format!("the directory of {path} is open to others (mode {:04o})", directory.mode & 0o7777),
                "other users of this machine can reach the socket; the daemon refuses them, but should not need to",
                "chmod 700 on the directory",
            );
        }
    }
    match (facts.socket, &facts.daemon) {
        (Some(Entry { is_socket: false, .. }), _) => Check::fail(
            ID,
            format!("{path} is no socket"),
            "the daemon doesn't remove what isn't its own, and can't listen there",
            "look at what it is, and move it away",
        ),
        (Some(_), Err(_)) => Check::warn(
            ID,
            format!("{path} is there, and nobody answers"),
            "a daemon that was killed leaves its socket",
            "nothing: the next daemon takes it over",
        ),
        (Some(_), Ok(_)) => Check::pass(ID, format!("{path}, yours alone")),
        (None, _) => Check::warn(
            ID,
            format!("there is no {path}"),
            "no daemon listens there",
            "see the check 'daemon'",
        ),
    }
}

pub(super) fn state_directory(facts: &Facts) -> Check {
    const ID: &str = "state-directory";
    let path = facts.state.path.display();
    match facts.state.directory {
        None => Check::warn(
            ID,
            format!("there is no {path} yet"),
            "the daemon makes it when it starts",
            "see the check 'daemon'",
        ),
        Some(directory) if directory.owner != facts.user => Check::fail(
            ID,
            format!("{path} belongs to another user"),
            "the daemon can't keep what it measures",
            "name another with FUSION_STATE_DIR, or give it back to you with chown",
        ),
        // What is private in it lies in directories of its own, which the daemon makes with mode 0700.
        Some(directory) if directory.mode & WRITERS != 0 => Check::fail(
            ID,
            format!("{path} can be written by others (mode {:04o})", directory.mode & 0o7777),
            "other users of this machine could change what is served",
            "chmod 700 on the directory",
        ),
        Some(_) => Check::pass(ID, format!("{path}, only yours to change")),
    }
}

pub(super) fn stale_files(facts: &Facts) -> Check {
    let stale: Vec<&str> =
        facts.state.names.iter().map(String::as_str).filter(|name| is_stale(name)).collect();
    if stale.is_empty() {
        return Check::pass("stale-files", "none");
    }
    Check::warn(
        "stale-files",
        stale.join(", "),
        "copies of the store that were set aside, damaged records, and what a killed process left; nobody reads them",
        "remove them from the state directory when nothing is missed",
    )
}

fn is_stale(name: &str) -> bool {
    // The lock is no leftover: it is kept between runs.
    let set_aside = name.starts_with("store.") && name != "store.lock";
    let unfinished = [".tmp", ".new", ".damaged"].iter().any(|suffix| name.ends_with(suffix))
        || name.contains(".unfinished-");
    set_aside || unfinished
}

pub(super) fn disk(facts: &Facts) -> Check {
    const REMEDY: &str = "free some space";
    match facts.state.free_bytes {
        None => Check::warn(
            "disk",
            "the system doesn't say how much is free",
            "a full disk would go unnoticed here",
            "look with df",
        ),
        Some(free) if free < TOO_LITTLE_BYTES => Check::fail(
            "disk",
            format!("{} MiB free", free / MIB),
            "what is measured can hardly be kept; what was kept before is safe",
            REMEDY,
        ),
        Some(free) if free < LITTLE_BYTES => {
            Check::warn("disk", format!("{} MiB free", free / MIB), "it may not be enough for long", REMEDY)
        }
        Some(free) => Check::pass("disk", format!("{} GiB free", free / (1 << 30))),
    }
}
