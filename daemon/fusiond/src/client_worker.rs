//! A worker of a client's: a Python that measures with the very MLX which the client runs.
//!
//! Another build of MLX may want other shares, and only a process that loads that build can measure them. So a client may name its interpreter, and the daemon
//! runs `INTERPRETER -m fusiond.worker` for that client's engine. Whoever can attach is the daemon's own user (every call's user is checked), so nothing is run that the
//! caller couldn't run; the configuration can turn it off all the same.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use fusion_frames::{LARGE_PAGES, ONE_BLAS_THREAD};
use fusion_proto::v1;

use crate::settings::WorkerSettings;

/// The module that speaks frames.
const MODULE: &str = "fusiond.worker";
/// What an interpreter needs to load the same libraries, and to keep its numbers in pages of the same size. Others are none of our business.
const VARIABLES: [&str; 5] =
    ["PYTHONPATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", LARGE_PAGES.0];
/// The longest value of a variable, in bytes.
const LONGEST_VALUE: usize = 32 * 1024;

/// Why a client's worker can't be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientWorkerError {
    /// The interpreter is no full path.
    #[error("the interpreter '{0}' is not a full path: name the program itself, as sys.executable does")]
    Relative(String),
    /// A variable that no worker gets.
    #[error("the variable '{0}' is not passed on to a worker: only {names} are", names = VARIABLES.join(", "))]
    Variable(String),
    /// A value that can't be.
    #[error("the value of the variable '{0}' has more than {LONGEST_VALUE} bytes, or a zero byte")]
    Value(String),
}

/// A worker of a client's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientWorker {
    interpreter: PathBuf,
    environment: BTreeMap<String, String>,
}

impl ClientWorker {
    /// How the daemon starts it; limits are those of its own worker.
    pub fn settings(&self, own: &WorkerSettings) -> WorkerSettings {
        // OpenBLAS reads it when it is loaded, which may be before the worker can say it.
        let (variable, one) = ONE_BLAS_THREAD;
        let mut environment = self.environment.clone();
        environment.insert(variable.to_owned(), one.to_owned());
        WorkerSettings {
            program: self.interpreter.clone(),
            arguments: vec!["-m".into(), MODULE.into()],
            environment,
            ..own.clone()
        }
    }
}

impl fmt::Display for ClientWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -m {MODULE}", self.interpreter.display())
    }
}

impl TryFrom<v1::ClientWorker> for ClientWorker {
    type Error = ClientWorkerError;

    fn try_from(wire: v1::ClientWorker) -> Result<Self, ClientWorkerError> {
        let interpreter = PathBuf::from(&wire.interpreter);
        if !interpreter.is_absolute() || wire.interpreter.contains('\0') {
            return Err(ClientWorkerError::Relative(wire.interpreter));
        }
        for (name, value) in &wire.environment {
            if !VARIABLES.contains(&name.as_str()) {
                return Err(ClientWorkerError::Variable(name.clone()));
            }
            if value.len() > LONGEST_VALUE || value.contains('\0') {
                return Err(ClientWorkerError::Value(name.clone()));
            }
        }
        Ok(Self { interpreter, environment: wire.environment.into_iter().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn wire(interpreter: &str, variable: (&str, &str)) -> v1::ClientWorker {
        let environment = [(variable.0.to_owned(), variable.1.to_owned())].into();
        v1::ClientWorker { interpreter: interpreter.to_owned(), environment }
    }

    #[test]
    fn only_what_finds_libraries_is_passed_on() {
        let worker = ClientWorker::try_from(wire("/usr/bin/python3", ("PYTHONPATH", "/a:/b"))).unwrap();
        let own = WorkerSettings {
            program: "/opt/fusion-worker".into(),
            arguments: vec!["--pair".into()],
            environment: BTreeMap::new(),
            start_limit: Duration::from_secs(1),
            answer_limit: Duration::from_secs(2),
        };
        let settings = worker.settings(&own);
        assert_eq!((settings.start_limit, settings.answer_limit), (own.start_limit, own.answer_limit));
        assert_eq!(settings.arguments, ["-m", "fusiond.worker"]);
        assert_eq!(settings.environment["PYTHONPATH"], "/a:/b");
        assert_eq!(settings.environment["OPENBLAS_NUM_THREADS"], "1");
        assert_eq!(worker.to_string(), "/usr/bin/python3 -m fusiond.worker");
    }

    #[test]
    fn what_can_not_be_is_refused() {
        let refused = |wire| ClientWorker::try_from(wire).unwrap_err();
        assert!(matches!(refused(wire("python3", ("PYTHONPATH", ""))), ClientWorkerError::Relative(_)));
        let stranger = refused(wire("/usr/bin/python3", ("PYTHONSTARTUP", "/tmp/x.py")));
        assert!(
            stranger.to_string().contains("'PYTHONSTARTUP'") && stranger.to_string().contains("LD_PRELOAD")
        );
        let long = "x".repeat(LONGEST_VALUE + 1);
        assert!(matches!(refused(wire("/p", ("PYTHONPATH", &long))), ClientWorkerError::Value(_)));
        assert!(matches!(refused(wire("/p", ("PYTHONPATH", "a\0b"))), ClientWorkerError::Value(_)));
    }
}
