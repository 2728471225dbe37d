//! What must be on the machine before we start: each missing thing is one line with its remedy.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use anyhow::{Result, bail};

use super::pip;

/// Something that is missing, and the command that gets it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Missing {
    what: &'static str,
    remedy: &'static str,
}

impl Missing {
    pub(super) const fn new(what: &'static str, remedy: &'static str) -> Self {
        Self { what, remedy }
    }
}

/// Fails if anything is missing.
///
/// # Errors
/// One line for each missing thing.
pub(super) fn report(missing: impl IntoIterator<Item = Missing>) -> Result<()> {
    let lines: Vec<String> =
        missing.into_iter().map(|m| format!("missing: {}; get it with: {}", m.what, m.remedy)).collect();
    if lines.is_empty() {
        return Ok(());
    }
    bail!("this machine lacks something that the set-up needs\n{}", lines.join("\n"))
}

/// What Linux lacks.
pub(super) fn linux() -> Vec<Missing> {
    cpp20().into_iter().chain(python()).collect()
}

/// Python with pip; its `venv` module, which Debian packages separately, is not needed.
pub(super) fn python() -> Option<Missing> {
    if !succeeds(pip::python().arg("--version")) {
        return Some(Missing::new("python3", "apt-get install python3 python3-pip"));
    }
    let without_pip = Missing::new("pip for python3", "apt-get install python3-pip");
    (!succeeds(pip::python().args(["-m", "pip", "--version"]))).then_some(without_pip)
}

fn cpp20() -> Option<Missing> {
    if !succeeds(Command::new("g++").arg("--version")) {
        return Some(Missing::new("a C++ compiler (g++)", "apt-get install g++"));
    }
    let old =
        Missing::new("C++20 in g++ (version 11 or newer)", "apt-get install g++-12, and make it the g++");
    let probe = "#include <span>\n#include <concepts>\ntemplate <std::integral T> T f(std::span<T> s) { return s[0]; }\n";
    (!compiles(probe)).then_some(old)
}

fn compiles(source: &str) -> bool {
    let compiler = Command::new("g++")
        .args(["-std=c++20", "-fsyntax-only", "-x", "c++", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut compiler) = compiler else { return false };
    let written = compiler.stdin.take().is_some_and(|mut stdin| stdin.write_all(source.as_bytes()).is_ok());
    compiler.wait().is_ok_and(|status| status.success()) && written
}

/// Whether a program is there and ends well. Its output is not shown.
pub(super) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_missing_is_fine() {
        report([]).unwrap();
    }

    #[test]
    fn each_missing_thing_is_one_line_with_its_remedy() {
        let missing =
            [Missing::new("g++", "apt-get install g++"), Missing::new("pip", "apt-get install python3-pip")];
        let text = report(missing).unwrap_err().to_string();
        assert_eq!(text.lines().count(), 3);
        assert!(text.contains("missing: g++; get it with: apt-get install g++\n"));
    }

    #[test]
    fn a_program_that_is_not_there_does_not_succeed() {
        assert!(!succeeds(&mut Command::new("no-such-program-anywhere")));
    }
}
