//! The planner: when the daemon may measure, and what.
//!
//! Pure: no I/O, no clock, no tokio. It is told what happens and asked what to do; the same history gives the same answers, so that the simulation
//! (`tests/simulation`) drives the very code that the daemon runs.
//!
//! ```text
//!            +---------------------- a reason, and until when ----------------------+
//!            v                                                                      |
//!       +---------+  something changed, or `until` came   +--------+   NotNow       |
//!       | waiting | ------------------------------------> | decide | ---------------+
//!       +---------+                                       +--------+
//!            ^                                                | Run(job)
//!            |                                                v
//!            |                                         +-----------+
//!            +------ measured / failed / interrupted --| measuring |
//!                    with the machine time spent       +-----------+
//! ```
//!
//! # How the daemon drives it
//!
//! 1. It makes a [`Planner`] from the [`PlannerState`] that it kept, and the conditions.
//! 2. It tells what happens, when it happens: [`Planner::see`] (conditions, corrected by the [`canary`]), [`Planner::clock_jumped`] (sleep, or a
//!    clock that was set: the same test that voids a sample), [`Planner::engine_changed`], [`Planner::observed`] (a client's calls moved a layer's live lines).
//! 3. Whenever anything of [`Inputs`] may have changed (clients, conditions, commits, configuration), and when `until` comes, it asks
//!    [`Planner::decide`]. A timer is only needed for `until`: without demand nothing wakes up, except in 30 days, when something grows old.
//! 4. For [`Decision::Run`] it writes [`Planner::state_during`] to the disk (if that fails it doesn't start, and reports a failure of [`Subject::Worker`]), calls [`Planner::started`], and submits the shape with the job's allowance as the search's
//!    machine time. From then on it asks with [`WorkerState::Measuring`], until the job is over.
//! 5. However the job ends, it tells [`Planner::spent`], then [`Planner::measured`] or [`Planner::failed`], writes
//!    [`Planner::state`], and asks again. A job that was ended for a client, by sleep or by a change of conditions is [`Cause::Interrupted`]; one that no
//!    worker could take is a failure of [`Subject::Worker`].
//!
//! A result that its own lines contradict is served, and repeated after a while ([`Cause::Doubtful`]). Every commit goes to [`Planner::measured`], also of a job that a person asked for; only planned jobs are charged. The wants are made by the
//! driver: shapes as [`measurable`] makes them, with what [`Known::of`] reads off the answer that is served.
//!
//! # What is promised
//!
//! * Nothing is measured while a client is busy or was within 10 s, at heavy heat, in low-power mode, under critical memory pressure, under conditions that
//!   haven't held for 30 s, without twice the working set available, or without the machine's lock.
//! * The [`budget`] law, over restarts, crashes (the state on the disk during a job is that of a job that took its whole allowance) and clocks that run backwards.
//! * More credit never turns a job into a refusal.
//! * Of n shapes that stay wanted and can be measured, each is chosen within 8 n jobs ([`demand`]).
//! * An idle machine knows what is wanted within the dwell, and the time in which the missing credit comes in: for work of W ms and
//!   credit C, `30 s + (W - C) / duty`. With the defaults a fresh machine has 36 s of credit on AC, which a model's layers don't use up.
//!
//! # States
//!
//! A shape is *known*, *stale* with a reason ([`Staleness`]), or in *trouble* ([`backoff`]); what is stored of it is served all the while.

pub mod backoff;
pub mod budget;
pub mod canary;
pub mod decision;
pub mod demand;
pub mod dwell;
pub mod evidence;
#[cfg(test)]
mod examples;
pub mod inputs;
pub mod moment;
pub mod policy;
pub mod staleness;

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::estimate::Estimate;
use fusion_calibrations::lines::Lines;
use fusion_calibrations::shape::{Layer, Shape};
use serde::{Deserialize, Serialize};

pub use backoff::{Backoff, Cause, Subject, Trouble};
pub use budget::{Budget, BudgetState};
pub use decision::{Decision, Facts, Job, Reason};
pub use demand::{Interest, LONGEST_SUBMISSION, Want, measurable};
pub use evidence::{Evidence, loss};
pub use inputs::{ClientActivity, Hold, Inputs, Load, Lock, WorkerState};
pub use moment::Moment;
pub use policy::{Policy, Share, ShareError};
pub use staleness::{Believed, Freshness, Known, Staleness};

use demand::Turns;
use dwell::Dwell;

/// What of a planner survives a restart: its budget. What failed may be tried again, and what clients showed they show again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PlannerState {
    /// What may be spent.
    pub budget: BudgetState,
}

/// The planner, with all that it keeps between two questions.
#[derive(Debug, Clone)]
pub struct Planner {
    policy: Policy,
    budget: Budget,
    dwell: Dwell,
    backoff: Backoff,
    evidence: Evidence,
    turns: Turns,
}

