//! launchd, through `launchctl`.
//!
//! What it does that one wouldn't expect, from issues of programs that met it, is the reason for most of this file:
//!
//! * `bootout` returns before the service is gone; `bootstrap` fails with 5 until then. So `print` is asked until it says 113.
//! * `kickstart` runs the property list that was bootstrapped, whatever the file says by now. So new definitions are always booted out and
//!   bootstrapped.
//! * A service that was disabled once stays so over a new installation. So it is enabled before each bootstrap.
//! * The graphical session's domain doesn't exist over ssh on a Mac where nobody is logged in (112, 125); the user's own does. A service may have been
//!   bootstrapped in either, so both are looked at.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::ManagerState;
use crate::LABEL;
use crate::checkpoint::Checkpoints;
use crate::error::ServiceError;
use crate::tool::{Ended, Tool};

/// ESRCH, by `bootout`.
const NO_SUCH_PROCESS: i32 = 3;
/// EIO.
const INPUT_OUTPUT: i32 = 5;
/// EINPROGRESS, by `bootout`: it goes on by itself.
const IN_PROGRESS: i32 = 36;
/// EALREADY.
const ALREADY: i32 = 37;
/// "Could not find specified domain", of older systems.
const NO_DOMAIN: i32 = 112;
/// "Could not find specified service".
const NOT_FOUND: i32 = 113;
/// "Domain does not support specified action": there is none for this session.
const WRONG_DOMAIN: i32 = 125;

/// What an exit code of `launchctl` means, and what to do.
fn meaning(code: i32) -> &'static str {
    match code {
        NO_SUCH_PROCESS => "launchd doesn't run it",
        INPUT_OUTPUT => {
            "an input/output error: launchd still ends the old one, or can't use the property list ('plutil -lint' checks it)"
        }
        IN_PROGRESS => "launchd is still at it: run the command again in a moment",
        ALREADY => "launchd has it already, or is at it: run the command again in a moment",
        NO_DOMAIN | WRONG_DOMAIN => {
            "there is no such session: log in on the screen once, or over ssh as the same user"
        }
        NOT_FOUND => "launchd doesn't know it: 'fusionctl install' registers it",
        119 => "the service is disabled: 'fusionctl install' enables it",
        _ => "which 'launchctl error' explains",
    }
}

/// How long launchd is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Between two questions whether a service is gone.
    pub interval: Duration,
    /// Until that is an error.
    pub limit: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        // The daemon has 10 s to end (ExitTimeOut); others saw launchd take up to 15.
        Self { interval: Duration::from_millis(100), limit: Duration::from_secs(30) }
    }
}

/// Waits before the tries of a bootstrap; the last one is repeated.
const RETRIES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// What to do after a `bootstrap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterBootstrap {
    /// The service is loaded.
    Done,
    /// Its predecessor is still on its way out.
    TryAgain,
    /// Somebody else loaded one meanwhile, maybe from an older file.
    BootOut,
    /// This session has no such domain.
    OtherDomain,
    /// Nothing more can be done.
    Fail,
}

fn after_bootstrap(code: Option<i32>) -> AfterBootstrap {
    match code {
        Some(0) => AfterBootstrap::Done,
        Some(INPUT_OUTPUT) => AfterBootstrap::TryAgain,
        Some(ALREADY) => AfterBootstrap::BootOut,
        Some(NO_DOMAIN | WRONG_DOMAIN) => AfterBootstrap::OtherDomain,
        _ => AfterBootstrap::Fail,
    }
}

/// launchd of this user.
#[derive(Debug, Clone)]
pub struct Launchctl {
    tool: Tool,
    /// The graphical session's domain, and the user's own.
    domains: [String; 2],
    patience: Patience,
}

impl Launchctl {
    /// Speaks through `program`.
    pub fn new(program: PathBuf, patience: Patience) -> Self {
        let user = rustix::process::getuid().as_raw();
        let domains = [format!("gui/{user}"), format!("user/{user}")];
        Self { tool: Tool::new(program, meaning), domains, patience }
    }

    pub(super) fn state(&self) -> Result<ManagerState, ServiceError> {
        Ok(self.loaded()?.map_or(ManagerState::NotLoaded, |(_, ended)| running(&ended.stdout)))
    }

    /// Boots out whatever is loaded, and bootstraps `property_list`.
    pub(super) fn register(
        &self,
        property_list: &Path,
        checkpoints: &Checkpoints,
    ) -> Result<(), ServiceError> {
        let start = Instant::now();
        let mut waits = RETRIES.iter();
        let mut domains = self.domains.iter();
        let mut domain = domains.next().unwrap_or(&self.domains[0]);
        self.unload(checkpoints)?;
        loop {
            std::thread::sleep(*waits.next().unwrap_or(&RETRIES[RETRIES.len() - 1]));
            let ended = self.bootstrap(domain, property_list)?;
            checkpoints.pass();
            let next = after_bootstrap(ended.code);
            match (next, domains.as_slice()) {
                (AfterBootstrap::Done, _) => return Ok(()),
                (AfterBootstrap::OtherDomain, [other, ..]) => {
                    domain = other;
                    domains.next();
                }
                (AfterBootstrap::TryAgain, _) if start.elapsed() < self.patience.limit => {}
                (AfterBootstrap::BootOut, _) if start.elapsed() < self.patience.limit => {
                    self.unload(checkpoints)?;
                }
                _ => return Err(ended.failure()),
            }
        }
    }

