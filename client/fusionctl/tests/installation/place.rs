//! A home of its own, with programs to install and a launchd that is played.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::launchd::FakeLaunchd;
use crate::runner::{self, Run};

/// A home, programs to install, and a launchd.
pub struct Place {
    pub directory: TempDir,
    pub launchd: FakeLaunchd,
}

/// What there is.
#[derive(Debug, PartialEq)]
pub struct State {
    /// By path from the home; a directory has no content.
    pub files: BTreeMap<PathBuf, Option<String>>,
    /// The service that launchd holds, and its property list.
    pub held: Option<(String, String)>,
}

impl Place {
    pub fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap(), launchd: FakeLaunchd::new() };
        place.build("1");
        fs::create_dir(place.home()).unwrap();
        // Something of the user's that must outlive everything.
        fs::create_dir(place.home().join("Library")).unwrap();
        fs::write(place.home().join("Library/notes"), "mine").unwrap();
        place
    }

    pub fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home().join(name)
    }

    /// Programs of a version in a folder that a compiler might have written.
    pub fn build(&self, version: &str) {
        let folder = self.directory.path().join("build");
        fs::create_dir_all(&folder).unwrap();
        for name in ["fusiond", "fusion-worker", "fusionctl", "mlx.metallib"] {
            fs::write(folder.join(name), format!("#!/bin/sh\n# {name} {version}\n")).unwrap();
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// "~/" at the beginning of an argument is the home.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let home = |argument: &&str| match argument.strip_prefix("~/") {
            Some(name) => self.path(name).display().to_string(),
            None => (*argument).to_owned(),
        };
        let arguments: Vec<String> = arguments.iter().map(home).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = runner::command(Path::new(""), &arguments);
        command.env("HOME", self.home()).env("PATH", std::env::var_os("PATH").unwrap());
        command.env("FUSION_SERVICE_MANAGER", self.launchd.name());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Run {
        self.command(arguments).output().unwrap().into()
    }

    pub fn fine(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!(run.code, 0, "{arguments:?}: {}", run.stderr);
        run.stdout
    }

    pub fn install(&self, more: &[&str]) -> String {
        let build = self.directory.path().join("build");
        // launchd is played, so no daemon comes.
        self.fine(&[&["install", "--no-wait", "--from", build.to_str().unwrap()], more].concat())
    }

    /// Every file with its content, every directory, and what launchd holds; told in the same words for every place.
    pub fn everything(&self) -> State {
        let own = self.directory.path().to_str().unwrap();
        let mut files = BTreeMap::new();
        let mut folders = vec![self.home()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(self.home()).unwrap().to_owned();
                if path.is_dir() {
                    files.insert(name, None);
                    folders.push(path);
                } else {
                    files.insert(name, Some(fs::read_to_string(&path).unwrap().replace(own, "/place")));
                }
            }
        }
        let held = self.launchd.loaded().map(|(service, text)| (service, text.replace(own, "/place")));
        State { files, held }
    }

    pub fn from(&self, arguments: &[&str]) -> Vec<String> {
        match arguments.first() {
            Some(&"install") => {
                let build = self.directory.path().join("build").display().to_string();
                vec!["--no-wait".to_owned(), "--from".to_owned(), build]
            }
            _ => Vec::new(),
        }
    }

    pub fn with_build(&self, arguments: &[&str]) {
        let from = self.from(arguments);
        let from: Vec<_> = from.iter().map(String::as_str).collect();
        self.fine(&[arguments, &from].concat());
    }

    /// What a daemon leaves where it is asked.
    pub fn use_socket(&self, name: &str) {
        fs::write(self.path(&format!("{name}.lock")), "").unwrap();
        fs::write(self.path(&format!("{name}.failures")), "{}").unwrap();
        drop(UnixListener::bind(self.path(&format!("{name}.sock"))).unwrap());
    }

    /// What lies where programs are run from is whole: of one version or the other.
    pub fn programs_are_whole(&self) {
        for name in ["fusiond", "fusion-worker", "fusionctl", "mlx.metallib"] {
            let path = self.path(".fusion/bin").join(name);
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let versions = ["1", "2"].map(|version| format!("#!/bin/sh\n# {name} {version}\n"));
            assert!(versions.contains(&text), "{}: {text}", path.display());
        }
    }
}
