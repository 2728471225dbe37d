//! Failed starts: counted where a manager would start the daemon again for ever, so that it gives up, and says why.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fusion_proto::endpoint::SocketPath;
use fusion_proto::failures::{FailedStarts, MOST_FAILED_STARTS};

use crate::measure::unix_ms;

/// A daemon that lived so long has started.
pub const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// What is known of a start before it is tried.
const NOT_SURVIVED: &str =
    "it ended without a word within 10 s of its start: 'fusionctl logs --crashes' may tell";

/// One start under a manager.
#[derive(Debug)]
pub struct Attempt {
    socket: SocketPath,
    count: u32,
}

/// Whether to try at all.
#[derive(Debug)]
pub enum Verdict {
    /// Try.
    Try(Attempt),
    /// It failed too often: here is why.
    GaveUp(String),
}

impl Attempt {
    /// Counts a start of this version, as one that fails until it is known to be well: what kills a process leaves it no time to write.
    pub fn begin(socket: &SocketPath) -> Verdict {
        let version = env!("CARGO_PKG_VERSION");
        let before = FailedStarts::read(socket).filter(|before| before.version == version);
        if let Some(before) = before.as_ref().filter(|before| before.is_final(version, now())) {
            return Verdict::GaveUp(gave_up(before.count, &before.reason));
        }
        // A file that was final and is old by now: one more try.
        let count = before.map_or(1, |before| before.count.saturating_add(1));
        let attempt = Self { socket: socket.clone(), count };
        attempt.keep(NOT_SURVIVED);
        Verdict::Try(attempt)
    }

    /// It started, or ended as it was asked.
    pub fn well(&self) {
        if let Err(error) = FailedStarts::clear(&self.socket) {
            tracing::warn!("earlier failed starts can't be forgotten: {error}");
        }
    }

    /// It failed. What to tell whoever waits, and whether it was the last try.
    pub fn failed(&self, reason: &str) -> (String, bool) {
        self.keep(reason);
        let last = self.count >= MOST_FAILED_STARTS;
        (if last { gave_up(self.count, reason) } else { format!("fusiond can't start: {reason}") }, last)
    }

    fn keep(&self, reason: &str) {
        let failed = FailedStarts {
            count: self.count,
            reason: reason.to_owned(),
            at_unix_ms: now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        if let Err(error) = make_directory(&self.socket).and_then(|()| failed.write(&self.socket)) {
            tracing::warn!("a failed start can't be counted: {error}");
        }
    }
}

/// The socket's directory, in which is counted: a start that fails early may be the first one.
fn make_directory(socket: &SocketPath) -> io::Result<()> {
    let directory = socket.as_path().parent().unwrap_or(Path::new("/"));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

fn now() -> u64 {
    unix_ms(SystemTime::now())
}

fn gave_up(count: u32, reason: &str) -> String {
    format!("fusiond gave up after {count} failed starts: {reason}; mend that, then 'fusionctl start'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(socket: &SocketPath) -> Attempt {
        match Attempt::begin(socket) {
            Verdict::Try(attempt) => attempt,
            Verdict::GaveUp(reason) => panic!("{reason}"),
        }
    }

    #[test]
    fn it_gives_up_with_the_last_reason_until_it_is_told_to_start() {
        let place = tempfile::tempdir().unwrap();
        let socket = SocketPath::new(place.path().join("run/x.sock")).unwrap();
        for count in 1..=MOST_FAILED_STARTS {
            let (told, last) = attempt(&socket).failed("no disk");
            assert_eq!(last, count == MOST_FAILED_STARTS, "{told}");
            assert!(told.contains("no disk"), "{told}");
        }
        let Verdict::GaveUp(reason) = Attempt::begin(&socket) else { panic!("it tries again") };
        assert!(
            reason.contains("5 failed starts: no disk") && reason.contains("fusionctl start"),
            "{reason}"
        );
        FailedStarts::clear(&socket).unwrap();
        attempt(&socket).well();
        assert_eq!(FailedStarts::read(&socket), None);
    }

    #[test]
    fn a_start_that_was_killed_counts() {
        let place = tempfile::tempdir().unwrap();
        let socket = SocketPath::new(place.path().join("x.sock")).unwrap();
        for _ in 0..MOST_FAILED_STARTS {
            let _killed = attempt(&socket);
        }
        assert!(
            matches!(Attempt::begin(&socket), Verdict::GaveUp(reason) if reason.contains("without a word"))
        );
    }
}
