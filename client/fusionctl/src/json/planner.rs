//! What is measured without being asked for: part of `fusionctl.status/1`, `fusionctl.pause/1` and `fusionctl.resume/1`.

use fusion_client::v1;
use serde::Serialize;

use super::shared::{filled, some_time, time, word};

#[derive(Debug, Serialize)]
pub(crate) struct Planner {
    decision: String,
    verdict: Option<String>,
    next_shape: Option<String>,
    looks_again_at: Option<String>,
    credit_ms: f64,
    duty: f64,
    wanted: u32,
    stale: Vec<Stale>,
    troubles: Vec<Trouble>,
    paused: bool,
    paused_until: Option<String>,
}

#[derive(Debug, Serialize)]
struct Stale {
    shape: String,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Trouble {
    subject: String,
    reason: String,
    times: u32,
    retry_at: String,
}

/// What a person decided, and what that changes.
#[derive(Debug, Serialize)]
pub(crate) struct Held {
    planner: Planner,
}

impl Held {
    pub(crate) fn new(planner: &v1::PlannerStatus) -> Self {
        Self { planner: planner.into() }
    }
}

impl From<&v1::PlannerStatus> for Planner {
    fn from(planner: &v1::PlannerStatus) -> Self {
        Self {
            decision: planner.decision.clone(),
            verdict: verdict(planner),
            next_shape: filled(&planner.next_shape),
            looks_again_at: some_time(planner.looks_again_at_unix_ms),
            credit_ms: planner.credit_ms,
            duty: planner.duty,
            wanted: planner.wanted,
            stale: planner.stale.iter().map(Into::into).collect(),
            troubles: planner.troubles.iter().map(Into::into).collect(),
            paused: planner.paused,
            paused_until: some_time(planner.paused_until_unix_ms),
        }
    }
}

/// What was decided, in a word; nothing from a daemon that is older, or newer and says what this version doesn't know.
fn verdict(planner: &v1::PlannerStatus) -> Option<String> {
    let verdict = Some(planner.verdict()).filter(|verdict| *verdict != v1::PlannerVerdict::Unspecified);
    verdict.map(|verdict| word(verdict.as_str_name(), "PLANNER_VERDICT_"))
}

impl From<&v1::StaleShape> for Stale {
    fn from(stale: &v1::StaleShape) -> Self {
        Self { shape: stale.shape.clone(), reason: stale.reason.clone() }
    }
}

impl From<&v1::Trouble> for Trouble {
    fn from(trouble: &v1::Trouble) -> Self {
        Self {
            subject: trouble.subject.clone(),
            reason: trouble.reason.clone(),
            times: trouble.times,
            retry_at: time(trouble.retry_at_unix_ms),
        }
    }
}
