//! Runs `launchctl` and `systemctl`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::error::ServiceError;

/// A manager's program.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    program: PathBuf,
    /// What an exit code means, and what to do.
    meaning: fn(i32) -> &'static str,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    command: String,
    /// Absent if a signal ended it.
    pub(crate) code: Option<i32>,
    exit: String,
    pub(crate) stdout: String,
    stderr: String,
    meaning: &'static str,
}

impl Tool {
    pub(crate) fn new(program: PathBuf, meaning: fn(i32) -> &'static str) -> Self {
        Self { program, meaning }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// [`ServiceError::CannotRun`]; how it ended is for the caller to judge.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<Ended, ServiceError> {
        let arguments: Vec<OsString> = arguments.iter().map(|argument| argument.as_ref().into()).collect();
        let words =
            std::iter::once(self.program.as_os_str()).chain(arguments.iter().map(OsString::as_os_str));
        let command = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
        let output = Command::new(&self.program).args(&arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|source| ServiceError::CannotRun { command: command.clone(), source })?;
        let code = output.status.code();
        Ok(Ended {
            command,
            code,
            exit: code.map_or_else(|| output.status.to_string(), |code| format!("exit code {code}")),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            meaning: code.map_or("it was ended", self.meaning),
        })
    }

    /// Runs it, and holds it to ending with one of `fine`.
    ///
    /// # Errors
    /// [`ServiceError::CannotRun`] and [`ServiceError::Failed`].
    pub(crate) fn expect<A: AsRef<OsStr>>(
        &self,
        arguments: &[A],
        fine: &[i32],
    ) -> Result<Ended, ServiceError> {
        let ended = self.run(arguments)?;
        if ended.code.is_some_and(|code| fine.contains(&code)) { Ok(ended) } else { Err(ended.failure()) }
    }
}

impl Ended {
    /// The error that this end is.
    pub(crate) fn failure(self) -> ServiceError {
        ServiceError::Failed {
            command: self.command,
            exit: self.exit,
            meaning: self.meaning,
            said: self.stderr,
        }
    }
}