impl Planner {
    /// A planner that starts now; without a state, on a machine that never had one.
    pub fn new(policy: Policy, state: Option<PlannerState>, now: Moment, conditions: Conditions) -> Self {
        let duty = policy.duty(conditions);
        let budget = Budget::restore(state.map(|state| state.budget), now, &policy, duty);
        Self {
            policy,
            budget,
            dwell: Dwell::new(now, conditions),
            backoff: Backoff::default(),
            evidence: Evidence::default(),
            turns: Turns::default(),
        }
    }

    /// A planner for another engine of this machine. It knows nothing of what failed with this one; what both share it is told by [`Self::follow`].
    pub fn beside(&self) -> Self {
        Self {
            backoff: Backoff::default(),
            evidence: Evidence::default(),
            turns: Turns::default(),
            ..self.clone()
        }
    }

    /// Takes over what all engines of a machine share: the policy, the budget, and since when the conditions hold. Whoever spends tells `own`, and then
    /// this again.
    pub fn follow(&mut self, own: &Self) {
        self.policy = own.policy.clone();
        self.budget = own.budget.clone();
        self.dwell = own.dwell;
    }

    /// How it decides.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Another policy from now on: what is saved up beyond it is lost.
    pub fn set_policy(&mut self, now: Moment, policy: Policy) {
        self.budget.earn(now, policy.duty(self.dwell.conditions()), &policy);
        self.policy = policy;
    }

    /// The conditions, as they are now. Cheap; to be told whenever they were read.
    pub fn see(&mut self, now: Moment, conditions: Conditions) {
        self.dwell.see(now, conditions);
        self.budget.earn(now, self.policy.duty(conditions), &self.policy);
        self.backoff.settle(now);
        self.evidence.settle(now);
    }

    /// The machine slept, or the clock was set: what lies between is nobody's time.
    pub fn clock_jumped(&mut self, now: Moment) {
        self.dwell.restart(now);
        self.budget.skip_to(now);
        self.backoff.settle(now);
        self.evidence.settle(now);
    }

    /// Products run with another OS build or MLX library: what failed may work, and what was seen was of the other one.
    pub fn engine_changed(&mut self) {
        self.backoff.clear();
        self.evidence.clear();
    }

    /// A client's calls moved a layer's live lines under the present conditions, away from the stored ones.
    pub fn observed(&mut self, now: Moment, layer: Layer, stored: &Lines, live: &Lines) {
        let lost = loss(stored, live);
        self.evidence.observed(now, layer, self.dwell.conditions(), lost, &self.policy);
    }

    /// What to do now.
    pub fn decide(&self, inputs: &Inputs<'_>) -> Decision {
        decision::decide(&Facts {
            inputs,
            policy: &self.policy,
            budget: &self.budget,
            dwell: &self.dwell,
            backoff: &self.backoff,
            evidence: &self.evidence,
            turns: &self.turns,
        })
    }

    /// Whether a shape is fresh, for the mark on what is served.
    pub fn freshness(&self, now: Moment, shape: Shape, known: &Known) -> Freshness {
        let conditions = self.dwell.conditions();
        let seen = self.evidence.of(shape.layer(), conditions);
        staleness::judge(shape, known, conditions, seen, now, &self.policy)
    }

    /// The job starts.
    pub fn started(&mut self, job: &Job) {
        self.turns.started(job.shape);
    }

    /// A planned job spent machine time, whatever came of it.
    pub fn spent(&mut self, now: Moment, ms: f64) {
        self.budget.charge(now, ms);
    }

    /// A shape was measured and stored; `before` are the lines that were served for it until then.
    pub fn measured(&mut self, now: Moment, estimate: &Estimate, before: Option<&Lines>) {
        let (shape, conditions) = (estimate.shape, estimate.conditions);
        let moved = match (before, &estimate.lines) {
            (Some(before), Some(after)) => loss(before, after) >= self.policy.drift_loss,
            (before, after) => before.is_some() != after.is_some(),
        };
        self.evidence.measured(shape.layer(), conditions, moved);
        self.backoff.succeeded(Subject::Worker);
        if Believed::from(estimate).is_doubtful() {
            self.backoff.failed(now, Subject::Shape(shape), Cause::Doubtful);
        } else {
            self.backoff.succeeded(Subject::Shape(shape));
        }
    }

    /// A job ended without a result.
    pub fn failed(&mut self, now: Moment, subject: Subject, cause: Cause) {
        self.backoff.failed(now, subject, cause);
    }

    /// What keeps failing, for people.
    pub fn troubles(&self) -> impl Iterator<Item = (Subject, &Trouble)> {
        self.backoff.troubles()
    }

    /// Machine time that may be spent, in ms; negative if it was overdrawn.
    pub fn credit_ms(&self, now: Moment) -> f64 {
        self.budget.credit_ms(now)
    }

    /// What to keep.
    pub fn state(&self, now: Moment) -> PlannerState {
        PlannerState { budget: self.budget.state(now) }
    }

    /// What to keep while a job runs: should the daemon end before it is over, the job took all it was allowed.
    pub fn state_during(&self, now: Moment, job: &Job) -> PlannerState {
        let mut budget = self.budget.state(now);
        budget.credit_ms -= job.allowance_ms;
        PlannerState { budget }
    }
}
