//! `cargo xtask fresh-account`: an installation as a new user lives through it, with systemd's real manager of a user.
//!
//! The manager runs in namespaces of its own, so that this machine's is left alone and every process goes when the script ends. It needs `systemd`
//! and `unshare`, and root or user namespaces; where one is missing nothing is tried, and that is said.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::{process, programs, workspace};

const SCRIPT: &str = "launchd/tests/fresh_account.sh";

/// Builds the programs and lives through it.
///
/// # Errors
/// If a step does not do what it should: the script says which.
pub(crate) fn run() -> Result<()> {
    let root = workspace::root()?;
    let Some(namespaces) = namespaces() else {
        eprintln!("SKIPPED: a fresh account needs systemd (Linux), unshare, and root or user namespaces");
        return Ok(());
    };
    let programs = programs::tested()?;
    let place = std::env::temp_dir().join(format!("fusion-account-{}", std::process::id()));
    std::fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let mut script = Command::new("unshare");
    script.args(namespaces).arg("sh").arg(root.join(SCRIPT)).arg(programs).arg(&place);
    let lived = process::show(script.current_dir(&place), "living through an installation");
    // What a failed run leaves is there to be looked at.
    if lived.is_ok() {
        std::fs::remove_dir_all(&place).with_context(|| format!("cannot remove {}", place.display()))?;
    }
    lived
}

/// The options of `unshare` that work here.
fn namespaces() -> Option<&'static [&'static str]> {
    const ROOT: &[&str] = &["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    const USER: &[&str] = &["--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let manager =
        ["/lib/systemd/systemd", "/usr/lib/systemd/systemd"].iter().any(|file| Path::new(file).exists());
    let works = |options: &&&[&str]| {
        let mut tried = Command::new("unshare");
        tried.args(**options).args(["mount", "-t", "tmpfs", "tmpfs", "/run"]);
        tried.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    [ROOT, USER].iter().find(works).copied().filter(|_| manager)
}
