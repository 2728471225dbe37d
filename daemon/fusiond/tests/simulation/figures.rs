//! What is counted, and what must hold.

use std::collections::{BTreeMap, BTreeSet};

use fusion_calibrations::conditions::{Conditions, LowPowerMode, Thermal};
use fusion_calibrations::gate::Arm;
use fusion_calibrations::record::Record;
use fusiond::planner::{Hold, Job, LONGEST_SUBMISSION, Lock, Policy, Reason, Want};
use fusiond::store::CalibrationKey;

use crate::client::{CHUNK, Outcome};
use crate::script::{DAY, SECOND};
use crate::world::World;

/// Regret below which a ratio is right.
const RIGHT: f64 = 0.02;
/// Busy calls within which it is right again after a change.
const RECOVERY: u32 = 5;
/// Calls that it takes at most where the model's accidents (2 % of all calls) hit several of the first ones, and the share of changes where they do.
const LATEST_RECOVERY: u32 = 8;
const LATE: f64 = 0.005;
/// Mean regret of a day's calls.
const MEAN: f64 = 0.015;
/// Calls that make a day's mean one.
const CALLS_OF_A_DAY: u32 = 50;
/// How often one shape may be measured under the same conditions with the same engine on one day.
const MEASUREMENTS_A_DAY: u32 = 4;
/// A submission may be that much longer than was predicted, by accident: in 2 % of the calls something disturbs it.
const ACCIDENT: f64 = 1.6;

/// What happened.
#[derive(Debug, Default, Clone)]
pub struct Figures {
    pub jobs: u64,
    pub measured_calls: u64,
    pub spent_ms: f64,
    pub allowed_ms: f64,
    pub records: u64,
    pub remeasured: u64,
    pub interrupted: u64,
    pub failed: u64,
    pub crashes: u64,
    pub calls: u64,
    pub orphaned: u64,
    pub split_calls: u64,
    pub call_ms: f64,
    pub stock_ms: f64,
    pub regret: f64,
    pub changes: u64,
    pub late: u64,
    pub histogram: [u64; 16],
    pub worst_recovery: u32,
    pub worst_day: f64,
    pub worst_overlap_ms: f64,
    pub learned_ms: f64,
    pub refused: BTreeMap<&'static str, u64>,
    keys: BTreeSet<Vec<u8>>,
}

impl Figures {
    /// Counts a record.
    pub fn measured(&mut self, record: &Record) {
        self.records += 1;
        self.remeasured += u64::from(!self.keys.insert(CalibrationKey::of(record).to_bytes()));
    }

    /// Counts a refusal.
    pub fn refused(&mut self, reason: &Reason) {
        let word = match reason {
            // Nothing was refused.
            Reason::NothingToDo { .. } => return,
            Reason::Paused => "paused",
            Reason::Throttled => "throttled",
            Reason::LockedElsewhere(_) => "lock elsewhere",
            Reason::Measuring => "measuring",
            Reason::ClientBusy { .. } => "client busy",
            Reason::ClientsPause => "client just busy",
            Reason::LowPowerMode => "low-power mode",
            Reason::Hot(_) => "hot",
            Reason::MemoryCritical => "memory critical",
            Reason::ConditionsSettle(_) => "conditions settle",
            Reason::OthersBusy { .. } => "others busy",
            Reason::NoDuty(_) => "no duty",
            Reason::WorkerBacksOff(_) => "worker backs off",
            Reason::BacksOff { .. } => "shape backs off",
            Reason::NoMemory { .. } => "no memory",
            Reason::TooCostly { .. } => "too costly",
            Reason::NoCredit { .. } => "no credit",
        };
        *self.refused.entry(word).or_default() += 1;
    }

