//! Gates at a glance, and what was decided.

use fusion_calibrations::gate::Arm;
use fusion_client::{Forgotten, GateLock, GateRegion, GateScope, KnownGates, RowRange, v1};

use super::table::{Column, Field, Stack, fields, table};
use super::words;
use crate::output::Output;

const LEGEND: &str = "ms: for a call of the middle of the rows, ± the spread of one call (calls observed); \
changes: how often measuring decided what stands";

/// A region, and the lock that decides for it.
struct Row<'a> {
    region: &'a GateRegion,
    lock: Option<&'a GateLock>,
}

/// Every region and every lock.
pub(crate) fn list(known: &KnownGates, chip: Option<&v1::Chip>, output: Output) -> String {
    if known.regions.is_empty() && known.locks.is_empty() {
        return "no gate is known yet: attached clients tell of theirs once they have run\n".to_owned();
    }
    let mut rows: Vec<_> =
        known.regions.iter().map(|region| Row { region, lock: known.lock_of(region) }).collect();
    let mut text = String::new();
    while let Some(first) = rows.first().map(|row| row.region) {
        let (group, rest): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| same_place(row.region, first));
        rows = rest;
        text += &format!(
            "{}\n{}\n",
            fields(&place(first, chip, output), output),
            table(&group, &stacks(), output)
        );
    }
    if !text.is_empty() {
        text += &format!("{}\n", fields(&[("columns", Some(LEGEND.to_owned()))], output));
    }
    let waiting = waiting_locks(known, output);
    if !waiting.is_empty() {
        text += &format!("{}\n", fields(&waiting, output));
    }
    let (regions, locks) = (known.regions.len(), known.locks.len());
    text + &format!(" {}, {}\n", words::count(regions, "region"), words::count(locks, "lock"))
}

fn same_place(one: &GateRegion, other: &GateRegion) -> bool {
    (&one.chip_key, &one.engine_key, one.state.key.conditions)
        == (&other.chip_key, &other.engine_key, other.state.key.conditions)
}

/// Where a region was learned. `chip` is the one that is known by more than its key.
pub(super) fn place(region: &GateRegion, chip: Option<&v1::Chip>, output: Output) -> [Field; 4] {
    let key = &region.chip_key;
    let known = chip.filter(|chip| chip.key == *key);
    let label = known.map(|chip| chip.pair_label.as_str()).filter(|label| !label.is_empty());
    [
        ("chip", Some(known.map_or_else(|| words::plain(key), words::chip))),
        ("pair", label.or_else(|| words::pair_label(key)).map(|label| output.yellow(label))),
        ("engine", Some(words::plain(&region.engine_key))),
        ("conditions", Some(words::conditions(Some(&region.state.key.conditions.into())))),
    ]
}

fn stacks<'a>() -> Vec<Stack<Row<'a>>> {
    vec![
        (
            Column::text("workload", |row: &Row<'a>| words::plain(&row.region.state.key.workload)),
            Some(Column::text("rows", |row| short(row.region.rows))),
        ),
        (
            Column::text("stands", |row| row.region.state.standing.arm.to_string()),
            Some(Column::text("locked", |row| {
                row.lock.map_or_else(|| "-".to_owned(), |lock| lock.arm.to_string())
            })),
        ),
        (
            Column::text("split ms", |row| arm(row.region, Arm::Split)),
            Some(Column::text("compiled ms", |row| arm(row.region, Arm::Compiled))),
        ),
        (
            Column::text("eager ms", |row| arm(row.region, Arm::Eager)),
            Some(Column::number("changes", |row| row.region.state.standing.changes.to_string())),
        ),
    ]
}

fn short(rows: RowRange) -> String {
    let (first, last) = (rows.first(), rows.last());
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

fn arm(region: &GateRegion, arm: Arm) -> String {
    let state = region.arm(arm);
    match (region.middle_ms(arm), state.level) {
        (Some(ms), Some(level)) => {
            format!("{} ±{} ({})", words::ms(ms), words::percent(level.deviation), state.observations)
        }
        _ if state.observations > 0 => format!("- ({})", state.observations),
        _ => "-".to_owned(),
    }
}

/// Locks of calls that no region holds: of a workload that never ran, or not with such rows.
fn waiting_locks(known: &KnownGates, output: Output) -> Vec<Field> {
    let decides = |lock: &GateLock| known.regions.iter().any(|region| known.lock_of(region) == Some(lock));
    let field = |lock: &GateLock| {
        let text = format!("{} to {}: no such call is known yet", lock_words(lock), lock.arm);
        ("locked", Some(output.yellow(&text)))
    };
    known.locks.iter().filter(|lock| !decides(lock)).map(field).collect()
}

fn calls(workload: &str, rows: Option<RowRange>) -> String {
    let rows = rows.map(|rows| format!(" at {rows}")).unwrap_or_default();
    format!("'{}'{rows}", words::plain(workload))
}

pub(super) fn lock_words(lock: &GateLock) -> String {
    calls(&lock.workload, lock.rows)
}

/// "'llama prefill' at 2048 to 2559 rows".
pub(crate) fn scope_words(scope: &GateScope) -> String {
    calls(scope.workload.as_str(), scope.rows)
}

/// "2 attached processes".
pub(crate) fn processes(count: usize) -> String {
    format!("{count} attached {}", if count == 1 { "process" } else { "processes" })
}

fn told(clients: u32) -> String {
    match clients {
        0 => "no process is attached; whoever comes is told".to_owned(),
        1 => "1 attached process is told".to_owned(),
        many => format!("{} are told", processes(many as usize)),
    }
}

/// What a reset did.
pub(crate) fn forgotten(scope: &GateScope, forgotten: Forgotten) -> String {
    let regions = words::count(forgotten.regions as usize, "region");
    format!("forgotten: {} ({regions}); {}\n", scope_words(scope), told(forgotten.clients))
}

/// A decision.
pub(crate) fn locked(scope: &GateScope, arm: Arm, clients: u32) -> String {
    format!("locked: {} runs {arm}; {}\n", scope_words(scope), told(clients))
}

/// A decision that was taken back; `still` is the lock that decides nevertheless.
pub(crate) fn unlocked(scope: &GateScope, removed: usize, still: Option<&GateLock>, clients: u32) -> String {
    let mut text = match removed {
        0 => format!("{} was not locked\n", scope_words(scope)),
        _ => format!(
            "unlocked: {} ({}); {}\n",
            scope_words(scope),
            words::count(removed, "lock"),
            told(clients)
        ),
    };
    if let Some(lock) = still {
        text += &format!(
            "{} stays locked to {} at all rows: unlock it without --rows\n",
            lock_words(lock),
            lock.arm
        );
    }
    text
}