    fn bootstrap(&self, domain: &str, property_list: &Path) -> Result<Ended, ServiceError> {
        let service = format!("{domain}/{LABEL}");
        let enabled = self.tool.run(&["enable", &service])?;
        if after_bootstrap(enabled.code) == AfterBootstrap::OtherDomain {
            return Ok(enabled);
        }
        self.tool.run(&["bootstrap".as_ref(), domain.as_ref(), property_list.as_os_str()])
    }

    /// Boots the service out, wherever it is loaded, and waits until it is gone.
    pub(super) fn unload(&self, checkpoints: &Checkpoints) -> Result<(), ServiceError> {
        let start = Instant::now();
        let mut asked = false;
        while let Some((service, _)) = self.loaded()? {
            if !asked {
                self.tool.expect(&["bootout", &service], &[0, NO_SUCH_PROCESS, IN_PROGRESS, NOT_FOUND])?;
                asked = true;
                checkpoints.pass();
            } else if start.elapsed() > self.patience.limit {
                return Err(ServiceError::StillLoaded { service, seconds: self.patience.limit.as_secs() });
            } else {
                std::thread::sleep(self.patience.interval);
            }
        }
        Ok(())
    }

    /// Runs the loaded service. Without `-k`: one that runs isn't killed.
    pub(super) fn kickstart(&self) -> Result<(), ServiceError> {
        match self.loaded()? {
            Some((service, _)) => self.tool.expect(&["kickstart", &service], &[0, ALREADY]).map(drop),
            None => Err(ServiceError::NotInstalled(LABEL)),
        }
    }

    /// The service where it is loaded, and what `print` says of it.
    fn loaded(&self) -> Result<Option<(String, Ended)>, ServiceError> {
        for domain in &self.domains {
            let service = format!("{domain}/{LABEL}");
            let ended = self.tool.run(&["print", &service])?;
            match ended.code {
                Some(0) => return Ok(Some((service, ended))),
                Some(NOT_FOUND | NO_SUCH_PROCESS | NO_DOMAIN | WRONG_DOMAIN) => {}
                _ => return Err(ended.failure()),
            }
        }
        Ok(None)
    }
}

/// What the text of `print` says. It is made for people and without promises, so only the plainest lines are read: "state = running", "pid = 4242",
/// "last exit code = 78: EX_CONFIG".
fn running(text: &str) -> ManagerState {
    // The service's own lines come before those of its endpoints and sockets.
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.trim().strip_prefix(name)?.trim_start().strip_prefix('=').map(str::trim))
    };
    let pid = value("pid").and_then(|pid| pid.parse().ok());
    if pid.is_some() || value("state") == Some("running") {
        return ManagerState::Running { pid };
    }
    let code = value("last exit code").and_then(|said| said.split(':').next()?.parse().ok());
    match code {
        None | Some(0) => ManagerState::Waiting,
        failed => ManagerState::Failed { code: failed },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn print_is_read_for_its_plainest_lines() {
        let runs = "gui/501/dev.fusion.fusiond = {\n\tactive count = 2\n\tstate = running\n\tpid = 4242\n\tsockets = {\n\t\tstate = 1\n\t}\n}";
        assert_eq!(running(runs), ManagerState::Running { pid: Some(4242) });
        assert_eq!(running("x = {\n\tstate = not running\n\truns = 3\n}"), ManagerState::Waiting);
        assert_eq!(running("x = {\n\tstate = running\n}"), ManagerState::Running { pid: None });
        assert_eq!(running(""), ManagerState::Waiting);
        let ended =
            |how: &str| running(&format!("x = {{\n\tstate = not running\n\tlast exit code = {how}\n}}"));
        assert_eq!(ended("(never exited)"), ManagerState::Waiting);
        assert_eq!(ended("0"), ManagerState::Waiting);
        assert_eq!(ended("78: EX_CONFIG"), ManagerState::Failed { code: Some(78) });
    }

    #[test]
    fn every_end_of_a_bootstrap_has_its_answer() {
        assert_eq!(after_bootstrap(Some(0)), AfterBootstrap::Done);
        assert_eq!(after_bootstrap(Some(5)), AfterBootstrap::TryAgain);
        assert_eq!(after_bootstrap(Some(37)), AfterBootstrap::BootOut);
        for code in [112, 125] {
            assert_eq!(after_bootstrap(Some(code)), AfterBootstrap::OtherDomain);
        }
        for code in [Some(1), Some(113), None] {
            assert_eq!(after_bootstrap(code), AfterBootstrap::Fail);
        }
    }
}
