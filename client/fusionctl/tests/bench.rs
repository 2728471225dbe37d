//! `fusionctl bench`, with a script in the place of Python that prints what a measurement would.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod runner;
#[path = "../../sdk/tests/support/mod.rs"]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use runner::{mistakes, run};
use support::{Fake, Script};
use tempfile::TempDir;

/// A program that keeps its arguments and runs `body`.
fn python(folder: &TempDir, body: &str) -> PathBuf {
    let path = folder.path().join("python");
    let kept = folder.path().join("arguments");
    fs::write(&path, format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > '{}'\n{body}\n", kept.display())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// What three rounds of one prompt print; the tokens part as `difference` says.
fn printed(folder: &TempDir, difference: &str) -> String {
    let round = r#"{"stock_first": true,
        "stock": {"first_token_ms": 1500.0, "decode_tokens_per_second": 50.0},
        "accelerated": {"first_token_ms": 1200.0, "decode_tokens_per_second": 49.9, "chunks": {"split": 1, "eager": 0}},
        "stock_again": {"first_token_ms": 1515.0, "decode_tokens_per_second": 50.0},
        "decode_steps_ms": [[20.0, 20.4, 20.4, 20.0], [20.0, 20.4, 20.4, 20.0]]}"#;
    let document = format!(
        r#"{{"schema": "fusiond.ttft/1", "model": "a model", "pair": "development", "units": "two units", "basis": "attached",
            "lengths": [{{"prompt_tokens": 2048, "rounds": [{round}, {round}, {round}], "largest_error": 1e-5,
            "first_difference": {difference}, "transcripts": {{}}}}]}}"#
    );
    let path = folder.path().join("printed.json");
    fs::write(&path, document).unwrap();
    format!("cat '{}'", path.display())
}

fn ttft<'a>(python: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let fixed = ["bench", "ttft", "--model", "a model", "--python", python.to_str().unwrap()];
    [&fixed, more].concat()
}

#[test]
fn what_was_measured_is_told_with_intervals() {
    let (fake, folder) = (Fake::start(Script::default()), TempDir::new().unwrap());
    let python = python(&folder, &printed(&folder, "null"));
    let file = folder.path().join("ttft.json");
    let more = ["--prompt-tokens", "512,2048", "--rounds", "3", "-o", file.to_str().unwrap()];
    let run = run(&fake.path(), &ttft(&python, &more));
    assert_eq!(run.code, 0, "{}", run.stderr);
    for text in [
        "2048",
        "1500.0",
        "1200.0",
        "1.250 [",
        "0.990 [",
        "0.980 [",
        "decode pairs",
        "3 of 3",
        "the same",
        "says nothing about a Mac",
    ] {
        assert!(run.stdout.contains(text), "{text}: {}", run.stdout);
    }
    let document: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(document["schema"], "fusionctl.bench.ttft/1");
    assert_eq!(document["measured"]["lengths"][0]["rounds"].as_array().unwrap().len(), 3);
    assert_eq!(document["lengths"][0]["split_chunks"], 3);
    assert_eq!(document["lengths"][0]["decode_pairs"], 6);
    assert!(
        (document["lengths"][0]["self_comparison"]["decode"]["value"].as_f64().unwrap() - 1.0).abs() < 1e-9
    );
    assert!(document["daemon"]["before"]["version"].is_string() && document["daemon"]["after"].is_object());
    let arguments = fs::read_to_string(folder.path().join("arguments")).unwrap();
    let expected = format!(
        "-m\nfusiond.mlx_lm.ttft\n--model\na model\n--prompt-tokens\n512,2048\n--rounds\n3\n--tokens\n32\n--socket\n{}\n",
        fake.path().display()
    );
    assert_eq!(arguments, expected);
}

#[test]
fn other_tokens_are_a_failure_unless_they_are_rounding() {
    let folder = TempDir::new().unwrap();
    let nobody = folder.path().join("none.sock");
    let at = |gap: &str| format!(r#"{{"step": 4, "stock_token": 7, "other_token": 8, "gap": {gap}}}"#);
    let rounding = python(&folder, &printed(&folder, &at("1.5e-5")));
    let near = run(&nobody, &ttft(&rounding, &[]));
    assert_eq!(near.code, 0, "{}", near.stderr);
    assert!(near.stdout.contains("differ from token 5 on: gap 1.5e-5, error 1.0e-5"), "{}", near.stdout);
    assert!(near.stderr.contains("no daemon answers"), "{}", near.stderr);
    let wrong = python(&folder, &printed(&folder, &at("0.5")));
    let far = run(&nobody, &ttft(&wrong, &["--json"]));
    assert_eq!(far.code, 1, "{}", far.stderr);
    assert!(far.stderr.contains("a prompt of 2048 differ by more than rounding"), "{}", far.stderr);
    assert!(far.stdout.contains("\"before\": null"), "{}", far.stdout);
}

#[test]
fn a_python_that_can_not_is_named_with_what_it_needs() {
    let folder = TempDir::new().unwrap();
    let nobody = folder.path().join("none.sock");
    for (body, code, text) in [
        ("exit 1", 78, "it needs fusiond-client and mlx-lm"),
        ("echo hello", 65, "printed no JSON"),
        ("echo '{}'", 65, "printed something else"),
    ] {
        let python = python(&folder, body);
        let run = run(&nobody, &ttft(&python, &[]));
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{body}: {}", run.stderr);
        assert!(run.stderr.contains(text), "{body}: {}", run.stderr);
    }
    let absent = folder.path().join("absent");
    let run = run(&nobody, &ttft(&absent, &[]));
    assert!(run.code == 78 && run.stderr.contains("name a Python with --python"), "{}", run.stderr);
}

#[test]
fn mistakes_on_the_command_line_are_explained() {
    let nobody = TempDir::new().unwrap().path().join("none.sock");
    mistakes(
        &nobody,
        &[
            (&["bench", "ttft"], "--model"),
            (&["bench", "ttft", "--model", "m", "--prompt-tokens", "1"], "1"),
            (&["bench", "ttft", "--model", "m", "--rounds", "0"], "0"),
            (&["bench", "ttft", "--model", "m", "--prompt-tokens", "a few"], "a few"),
        ],
    );
}
