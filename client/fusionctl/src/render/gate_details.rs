//! Everything that is known of a workload's gates, in words.

use fusion_calibrations::gate::{Arm, ArmState};
use fusion_client::{GateLock, GateRegion, KnownGates, v1};

use super::table::{Field, fields};
use super::{gate_reason, gates, words};
use crate::output::Output;

/// Every region of a workload, then its locks. `now_ms` since 1970.
pub(crate) fn show(known: &KnownGates, chip: Option<&v1::Chip>, now_ms: f64, output: Output) -> String {
    let mut parts: Vec<String> = known
        .regions
        .iter()
        .map(|region| {
            let title = format!("'{}', {}", words::plain(&region.state.key.workload), region.rows);
            let facts = facts(region, known.lock_of(region), chip, now_ms, output);
            format!(" {}\n{}", output.bold(&title), fields(&facts, output))
        })
        .collect();
    let locks: Vec<Field> = known
        .locks
        .iter()
        .map(|lock| ("lock", Some(format!("{} to {}", gates::lock_words(lock), lock.arm))))
        .collect();
    if !locks.is_empty() {
        parts.push(fields(&locks, output));
    }
    parts.join("\n")
}

fn facts(
    region: &GateRegion,
    lock: Option<&GateLock>,
    chip: Option<&v1::Chip>,
    now_ms: f64,
    output: Output,
) -> Vec<Field> {
    let standing = region.state.standing;
    let decided = match standing.changes {
        0 => "never decided by measuring".to_owned(),
        changes => format!("decided by measuring {}", words::count(changes as usize, "time")),
    };
    let runs = lock.map(|lock| output.yellow(&format!("locked to {}; ", lock.arm))).unwrap_or_default();
    let mut facts = gates::place(region, chip, output).to_vec();
    facts.push(("stands", Some(format!("{runs}{}, {decided}", standing.arm))));
    facts.push(("why", Some(gate_reason::why(region, lock))));
    let label = |arm| match arm {
        Arm::Split => "split",
        Arm::Compiled => "compiled",
        Arm::Eager => "eager",
    };
    facts.extend(Arm::ALL.map(|arm| (label(arm), Some(arm_words(region, arm, now_ms)))));
    facts
}

fn arm_words(region: &GateRegion, arm: Arm, now_ms: f64) -> String {
    let state = region.arm(arm);
    let mut parts = Vec::new();
    if let (Some(ms), Some(level)) = (region.middle_ms(arm), state.level) {
        parts.push(format!(
            "{} ms for {} rows, one call ±{} (by its latest {})",
            words::ms(ms),
            region.rows.middle(),
            words::percent(level.deviation),
            words::count(level.count as usize, "call")
        ));
    } else {
        parts.push("no time known".to_owned());
    }
    parts.push(observed(state));
    parts.push(match state.explored {
        0 => "never run to explore".to_owned(),
        explored => format!("{} to explore", words::count(explored as usize, "call")),
    });
    if state.failures > 0 {
        parts.push(refuted(state, now_ms));
    }
    parts.join("; ")
}

fn observed(state: &ArmState) -> String {
    let last = words::unix_ms(state.updated_at_ms).filter(|_| state.observations > 0);
    let last = last.map(|at| format!(", the last at {}", words::moment(at))).unwrap_or_default();
    match state.observations {
        0 => "never observed".to_owned(),
        observations => format!("{} observed{last}", words::count(observations as usize, "call")),
    }
}

fn refuted(state: &ArmState, now_ms: f64) -> String {
    let times = words::count(state.failures as usize, "time");
    let again = match words::unix_ms(state.retry_at_ms) {
        Some(at) if state.retry_at_ms > now_ms => format!("not before {}", words::moment(at)),
        _ => "as soon as exploring is paid for".to_owned(),
    };
    format!("refuted {times} in a row, tried again {again}")
}
