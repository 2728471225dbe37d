//! What must hold.

use std::collections::BTreeMap;

use fusion_calibrations::conditions::{Conditions, LowPowerMode, Thermal};
use fusion_calibrations::gate::Arm;
use fusion_calibrations::record::Record;
use fusiond::planner::{Hold, Job, LONGEST_SUBMISSION, Lock, Policy, Want};
use fusiond::store::CalibrationKey;

use crate::client::{CHUNK, Outcome};
use crate::daemon::Reported;
use crate::figures::Figures;
use crate::script::{DAY, SECOND};
use crate::world::World;

/// Regret below which a ratio is right.
const RIGHT: f64 = 0.02;
/// Split calls after a change within which it is right again.
const RECOVERY: u32 = 5;
/// What a client's rows lose more than when the daemon went, until the next one comes and under the same conditions: ten seconds of heat.
const ORPHANED: f64 = 0.02;
/// Mean regret of a day's calls.
const MEAN: f64 = 0.015;
/// One call of so many is split, at least.
const LEAST_SPLIT: u64 = 5;
/// Calls that make a day's mean one.
const CALLS_OF_A_DAY: u32 = 50;
/// Share of the clients' time that exploring may cost them, and what it may cost before any client worked, in ms.
const EXPLORING: f64 = 0.01;
const EXPLORING_AT_FIRST_MS: f64 = 100.0;
/// How often one shape may be measured under the same conditions with the same engine on one day.
const MEASUREMENTS_A_DAY: u32 = 4;
/// A submission may be that much longer than was predicted, by accident: in 2 % of the calls something disturbs it.
const ACCIDENT: f64 = 1.6;

/// What a client has when the daemon goes.
pub struct LeftWith {
    /// The rows of a chunk, layer by layer.
    pub served: Vec<u32>,
    /// What they lose.
    pub regret: f64,
    /// The conditions.
    pub conditions: Conditions,
}

/// What must hold, and what didn't.
pub struct Checks {
    policy: Policy,
    /// What didn't, in words.
    pub violations: Vec<String>,
    /// Whether conditions come and go.
    pub flapping: bool,
    longest_call_ms: f64,
    measurements: BTreeMap<(Vec<u8>, u64), u32>,
    /// What the daemon believed of the machine at the last call; `None` without one.
    told: Option<Conditions>,
    /// Split calls since the last change, as long as the served rows weren't seen to be right.
    since_change: Option<u32>,
    /// So many of them had been made when the rows were last seen to be wrong, that one included.
    wrong_until: u32,
    /// What each client was left with when the daemon went.
    left_with: BTreeMap<usize, LeftWith>,
    day: u64,
    day_calls: u32,
    day_regret: f64,
}

