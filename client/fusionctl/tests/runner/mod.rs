//! Runs the built `fusionctl`, against a scripted daemon where there is one.

// Each test binary uses another part of this.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What a run left.
#[derive(Debug)]
pub struct Run {
    /// The exit code.
    pub code: i32,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// `fusionctl` in an environment of its own.
pub fn command(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fusionctl"));
    command.args(arguments).env_clear().env("FUSION_SOCKET", socket).env("TZ", "UTC").stdin(Stdio::null());
    command
}

/// Runs `fusionctl`.
pub fn run(socket: &Path, arguments: &[&str]) -> Run {
    command(socket, arguments).output().unwrap().into()
}

/// Runs `fusionctl` as on a screen with so many columns.
pub fn run_in(socket: &Path, columns: u16, arguments: &[&str]) -> Run {
    command(socket, arguments).env("COLUMNS", columns.to_string()).output().unwrap().into()
}

/// Each of these is a mistake on the command line: exit code 2, nothing on stdout, and words that help.
pub fn mistakes(socket: &Path, cases: &[(&[&str], &str)]) {
    for (arguments, text) in cases {
        let run = run(socket, arguments);
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(text), "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{arguments:?}");
    }
}

/// A copy of a program, made by another process: while this one held it open for writing, a child that another test starts would inherit that, and nobody could run the copy.
pub fn copy_program(from: impl AsRef<Path>, to: &Path) {
    assert!(Command::new("cp").arg(from.as_ref()).arg(to).status().unwrap().success());
}
