//! What `fusionctl` prints, held against files. `FUSION_UPDATE_GOLDEN=1 cargo test -p fusionctl --test golden` writes them
//! anew; look at the difference before committing it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod runner;
#[path = "../../sdk/tests/support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::{env, fs};

use runner::{run, run_in};
use support::{Fake, Script};

/// A daemon whose answers don't depend on the version of this build.
fn fake() -> Fake {
    Fake::start(Script { version: "1.2.3", failing: vec![1], ..Script::default() })
}

fn check(name: &str, fake: &Fake, text: &str) {
    let text = text.replace(&fake.path().display().to_string(), "/run/fusion/fusiond.sock");
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if env::var_os("FUSION_UPDATE_GOLDEN").is_some() {
        fs::write(&file, &text).unwrap();
    }
    let golden = fs::read_to_string(&file).unwrap_or_default();
    assert!(golden == text, "{name} has changed; it was:\n{golden}\nit is:\n{text}");
}

#[test]
fn json() {
    let fake = fake();
    let directory = support::directory();
    let file = directory.path().join("ratio.svg");
    let file = file.to_str().unwrap();
    let bundle = directory.path().join("m4-pro.fcals");
    let bundle = bundle.to_str().unwrap();
    let cases: [(&str, &[&str]); 28] = [
        ("status.json", &["status"]),
        ("config-show.json", &["config", "show"]),
        ("config-reload.json", &["config", "reload"]),
        ("log-level.json", &["log-level", "fusiond=debug"]),
        ("pause.json", &["pause", "--for", "30m"]),
        ("resume.json", &["resume"]),
        ("history.json", &["history", "512x896x4864", "--limit", "2"]),
        ("history-plot.json", &["history", "512x896x4864", "--limit", "1", "--plot", file]),
        ("calibrate.json", &["calibrate", "qwen2.5-0.5b"]),
        ("ratios-list.json", &["ratios", "list"]),
        ("ratios-get.json", &["ratios", "get", "512x896x4864"]),
        ("ratios-get-unknown.json", &["ratios", "get", "1x2x3", "--format", "q4/64", "--layout", "kn"]),
        ("ratios-explain.json", &["ratios", "explain", "512x896x896"]),
        ("ratios-plot.json", &["ratios", "plot", "512x896x896", "-o", file]),
        ("gates-list.json", &["gates", "list"]),
        ("gates-show.json", &["gates", "show", "a prefill", "--rows", "600"]),
        ("gates-reset.json", &["gates", "reset", "a prefill", "--yes"]),
        ("gates-lock.json", &["gates", "lock", "a prefill", "eager", "--rows", "600"]),
        ("gates-unlock.json", &["gates", "unlock", "a block"]),
        ("clients.json", &["clients"]),
        ("clients-layers.json", &["clients", "--layers"]),
        ("models-show.json", &["models", "show", "qwen2.5-0.5b"]),
        ("store-verify.json", &["store", "verify"]),
        ("store-rebuild.json", &["store", "rebuild", "--yes"]),
        ("store-export.json", &["store", "export", "/nowhere/records"]),
        ("export.json", &["export", bundle]),
        ("import.json", &["import", bundle, "--as-prior"]),
        ("stop.json", &["stop"]),
    ];
    for (name, arguments) in cases {
        let run = run(&fake.path(), &[arguments, &["--json", "-q"]].concat());
        check(
            name,
            &fake,
            &run.stdout.replace(file, "/nowhere/ratio.svg").replace(bundle, "/nowhere/m4-pro.fcals"),
        );
        // The documentation knows every schema.
        let schema = run.stdout.lines().nth(1).unwrap().split('"').nth(3).unwrap().to_owned();
        assert!(include_str!("../JSON.md").contains(&format!("`{schema}`")), "JSON.md lacks {schema}");
    }
}

#[test]
fn text() {
    let fake = fake();
    let cases: [(&str, u16, &[&str]); 23] = [
        ("calibrate-80.txt", 80, &["calibrate", "qwen2.5-0.5b"]),
        ("calibrate-120.txt", 120, &["calibrate", "qwen2.5-0.5b"]),
        ("ratios-list-80.txt", 80, &["ratios", "list"]),
        ("ratios-list-120.txt", 120, &["ratios", "list"]),
        ("ratios-get.txt", 120, &["ratios", "get", "512x896x4864"]),
        ("ratios-explain-120.txt", 120, &["ratios", "explain", "512x896x4864"]),
        ("ratios-explain-80.txt", 80, &["ratios", "explain", "512x896x4864"]),
        ("gates-list-80.txt", 80, &["gates", "list"]),
        ("gates-list-120.txt", 120, &["gates", "list"]),
        ("gates-show-80.txt", 80, &["gates", "show", "a prefill"]),
        ("gates-show-120.txt", 120, &["gates", "show", "a block"]),
        ("clients-80.txt", 80, &["clients"]),
        ("clients-150.txt", 150, &["clients"]),
        ("clients-layers.txt", 120, &["clients", "--layers"]),
        ("models-show.txt", 80, &["models", "show", "qwen2.5-0.5b"]),
        ("store-verify.txt", 120, &["store", "verify"]),
        ("history-80.txt", 80, &["history", "512x896x4864"]),
        ("history-120.txt", 120, &["history", "512x896x4864"]),
        ("history-newest.txt", 120, &["history", "512x896x4864", "--limit", "1"]),
        ("config-show.txt", 80, &["config", "show"]),
        ("metrics.txt", 80, &["metrics"]),
        ("status-80.txt", 80, &["status"]),
        ("status-120.txt", 120, &["status"]),
    ];
    for (name, columns, arguments) in cases {
        let run = run_in(&fake.path(), columns, arguments);
        let widest = run.stdout.lines().map(|line| line.chars().count()).max().unwrap();
        // The temporary socket's path is the test's, not ours.
        assert!(
            name.starts_with("status") || name.starts_with("metrics") || widest <= columns.into(),
            "{name}: {widest}\n{}",
            run.stdout
        );
        check(name, &fake, &without_clock(&run.stdout));
    }
}

#[test]
fn an_older_daemon_has_a_status_all_the_same() {
    let script = Script { version: "1.2.3", summary: None, ..Script::old() };
    let fake = Fake::start(script);
    check("status-old.json", &fake, &run(&fake.path(), &["status", "--json"]).stdout);
    check("status-old.txt", &fake, &without_clock(&run_in(&fake.path(), 120, &["status"]).stdout));
    check("metrics-old.txt", &fake, &run(&fake.path(), &["metrics"]).stdout);
}

/// Times that this very run took.
fn without_clock(text: &str) -> String {
    let line = |line: &str| {
        ["of machine time in ", ", up "]
            .iter()
            .find_map(|mark| line.find(mark).map(|at| format!("{}(a while)", &line[..at + mark.len()])))
            .unwrap_or_else(|| line.to_owned())
    };
    text.lines().map(|text| line(text) + "\n").collect()
}
