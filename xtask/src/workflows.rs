//! What the workflows call must exist: a workflow that nobody can run here is at least held against the rest of the checkout.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use clap::CommandFactory as _;
use yaml_rust2::{Yaml, YamlLoader};

use crate::Cli;

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Every file of steps: its name, and what it holds.
fn files() -> Vec<(String, Yaml)> {
    let mut paths = vec![root().join(".github/build-setup.yml")];
    let workflows = fs::read_dir(root().join(".github/workflows")).unwrap();
    paths.extend(workflows.map(|entry| entry.unwrap().path()));
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let documents = YamlLoader::load_from_str(&fs::read_to_string(&path).unwrap());
        let mut documents = documents.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(documents.len(), 1, "{name}");
        (name, documents.remove(0))
    };
    paths.into_iter().map(read).collect()
}

/// Every text under the key `run`, however deep.
fn commands(yaml: &Yaml) -> Vec<String> {
    match yaml {
        Yaml::Array(items) => items.iter().flat_map(commands).collect(),
        Yaml::Hash(entries) => entries
            .iter()
            .flat_map(|(key, value)| match (key.as_str(), value.as_str()) {
                (Some("run"), Some(text)) => vec![text.to_owned()],
                _ => commands(value),
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// What follows `command` where it is called in any of the files.
fn called(command: &str) -> BTreeSet<String> {
    let texts: Vec<String> = files().iter().flat_map(|(_, yaml)| commands(yaml)).collect();
    let lines = texts.iter().flat_map(|text| text.lines()).flat_map(|line| line.split("&&"));
    let calls = lines.filter_map(|line| line.trim().strip_prefix(command)?.strip_prefix(' '));
    calls.filter_map(|rest| rest.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn every_make_target_exists() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let targets = called("make");
    for needed in ["setup", "test", "run"] {
        assert!(targets.contains(needed), "no workflow calls 'make {needed}'");
    }
    for target in targets {
        assert!(
            makefile.lines().any(|line| line.starts_with(&format!("{target}:"))),
            "there is no target '{target}'"
        );
    }
}

#[test]
fn every_chore_exists() {
    let chores = called("cargo xtask");
    assert!(chores.contains("package"), "{chores:?}");
    for chore in chores {
        assert!(Cli::command().find_subcommand(&chore).is_some(), "there is no chore '{chore}'");
    }
}

#[test]
fn linux_and_two_systems_of_apple_chips_are_checked() {
    let (_, ci) = files().into_iter().find(|(name, _)| name == "ci.yml").unwrap();
    let jobs = &ci["jobs"];
    assert!(jobs["linux"]["runs-on"].as_str().unwrap().starts_with("ubuntu-"));
    let macos = &jobs["macos"];
    let systems: Vec<&str> =
        macos["strategy"]["matrix"]["os"].as_vec().unwrap().iter().map(|os| os.as_str().unwrap()).collect();
    assert_eq!(systems, ["macos-14", "macos-15"]);
    assert!(commands(macos).iter().any(|run| run == "make run"), "nothing is run on an Apple chip");
}

#[test]
fn wheels_are_built_for_three_systems_and_tried() {
    let (_, wheels) = files().into_iter().find(|(name, _)| name == "wheels.yml").unwrap();
    let build = &wheels["jobs"]["build"];
    let rows = build["strategy"]["matrix"]["include"].as_vec().unwrap();
    let targets: Vec<&str> = rows.iter().map(|row| row["target"].as_str().unwrap()).collect();
    assert_eq!(targets, ["aarch64-apple-darwin", "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]);
    let builder = build["steps"].as_vec().unwrap().iter().find(|step| step["name"].as_str() == Some("Build"));
    let arguments = builder.unwrap()["with"]["args"].as_str().unwrap();
    let manifest = arguments.split_whitespace().skip_while(|word| *word != "--manifest-path").nth(1).unwrap();
    assert!(root().join(manifest).is_file(), "there is no {manifest}");
    let script = "client/python/tests/smoke.py";
    for job in ["build", "pip"] {
        let tried = commands(&wheels["jobs"][job]).iter().any(|text| text.contains(script));
        assert!(tried && root().join(script).is_file(), "{job} doesn't try what it built");
    }
}
