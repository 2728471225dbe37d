//! The daemon notices that its own program was replaced, so that whoever upgrades needn't restart it: Homebrew doesn't, and neither launchd nor
//! systemd looks.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

/// Between two looks at a program that changed: a copy may still be under way.
const SETTLING: Duration = Duration::from_millis(500);

/// What lies at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_ns: i64,
    executable: bool,
}

/// What two looks, one after the other, say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    /// The file that runs, or none: nothing to do until something changes.
    Nothing,
    /// It is still changing.
    Unsettled,
    /// Another program lies there, whole.
    Replaced,
}

fn finding(running: Look, first: Option<Look>, second: Option<Look>) -> Finding {
    let same_file = |look: Look| (look.device, look.inode) == (running.device, running.inode);
    match (first, second) {
        (None, None) => Finding::Nothing,
        (Some(first), Some(second)) if first == second && (same_file(first) || !first.executable) => {
            Finding::Nothing
        }
        (Some(first), Some(second)) if first == second => Finding::Replaced,
        _ => Finding::Unsettled,
    }
}

/// The program that this process was started from.
#[derive(Debug)]
pub struct OwnProgram {
    path: PathBuf,
    running: Look,
}

impl OwnProgram {
    /// The file behind the name that the program was called by: the one that a manager starts again. Not what the kernel tells, which goes with the
    /// old file when it is renamed. `None` if there is no such file.
    pub fn find() -> Option<Self> {
        let path = called(&std::env::args_os().next()?, std::env::var_os("PATH").as_deref())?;
        let running = look(&path)?;
        Some(Self { path, running })
    }

    /// Ends once another program lies there, whole. Nothing is asked while nothing changes.
    ///
    /// # Errors
    /// The directory can't be watched.
    pub async fn replaced(self) -> notify::Result<()> {
        let (changed, mut changes) = mpsc::channel(1);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| event.kind.is_access()) {
                return;
            }
            // A full channel holds the same news already.
            let _ = changed.try_send(());
        })?;
        watcher.watch(self.path.parent().unwrap_or(Path::new("/")), RecursiveMode::NonRecursive)?;
        // It may have changed before anybody watched.
        loop {
            match self.look_twice().await {
                Finding::Replaced => return Ok(()),
                Finding::Unsettled => {}
                Finding::Nothing => {
                    if changes.recv().await.is_none() {
                        return std::future::pending().await;
                    }
                }
            }
        }
    }

    async fn look_twice(&self) -> Finding {
        let first = look(&self.path);
        if first == Some(self.running) {
            return Finding::Nothing;
        }
        tokio::time::sleep(SETTLING).await;
        finding(self.running, first, look(&self.path))
    }
}

/// The file that a shell or a manager means by `name`, as an absolute path; links are followed later, at each look.
fn called(name: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    let name = Path::new(name);
    if name.components().count() > 1 {
        return std::path::absolute(name).ok();
    }
    std::env::split_paths(path?).map(|directory| directory.join(name)).find(|file| file.is_file())
}

fn look(path: &Path) -> Option<Look> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(Look {
        device: metadata.dev(),
        inode: metadata.ino(),
        bytes: metadata.len(),
        modified_ns: metadata.mtime_nsec().wrapping_add(metadata.mtime().wrapping_mul(1_000_000_000)),
        executable: metadata.is_file() && metadata.permissions().mode() & 0o100 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Look = Look { device: 1, inode: 7, bytes: 100, modified_ns: 5, executable: true };

    #[test]
    fn only_another_whole_program_counts() {
        let new = Look { inode: 8, ..OLD };
        let growing = Look { bytes: 50, ..new };
        let cases = [
            ((Some(OLD), Some(OLD)), Finding::Nothing),
            ((Some(Look { modified_ns: 9, ..OLD }), Some(Look { modified_ns: 9, ..OLD })), Finding::Nothing),
            ((None, None), Finding::Nothing),
            (
                (Some(Look { executable: false, ..new }), Some(Look { executable: false, ..new })),
                Finding::Nothing,
            ),
            ((None, Some(new)), Finding::Unsettled),
            ((Some(growing), Some(new)), Finding::Unsettled),
            ((Some(new), None), Finding::Unsettled),
            ((Some(new), Some(new)), Finding::Replaced),
        ];
        for ((first, second), expected) in cases {
            assert_eq!(finding(OLD, first, second), expected, "{first:?}, {second:?}");
        }
    }

    #[test]
    fn the_name_that_was_called_leads_to_the_file() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("fusiond");
        std::fs::write(&file, "").unwrap();
        assert_eq!(called(file.as_os_str(), None), Some(file.clone()));
        let path = std::env::join_paths(["/nonexistent".as_ref(), place.path()]).unwrap();
        assert_eq!(called(OsStr::new("fusiond"), Some(&path)), Some(file));
        assert_eq!(called(OsStr::new("fusiond"), None), None);
    }

    #[tokio::test]
    async fn a_rename_over_it_is_noticed_and_an_overwriting_copy_elsewhere_is_not() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("fusiond");
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        write(&path, "old");
        let own = OwnProgram { running: look(&path).unwrap(), path: path.clone() };
        let watching = tokio::spawn(own.replaced());
        write(&place.path().join("other"), "x");
        std::fs::rename(&path, place.path().join("old")).unwrap();
        tokio::time::sleep(3 * SETTLING).await;
        assert!(!watching.is_finished(), "a missing program is no new one");
        write(&place.path().join("fusiond.new"), "new");
        std::fs::rename(place.path().join("fusiond.new"), &path).unwrap();
        tokio::time::timeout(Duration::from_secs(60), watching).await.expect("noticed").unwrap().unwrap();
    }
}
