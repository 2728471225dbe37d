//! A place with a fake launchd.

// Each test binary uses another part of this.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fusion_service::manager::Manager;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A `launchctl` that remembers in a directory of its own: tests/fake/launchctl tells how it behaves.
pub struct FakeLaunchd {
    directory: TempDir,
}

impl FakeLaunchd {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Whichever crate's test this is.
        let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let fake =
            folders.map(|folder| folder.join("launchd/tests/fake/launchctl")).find(|file| file.exists());
        let script = format!(
            "#!/bin/sh\nFAKE_LAUNCHD='{}' exec python3 -I -S '{}' \"$@\"\n",
            directory.path().display(),
            fake.unwrap().display()
        );
        let program = directory.path().join("launchctl");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let fake = Self { directory };
        let user = user();
        fake.save(&json!({
            "domains": [format!("gui/{user}"), format!("user/{user}")],
            "services": {}, "disabled": [], "ran": [], "lingers": 2, "next": {},
        }));
        fake
    }

    pub fn program(&self) -> PathBuf {
        self.directory.path().join("launchctl")
    }

    /// As the environment variable names it.
    pub fn name(&self) -> String {
        format!("launchd:{}", self.program().display())
    }

    pub fn manager(&self) -> Manager {
        self.name().parse().unwrap()
    }

    pub fn state(&self) -> Value {
        serde_json::from_slice(&fs::read(self.directory.path().join("state.json")).unwrap()).unwrap()
    }

    pub fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut state = self.state();
        change(&mut state);
        self.save(&state);
    }

    fn save(&self, state: &Value) {
        fs::write(self.directory.path().join("state.json"), state.to_string()).unwrap();
    }

    /// What it was called with so far.
    pub fn calls(&self) -> Vec<String> {
        let log = fs::read_to_string(self.directory.path().join("calls.log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// The property list that is loaded, and where; `None` if none is.
    pub fn loaded(&self) -> Option<(String, String)> {
        let state = self.state();
        let services = state["services"].as_object().unwrap();
        assert!(services.len() <= 1, "one service in two domains: {services:?}");
        let (service, entry) = services.iter().next()?;
        assert!(entry["lingers"].is_null(), "it is still on its way out");
        Some((service.clone(), entry["plist"].as_str().unwrap().to_owned()))
    }

    /// The property list that another program's service of the same name goes by, should it win a race.
    pub fn old_property_list(&self, text: &str) {
        fs::write(self.directory.path().join("old.plist"), text).unwrap();
    }
}

pub fn user() -> u32 {
    rustix::process::getuid().as_raw()
}
