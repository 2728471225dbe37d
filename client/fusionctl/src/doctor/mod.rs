//! `fusionctl doctor`: what may stand between a person and right ratios.
//!
//! ```text
//! gather (asks files, programs, the daemon) --> Facts --> checks (pure) --> Check, a list --> render, json, report
//! self_test (times a product in turns)  -------^
//! ```
//!
//! What other programs say is read by [`transcripts`], which are tested on what those programs print.

pub(crate) mod checks;
pub(crate) mod facts;
pub(crate) mod gather;
pub(crate) mod privacy;
pub(crate) mod self_test;
pub(crate) mod transcripts;
mod worker;

use serde::Serialize;

/// How a check ended. The order is that of badness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// As it should be.
    Pass,
    /// It works, but something should be known.
    Warn,
    /// Something doesn't work.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// A word for scripts; it never changes its meaning.
    pub(crate) id: &'static str,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// What was found.
    pub(crate) found: String,
    /// What that means; `None` where all is well.
    pub(crate) meaning: Option<String>,
    /// What to do about it; `None` where there is nothing to do.
    pub(crate) remedy: Option<String>,
}

impl Check {
    pub(crate) fn pass(id: &'static str, found: impl Into<String>) -> Self {
        Self { id, outcome: Outcome::Pass, found: found.into(), meaning: None, remedy: None }
    }

    pub(crate) fn warn(id: &'static str, found: impl Into<String>, meaning: &str, remedy: &str) -> Self {
        Self::trouble(id, Outcome::Warn, found.into(), meaning, remedy)
    }

    pub(crate) fn fail(id: &'static str, found: impl Into<String>, meaning: &str, remedy: &str) -> Self {
        Self::trouble(id, Outcome::Fail, found.into(), meaning, remedy)
    }

    fn trouble(id: &'static str, outcome: Outcome, found: String, meaning: &str, remedy: &str) -> Self {
        Self { id, outcome, found, meaning: Some(meaning.to_owned()), remedy: Some(remedy.to_owned()) }
    }
}

/// The worst of all checks.
pub(crate) fn worst(checks: &[Check]) -> Outcome {
    checks.iter().map(|check| check.outcome).max().unwrap_or(Outcome::Pass)
}
