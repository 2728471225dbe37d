//! The decision: run this job now, or not now, because of what, until when.

use std::fmt;

use fusion_calibrations::conditions::{Conditions, LowPowerMode, Memory, Power, Thermal};
use fusion_calibrations::shape::Shape;

use super::backoff::{Backoff, Cause, Subject, Trouble};
use super::budget::Budget;
use super::demand::{Due, Interest, Turns, Want};
use super::dwell::Dwell;
use super::evidence::Evidence;
use super::inputs::{ClientActivity, Hold, Inputs, Lock, WorkerState};
use super::moment::Moment;
use super::policy::Policy;
use super::staleness::{Freshness, Staleness, judge};

const MIB: u64 = 1 << 20;

/// What to measure now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// The shape.
    pub shape: Shape,
    /// Why.
    pub why: Staleness,
    /// For whom.
    pub interest: Interest,
    /// The conditions that it is measured for; others void it.
    pub conditions: Conditions,
    /// Machine time that it may take, in ms: the search's budget. It ends before the call that wouldn't fit any more.
    pub allowance_ms: f64,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, and {}", self.shape, self.why, self.interest)
    }
}

/// Why nothing is measured.
#[derive(Debug, Clone, PartialEq)]
pub enum Reason {
    /// Everything that is wanted is known.
    NothingToDo {
        /// How many shapes are wanted.
        wanted: usize,
    },
    /// A person said so.
    Paused,
    /// A self-test found the worker throttled.
    Throttled,
    /// Another daemon of this machine may measure.
    LockedElsewhere(Option<String>),
    /// A job runs.
    Measuring,
    /// An attached client is busy.
    ClientBusy {
        /// Its process.
        pid: u32,
        /// How many others are busy too.
        others: usize,
    },
    /// One was until just now.
    ClientsPause,
    /// Low-power mode is on.
    LowPowerMode,
    /// The machine is hot.
    Hot(Thermal),
    /// Processes are about to be stopped for memory.
    MemoryCritical,
    /// The conditions just changed.
    ConditionsSettle(Conditions),
    /// Others use the machine.
    OthersBusy {
        /// "CPU" or "GPU".
        unit: &'static str,
        /// Share that they use.
        share: f64,
    },
    /// The policy gives no time under this power.
    NoDuty(Power),
    /// The worker keeps failing.
    WorkerBacksOff(Trouble),
    /// What is due keeps failing.
    BacksOff {
        /// The most wanted of them.
        shape: Shape,
        /// What is wrong with it.
        trouble: Trouble,
    },
    /// What is due doesn't fit in memory.
    NoMemory {
        /// The most wanted of them.
        shape: Shape,
        /// What it needs, with the margin, in bytes.
        needed: u64,
        /// What is available, in bytes.
        available: u64,
    },
    /// What is due takes more than can ever be saved up under this power.
    TooCostly {
        /// The most wanted of them.
        shape: Shape,
        /// What it takes, in ms.
        need_ms: f64,
        /// What can be saved up, in ms.
        capacity_ms: f64,
    },
    /// The budget is spent.
    NoCredit {
        /// What comes next.
        shape: Shape,
        /// What it takes, in ms.
        need_ms: f64,
        /// What there is, in ms.
        credit_ms: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingToDo { wanted: 0 } => f.write_str("nobody wants anything measured"),
            Self::NothingToDo { wanted } => write!(f, "all {wanted} wanted shapes are known"),
            Self::Paused => f.write_str("measuring is paused ('fusionctl resume' ends that)"),
            Self::Throttled => f.write_str(
                "a self-test found the daemon's worker throttled ('fusionctl doctor' tests again)",
            ),
            Self::LockedElsewhere(Some(who)) => write!(f, "another fusiond of this machine measures ({who})"),
            Self::LockedElsewhere(None) => f.write_str("another fusiond of this machine measures"),
            Self::Measuring => f.write_str("a job runs"),
            Self::ClientBusy { pid, others: 0 } => write!(f, "a client is busy (pid {pid})"),
            Self::ClientBusy { pid, others } => {
                write!(f, "{} clients are busy (pid {pid} and others)", others.saturating_add(1))
            }
            Self::ClientsPause => f.write_str("a client was busy just now"),
            Self::LowPowerMode => f.write_str("low-power mode is on"),
            Self::Hot(thermal) => write!(f, "the machine is hot (thermal pressure {thermal})"),
            Self::MemoryCritical => f.write_str("the machine is out of memory"),
            Self::ConditionsSettle(conditions) => {
                write!(f, "the machine's state just changed ({conditions})")
            }
            Self::OthersBusy { unit, share } => {
                write!(f, "other programs use {:.0} % of the {unit}", 100.0 * share)
            }
            Self::NoDuty(power) => write!(f, "the configured duty on {power} is 0"),
            Self::WorkerBacksOff(trouble) => write!(f, "the worker {}", failed(trouble)),
            Self::BacksOff { shape, trouble } => write!(f, "measuring {shape} {}", failed(trouble)),
            Self::NoMemory { shape, needed, available } => write!(
                f,
                "{shape} needs {} MiB to be available, others included, and {} MiB are",
                needed / MIB,
                available / MIB
            ),
            Self::TooCostly { shape, need_ms, capacity_ms } => write!(
                f,
                "{shape} takes up to {:.1} s, and no more than {:.1} s are ever saved up under this power",
                need_ms / 1e3,
                capacity_ms / 1e3
            ),
            Self::NoCredit { shape, need_ms, credit_ms } => write!(
                f,
                "the duty budget has {:.1} s, and {shape} takes up to {:.1} s",
                credit_ms / 1e3,
                need_ms / 1e3
            ),
        }
    }
}