impl Checks {
    /// Nothing happened yet.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            violations: Vec::new(),
            flapping: false,
            longest_call_ms: 0.0,
            measurements: BTreeMap::new(),
            told: None,
            since_change: None,
            wrong_until: 0,
            left_with: BTreeMap::new(),
            day: 0,
            day_calls: 0,
            day_regret: 0.0,
        }
    }

    /// Says that something didn't hold.
    pub fn violated(&mut self, what: String) {
        // The first ones tell; the rest follows from them.
        if self.violations.len() < 20 {
            self.violations.push(what);
        }
    }

    /// A job starts.
    pub fn job_starts(&mut self, job: &Job, now: Conditions, world: &World) {
        if now != job.conditions {
            self.violated(format!("a job for {} starts under {now}", job.conditions));
        }
        for now in [now, world.conditions()] {
            if now.thermal >= Thermal::Heavy || now.low_power_mode == LowPowerMode::On {
                self.violated(format!("a job starts under {now}"));
            }
        }
        if job.shape.working_set_bytes() * 2 > world.available_memory_bytes {
            self.violated(format!("{} doesn't fit twice", job.shape));
        }
        if world.hold != Hold::Released || world.lock != Lock::Held {
            self.violated("a job starts though it is paused, or locked elsewhere".to_owned());
        }
        if self.flapping {
            self.violated("a job starts while conditions come and go".to_owned());
        }
    }

    /// A measuring call ran until `overlap_ms` into a client's burst.
    pub fn measuring_call(&mut self, ms: f64, overlap_ms: f64, figures: &Figures) {
        self.longest_call_ms = self.longest_call_ms.max(ms);
        let limit_ms = LONGEST_SUBMISSION.as_secs_f64() * SECOND * ACCIDENT;
        if overlap_ms > limit_ms {
            self.violated(format!("a submission of {ms:.1} ms ran {overlap_ms:.1} ms into a client's burst"));
        }
        let policy = &self.policy;
        let bound_ms = figures.allowed_ms + policy.capacity_ms(policy.duty_on_ac) + self.longest_call_ms;
        if figures.spent_ms > bound_ms + 1.0 {
            self.violated(format!("{:.1} ms were spent of {bound_ms:.1} ms", figures.spent_ms));
        }
    }

    /// A record was acknowledged.
    pub fn measured(&mut self, record: &Record, now_ms: f64) {
        let key = (CalibrationKey::of(record).to_bytes(), (now_ms / DAY) as u64);
        let times = self.measurements.entry(key).or_default();
        *times += 1;
        if *times > MEASUREMENTS_A_DAY {
            let what = format!("{} was measured {times} times on one day", record.estimate.shape);
            self.violated(what);
        }
    }

    /// The daemon went, and left a client with this.
    pub fn left(&mut self, client: usize, with: LeftWith) {
        self.left_with.insert(client, with);
    }

    /// A client starts.
    pub fn starts(&mut self, client: usize) {
        self.left_with.remove(&client);
    }

    /// A client's call, and what the daemon believes of the machine, if one runs.
    pub fn call(
        &mut self,
        client: usize,
        outcome: &Outcome,
        told: Option<Conditions>,
        world: &World,
        figures: &mut Figures,
    ) {
        figures.calls += 1;
        figures.split_calls += u64::from(outcome.arm == Arm::Split);
        figures.call_ms += outcome.ms;
        figures.stock_ms += outcome.stock_ms;
        // A call that ran stock uses no ratio, and what a client keeps without a daemon is judged by what it was left with.
        if outcome.arm == Arm::Split && told.is_some() {
            figures.followed_calls += 1;
            figures.regret += outcome.regret;
            self.count_day(outcome, world.now_ms(), figures);
        }
        match told {
            Some(told) => {
                // A daemon that was just started begins anew.
                if self.told != Some(told) {
                    figures.changes += 1;
                    (self.since_change, self.wrong_until) = (Some(0), 0);
                }
                self.followed(outcome, told, world, figures);
            }
            None => self.orphaned(client, outcome, world, figures),
        }
        self.told = told;
    }

    /// A call while a daemon runs. Only one that ran the split counts: stock uses no ratio, and shows nothing of the secondary unit.
    fn followed(&mut self, outcome: &Outcome, told: Conditions, world: &World, figures: &mut Figures) {
        let Some(calls) = self.since_change else { return };
        if outcome.rows == CHUNK && outcome.regret < RIGHT {
            figures.recovered(self.wrong_until);
            self.since_change = None;
            return;
        }
        if outcome.arm != Arm::Split {
            return;
        }
        self.since_change = Some(calls + 1);
        if outcome.rows != CHUNK {
            return;
        }
        self.wrong_until = calls + 1;
        if calls >= RECOVERY {
            self.since_change = None;
            let (now, loss) = (world.now_ms() / SECOND, 100.0 * outcome.regret);
            self.violated(format!(
                "{now:.0} s: after {calls} split calls under {told} {loss:.1} % are still lost"
            ));
        }
    }

    /// A call while no daemon runs: the client keeps what it was told last, and tries nothing.
    fn orphaned(&mut self, client: usize, outcome: &Outcome, world: &World, figures: &mut Figures) {
        figures.orphaned += 1;
        if outcome.explores {
            self.violated("a client explores while no daemon runs".to_owned());
        }
        let Some(left) = self.left_with.get(&client).filter(|_| outcome.rows == CHUNK) else { return };
        let (now, more) = (world.now_ms() / SECOND, outcome.regret - left.regret);
        let (kept, same) = (left.served == outcome.served, left.conditions == world.conditions());
        if !kept {
            self.violated(format!("{now:.0} s: the served rows changed while no daemon runs"));
        }
        if same {
            figures.worst_orphaned = figures.worst_orphaned.max(more);
        }
        if same && more > ORPHANED {
            self.violated(format!("{now:.0} s: without a daemon {:.1} % more are lost", 100.0 * more));
        }
    }

    /// A client reported to its daemon.
    pub fn reported(&mut self, reported: &Reported, figures: &mut Figures) {
        figures.reported_ms += reported.time_ms;
        figures.explored_ms += reported.charged_ms;
        self.may_explore(reported.may_cost_ms, figures);
    }

    /// What exploring may still cost, as a daemon has it: no more than is left of what calls paid for under all daemons since the first.
    pub fn may_explore(&mut self, may_cost_ms: f64, figures: &Figures) {
        let left_ms = EXPLORING_AT_FIRST_MS + EXPLORING * figures.reported_ms - figures.explored_ms;
        // Sums in another order.
        if may_cost_ms > left_ms + 1e-3 {
            self.violated(format!("{may_cost_ms:.1} ms may be explored with where {left_ms:.1} ms are left"));
        }
    }

    /// What exploring might cost when a daemon went, and may cost its successor: a restart is no new budget.
    pub fn restarted(&mut self, before_ms: Option<f64>, after_ms: f64) {
        if before_ms.is_some_and(|before_ms| after_ms > before_ms + 1e-3) {
            self.violated(format!("{after_ms:.1} ms may be explored with after a restart"));
        }
    }

    fn count_day(&mut self, outcome: &Outcome, now_ms: f64, figures: &mut Figures) {
        let day = (now_ms / DAY) as u64;
        if day != self.day {
            self.end_day(figures);
            self.day = day;
        }
        self.day_calls += 1;
        self.day_regret += outcome.regret;
    }

    /// Everything is over.
    pub fn end(&mut self, figures: &mut Figures) {
        self.end_day(figures);
        // Nothing that is said of served rows means much in a life without splits.
        if figures.followed_calls * LEAST_SPLIT < figures.calls {
            self.violated(format!("{} of {} calls were split", figures.followed_calls, figures.calls));
        }
        if figures.call_ms > figures.stock_ms {
            self.violated("all calls together took longer than stock would have".to_owned());
        }
    }

    /// A day is over.
    fn end_day(&mut self, figures: &mut Figures) {
        if self.day_calls >= CALLS_OF_A_DAY {
            let mean = self.day_regret / f64::from(self.day_calls);
            figures.worst_day = figures.worst_day.max(mean);
            if mean > MEAN {
                let (day, calls) = (self.day, self.day_calls);
                self.violated(format!("mean regret {:.2} % over {calls} calls of day {day}", 100.0 * mean));
            }
        }
        (self.day_calls, self.day_regret) = (0, 0.0);
    }

    /// A machine that was left alone since the start knows everything by now.
    pub fn learned(&mut self, learned_ms: Option<f64>, first: &[Want]) {
        let policy = &self.policy;
        let work_ms: f64 = first.iter().map(Want::need_ms).sum();
        let missing_ms = (work_ms - policy.capacity_ms(policy.duty_on_ac)).max(0.0);
        // The work itself takes time too.
        let bound_ms =
            policy.dwell.as_secs_f64() * SECOND + missing_ms / policy.duty_on_ac.get() + work_ms + SECOND;
        match learned_ms {
            Some(ms) if ms <= bound_ms => {}
            Some(ms) => {
                self.violated(format!("left alone, all was known after {ms:.0} ms of {bound_ms:.0} ms"));
            }
            None => self.violated("left alone for 7 hours, not all is known".to_owned()),
        }
    }
}