    /// For people.
    pub fn print(&self) {
        println!(
            "  measured: {} records in {} jobs and {} calls, {} of them again; {} interrupted, {} failed; {} crashes",
            self.records,
            self.jobs,
            self.measured_calls,
            self.remeasured,
            self.interrupted,
            self.failed,
            self.crashes
        );
        println!(
            "  budget: {:.1} s spent of {:.1} s allowed; left alone, all was known after {:.1} s; longest overlap with a client {:.1} ms",
            self.spent_ms / SECOND,
            self.allowed_ms / SECOND,
            self.learned_ms / SECOND,
            self.worst_overlap_ms
        );
        println!(
            "  served: {} calls ({} without a daemon), {:.0} % split, {:.3} times as long as stock; regret {:.2} % (worst day {:.2} %), right {} calls after a change at most (later than {RECOVERY} after {} of {} changes)",
            self.calls,
            self.orphaned,
            100.0 * self.split_calls as f64 / self.calls.max(1) as f64,
            self.call_ms / self.stock_ms.max(1.0),
            100.0 * self.regret / self.split_calls.max(1) as f64,
            100.0 * self.worst_day,
            self.worst_recovery,
            self.late,
            self.changes
        );
        let refused: Vec<String> =
            self.refused.iter().map(|(word, count)| format!("{word} {count}")).collect();
        println!("  refused: {}", refused.join(", "));
    }
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
    conditions: Option<Conditions>,
    wrong_calls: Option<u32>,
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
            conditions: None,
            wrong_calls: None,
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
    pub fn job_starts(&mut self, job: &Job, world: &World) {
        let now = world.conditions();
        if now != job.conditions {
            self.violated(format!("a job for {} starts under {now}", job.conditions));
        }
        if now.thermal >= Thermal::Heavy || now.low_power_mode == LowPowerMode::On {
            self.violated(format!("a job starts under {now}"));
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

    /// A client's call.
    pub fn call(
        &mut self,
        outcome: &Outcome,
        rows: u32,
        world: &World,
        daemon_runs: bool,
        figures: &mut Figures,
    ) {
        let (conditions, now_ms) = (world.conditions(), world.now_ms());
        figures.calls += 1;
        figures.call_ms += outcome.ms;
        figures.stock_ms += outcome.stock_ms;
        // The next daemon begins anew.
        if self.conditions.replace(conditions) != Some(conditions) || !daemon_runs {
            self.wrong_calls = Some(0);
            figures.changes += u64::from(daemon_runs);
        }
        figures.orphaned += u64::from(!daemon_runs);
        // Where stock runs no ratio is used, and nothing is seen of it; without a daemon nobody follows.
        if outcome.arm != Arm::Split || !daemon_runs {
            return;
        }
        figures.split_calls += 1;
        figures.regret += outcome.regret;
        let day = (now_ms / DAY) as u64;
        if day != self.day {
            self.end_day(figures);
            self.day = day;
        }
        self.day_calls += 1;
        self.day_regret += outcome.regret;
        // A tail of few rows is not what a change is followed by.
        if std::env::var_os("TRACE").is_some() && self.wrong_calls.is_some() {
            eprintln!("{:.0} s {conditions} rows {rows} regret {:.4} wrong {:?}: {}", now_ms / SECOND, outcome.regret, self.wrong_calls, outcome.note);
        }
        let Some(wrong) = self.wrong_calls.filter(|_| rows == CHUNK) else { return };
        if outcome.regret < RIGHT { figures.histogram[(wrong as usize).min(15)] += 1; }
        self.wrong_calls = if outcome.regret < RIGHT { None } else { Some(wrong + 1) };
        figures.worst_recovery = figures.worst_recovery.max(self.wrong_calls.unwrap_or(wrong));
        if outcome.regret < RIGHT {
            return;
        }
        figures.late += u64::from(wrong == RECOVERY);
        if wrong == LATEST_RECOVERY {
            let what = format!(
                "{:.0} s: after {LATEST_RECOVERY} calls under {conditions} the served rows still lose {:.1} %",
                now_ms / SECOND,
                100.0 * outcome.regret
            );
            self.violated(what);
        }
    }

    /// Everything is over.
    pub fn end(&mut self, figures: &mut Figures) {
        self.end_day(figures);
        if figures.late as f64 > (LATE * figures.changes as f64).max(1.0) {
            self.violated(format!(
                "after {} of {} changes the served rows were not right within {RECOVERY} calls",
                figures.late, figures.changes
            ));
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