fn failed(trouble: &Trouble) -> String {
    match (&trouble.cause, trouble.in_a_row) {
        (Cause::Failed(reason), 1) => format!("failed: {reason}"),
        (Cause::Failed(reason), times) => format!("failed {times} times in a row: {reason}"),
        (Cause::Interrupted, 1) => "was interrupted".to_owned(),
        (Cause::Interrupted, times) => format!("was interrupted {times} times in a row"),
        (Cause::Doubtful, 1) => "gave a result that its own lines contradict".to_owned(),
        (Cause::Doubtful, times) => format!("gave {times} results in a row that their own lines contradict"),
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Measure this.
    Run(Job),
    /// Measure nothing.
    NotNow {
        /// Why.
        because: Reason,
        /// When to ask again, if nothing changes before; `None`: not before something changes.
        until: Option<Moment>,
    },
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(job) => write!(f, "now {job}"),
            Self::NotNow { because, until: Some(until) } => {
                write!(f, "not now: {because}; next look at {until}")
            }
            Self::NotNow { because, until: None } => write!(f, "not now: {because}"),
        }
    }
}

/// Everything that a decision rests on.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The question.
    pub inputs: &'a Inputs<'a>,
    /// How to decide.
    pub policy: &'a Policy,
    /// What may be spent.
    pub budget: &'a Budget,
    /// The conditions, and since when.
    pub dwell: &'a Dwell,
    /// What went wrong.
    pub backoff: &'a Backoff,
    /// What clients showed.
    pub evidence: &'a Evidence,
    /// Whose turn it was.
    pub turns: &'a Turns,
}

/// A refusal: why, and when to ask again.
type Refusal = (Reason, Option<Moment>);

/// Decides. Pure: the same facts give the same answer.
pub fn decide(facts: &Facts<'_>) -> Decision {
    let demand = Demand::of(facts);
    let refused = |(because, until)| Decision::NotNow { because, until };
    // Without demand nobody needs to know what else would be in the way.
    if demand.due.is_empty() && demand.blocked.is_none() {
        let wanted = facts.inputs.wants.len();
        return refused((Reason::NothingToDo { wanted }, demand.next));
    }
    if let Some(refusal) = person_or_lock(facts).or_else(|| clients(facts)).or_else(|| machine(facts)) {
        return refused(refusal);
    }
    match facts.turns.next(&demand.due, facts.policy) {
        Some(due) => afford(facts, due),
        None => match demand.blocked {
            Some((_, reason)) => refused((reason, demand.next)),
            None => refused((Reason::NothingToDo { wanted: facts.inputs.wants.len() }, demand.next)),
        },
    }
}

fn person_or_lock(facts: &Facts<'_>) -> Option<Refusal> {
    let Inputs { now, hold, lock, worker, .. } = facts.inputs;
    match hold {
        Hold::Paused { until } if until.is_none_or(|until| until > *now) => {
            return Some((Reason::Paused, *until));
        }
        Hold::Throttled => return Some((Reason::Throttled, None)),
        Hold::Paused { .. } | Hold::Released => {}
    }
    if let Lock::Elsewhere(who) = lock {
        return Some((Reason::LockedElsewhere(who.clone()), look_again(facts)));
    }
    (*worker == WorkerState::Measuring).then_some((Reason::Measuring, None))
}

fn clients(facts: &Facts<'_>) -> Option<Refusal> {
    let now = facts.inputs.now;
    match facts.inputs.clients {
        ClientActivity::Busy { pid, others } => Some((Reason::ClientBusy { pid, others }, None)),
        ClientActivity::Idle { since: None } => None,
        ClientActivity::Idle { since: Some(since) } => {
            // A clock that ran backwards can't make anyone wait longer than once more.
            let rested = since.min(now).after(facts.policy.quiet);
            (since > now || rested > now).then_some((Reason::ClientsPause, Some(rested)))
        }
    }
}

