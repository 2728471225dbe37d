//! What is counted.

use std::collections::{BTreeMap, BTreeSet};

use fusion_calibrations::record::Record;
use fusiond::planner::Reason;
use fusiond::store::CalibrationKey;

use crate::script::SECOND;

/// More split calls after a change than this are counted as one number.
pub const MOST_COUNTED: usize = 10;

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
    /// Split calls while a daemon ran: those that the regret is of.
    pub followed_calls: u64,
    pub call_ms: f64,
    pub stock_ms: f64,
    pub regret: f64,
    /// What clients reported: time of calls, and what exploring was charged.
    pub reported_ms: f64,
    pub explored_ms: f64,
    pub changes: u64,
    /// How many changes the served rows were right after, by the split calls that it took.
    pub recoveries: [u64; MOST_COUNTED],
    pub worst_day: f64,
    /// Without a daemon, under the same conditions: what the rows lost more than when it went, at most.
    pub worst_orphaned: f64,
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

    /// Counts a change that so many split calls were made after until the served rows were right.
    pub fn recovered(&mut self, calls: u32) {
        self.recoveries[(calls as usize).min(MOST_COUNTED - 1)] += 1;
    }

    /// The most split calls that it took.
    pub fn worst_recovery(&self) -> usize {
        self.recoveries.iter().rposition(|changes| *changes > 0).unwrap_or(0)
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
            "  served: {} calls ({} without a daemon), {:.0} % split, {:.3} times as long as stock; regret {:.2} % (worst day {:.2} %); exploring cost {:.2} s of {:.0} s",
            self.calls,
            self.orphaned,
            100.0 * self.split_calls as f64 / self.calls.max(1) as f64,
            self.call_ms / self.stock_ms.max(1.0),
            100.0 * self.regret / self.followed_calls.max(1) as f64,
            100.0 * self.worst_day,
            self.explored_ms / SECOND,
            self.reported_ms / SECOND,
        );
        println!(
            "  followed: {} changes, right after {} split calls at most ({}); without a daemon {:.2} % more were lost at most",
            self.changes,
            self.worst_recovery(),
            by_calls(&self.recoveries),
            100.0 * self.worst_orphaned,
        );
        let refused: Vec<String> =
            self.refused.iter().map(|(word, count)| format!("{word} {count}")).collect();
        println!("  refused: {}", refused.join(", "));
    }
}

/// "0: 95, 1: 12".
pub fn by_calls(recoveries: &[u64]) -> String {
    let counted: Vec<String> = recoveries
        .iter()
        .enumerate()
        .filter(|(_, changes)| **changes > 0)
        .map(|(calls, changes)| format!("{calls}: {changes}"))
        .collect();
    counted.join(", ")
}