fn machine(facts: &Facts<'_>) -> Option<Refusal> {
    let (now, conditions) = (facts.inputs.now, facts.dwell.conditions());
    let refuse = |reason| Some((reason, look_again(facts)));
    if conditions.low_power_mode == LowPowerMode::On {
        return refuse(Reason::LowPowerMode);
    }
    if conditions.thermal >= Thermal::Heavy {
        return refuse(Reason::Hot(conditions.thermal));
    }
    if conditions.memory == Memory::Critical {
        return refuse(Reason::MemoryCritical);
    }
    if let Some(settled) = facts.dwell.settles(now, facts.policy.dwell) {
        return Some((Reason::ConditionsSettle(conditions), Some(settled)));
    }
    let load = facts.inputs.load;
    for (unit, share, most) in
        [("CPU", load.cpu, facts.policy.idle_cpu), ("GPU", load.gpu, facts.policy.idle_gpu)]
    {
        if let Some(share) = share.filter(|share| *share > most) {
            return refuse(Reason::OthersBusy { unit, share });
        }
    }
    if facts.budget.capacity_ms() <= 0.0 {
        return Some((Reason::NoDuty(conditions.power), None));
    }
    let (retry, trouble) = facts.backoff.waits(now, Subject::Worker)?;
    Some((Reason::WorkerBacksOff(trouble.clone()), Some(retry)))
}

fn look_again(facts: &Facts<'_>) -> Option<Moment> {
    Some(facts.inputs.now.after(facts.policy.look_again))
}

/// The one whose turn it is waits for its credit: were a cheaper one let by, an expensive one would wait for ever.
fn afford(facts: &Facts<'_>, Due { want, why }: Due<'_>) -> Decision {
    let now = facts.inputs.now;
    let (need_ms, credit_ms) = (want.need_ms(), facts.budget.credit_ms(now));
    if credit_ms < need_ms {
        let because = Reason::NoCredit { shape: want.shape, need_ms, credit_ms };
        return Decision::NotNow { because, until: facts.budget.when(now, need_ms) };
    }
    Decision::Run(Job {
        shape: want.shape,
        why,
        interest: want.interest,
        conditions: facts.dwell.conditions(),
        allowance_ms: want.allowance_ms(credit_ms),
    })
}

/// The wants, sorted out.
#[derive(Default)]
struct Demand<'a> {
    /// What is due and could be measured.
    due: Vec<Due<'a>>,
    /// The most wanted of what is due but can't be measured, and why not.
    blocked: Option<(Due<'a>, Reason)>,
    /// When something becomes due or possible by itself.
    next: Option<Moment>,
}

impl<'a> Demand<'a> {
    fn of(facts: &Facts<'a>) -> Self {
        let Inputs { now, wants, .. } = *facts.inputs;
        let conditions = facts.dwell.conditions();
        let mut demand = Self::default();
        for want in wants {
            let seen = facts.evidence.of(want.shape.layer(), conditions);
            match judge(want.shape, &want.known, conditions, seen, now, facts.policy) {
                Freshness::Until(at) => demand.ask_at(Some(at)),
                Freshness::Stale(why) => demand.sort_in(facts, Due { want, why }),
            }
        }
        demand
    }

    fn sort_in(&mut self, facts: &Facts<'a>, due: Due<'a>) {
        let Some((reason, until)) = obstacle(facts, due.want) else { return self.due.push(due) };
        self.ask_at(until);
        let is_first =
            self.blocked.as_ref().is_none_or(|(first, _)| due.precedence(first) == std::cmp::Ordering::Less);
        if is_first {
            self.blocked = Some((due, reason));
        }
    }

    fn ask_at(&mut self, at: Option<Moment>) {
        self.next = match (self.next, at) {
            (Some(next), Some(at)) => Some(next.min(at)),
            (next, at) => next.or(at),
        };
    }
}

/// Why this shape can't be measured, whatever its turn.
fn obstacle(facts: &Facts<'_>, want: &Want) -> Option<Refusal> {
    let (shape, now) = (want.shape, facts.inputs.now);
    if let Some((retry, trouble)) = facts.backoff.waits(now, Subject::Shape(shape)) {
        return Some((Reason::BacksOff { shape, trouble: trouble.clone() }, Some(retry)));
    }
    let needed = shape.working_set_bytes().saturating_mul(facts.policy.memory_margin);
    if let Some(available) = facts.inputs.available_memory_bytes.filter(|available| *available < needed) {
        return Some((Reason::NoMemory { shape, needed, available }, look_again(facts)));
    }
    let (need_ms, capacity_ms) = (want.need_ms(), facts.budget.capacity_ms());
    // Where nothing can be saved up at all, that is the reason.
    (capacity_ms > 0.0 && need_ms > capacity_ms)
        .then_some((Reason::TooCostly { shape, need_ms, capacity_ms }, None))
}

#[cfg(test)]
mod tests;
