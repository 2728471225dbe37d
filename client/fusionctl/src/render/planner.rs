//! What is measured without being asked for, or why nothing is: a line for each matter.

use fusion_client::v1;

use super::{moments, words};

/// So many troubles are told; of the others, how many there are.
const TROUBLES: usize = 3;

/// The decision; paused or not is said first, because only a person changes it. When the next look is, [`next`] says.
pub(crate) fn decision(planner: &v1::PlannerStatus, now_unix_ms: u64) -> String {
    let decision = match planner.verdict() {
        v1::PlannerVerdict::Unspecified | v1::PlannerVerdict::Measure => words::plain(&planner.decision),
        _ => format!("not now: {}", words::plain(&planner.because)),
    };
    match (planner.paused, planner.verdict()) {
        (false, _) => decision,
        (true, v1::PlannerVerdict::Paused) => paused(planner, now_unix_ms),
        (true, _) => format!("{}; {decision}", paused(planner, now_unix_ms)),
    }
}

/// "paused, goes on in 29 min".
pub(crate) fn paused(planner: &v1::PlannerStatus, now_unix_ms: u64) -> String {
    match planner.paused_until_unix_ms {
        0 => "paused until 'fusionctl resume'".to_owned(),
        until => {
            let on = moments::until(until, now_unix_ms).unwrap_or_else(|| "at once".to_owned());
            format!("paused, goes on {on}")
        }
    }
}

/// "0.4 s of machine time saved up, 1 % of the time comes in".
pub(crate) fn budget(planner: &v1::PlannerStatus) -> String {
    let credit = if planner.credit_ms < 0.0 {
        format!("overdrawn by {} of machine time", seconds(-planner.credit_ms))
    } else {
        format!("{} of machine time saved up", seconds(planner.credit_ms))
    };
    let income = if planner.duty > 0.0 {
        format!("{} of the time comes in", percent(planner.duty))
    } else {
        "nothing comes in under these conditions".to_owned()
    };
    format!("{credit}, {income}")
}

/// "0.4 s", where budgets are compared.
pub(crate) fn seconds(ms: f64) -> String {
    if ms < 60_000.0 { format!("{:.1} s", ms / 1000.0) } else { words::duration(ms) }
}

/// "1 %", "0.25 %".
fn percent(share: f64) -> String {
    let text = format!("{:.2}", 100.0 * share);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Which shape comes next, and when at the earliest.
pub(crate) fn next(planner: &v1::PlannerStatus, now_unix_ms: u64) -> String {
    let look = planner.looks_again_at_unix_ms;
    match (planner.next_shape.as_str(), look) {
        ("", 0) => "nothing, until something changes".to_owned(),
        ("", look) => {
            let when = moments::until(look, now_unix_ms).unwrap_or_else(|| "now".to_owned());
            format!("nothing; looked at again {when}")
        }
        (shape, 0) if planner.verdict() == v1::PlannerVerdict::Measure => format!("{shape}, now"),
        (shape, 0) => format!("{shape}, when something changes"),
        (shape, look) => match moments::until(look, now_unix_ms) {
            Some(when) => format!("{shape}, {when} at the earliest"),
            None => format!("{shape}, any moment"),
        },
    }
}

/// How many shapes should be measured, and the most frequent reason; nothing to say where nothing is wanted.
pub(crate) fn stale(planner: &v1::PlannerStatus) -> Option<String> {
    if planner.wanted == 0 && planner.stale.is_empty() {
        return None;
    }
    let wanted = words::count(planner.wanted as usize, "wanted shape");
    let Some((reason, times)) = most_frequent(&planner.stale) else {
        return Some(format!("none of {wanted}"));
    };
    let all = planner.stale.len();
    let reason = words::plain(reason);
    let why = if times == all { reason } else { format!("mostly ({times}) {reason}") };
    Some(format!("{all} of {wanted}: {why}"))
}

/// The first of those that occur most often, and how often.
fn most_frequent(stale: &[v1::StaleShape]) -> Option<(&str, usize)> {
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for shape in stale {
        match reasons.iter_mut().find(|(reason, _)| *reason == shape.reason) {
            Some((_, times)) => *times += 1,
            None => reasons.push((&shape.reason, 1)),
        }
    }
    reasons.into_iter().rev().max_by_key(|(_, times)| *times)
}

/// What keeps failing, a line each, and how many more there are.
pub(crate) fn troubles(planner: &v1::PlannerStatus, now_unix_ms: u64) -> Vec<String> {
    let mut lines: Vec<String> =
        planner.troubles.iter().take(TROUBLES).map(|trouble| self::trouble(trouble, now_unix_ms)).collect();
    let more = planner.troubles.len().saturating_sub(TROUBLES);
    if more > 0 {
        lines.push(format!("and {more} more: see 'fusionctl status --json'"));
    }
    lines
}

fn trouble(trouble: &v1::Trouble, now_unix_ms: u64) -> String {
    let times = match trouble.times {
        0 | 1 => String::new(),
        times => format!(", {times} times in a row"),
    };
    let retry = match trouble.retry_at_unix_ms {
        0 => String::new(),
        at => {
            let when = moments::until(at, now_unix_ms).unwrap_or_else(|| "when its turn comes".to_owned());
            format!("; tried again {when}")
        }
    };
    format!("{}: {}{times}{retry}", words::plain(&trouble.subject), words::plain(&trouble.reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_767_323_045_000;

    fn planner() -> v1::PlannerStatus {
        v1::PlannerStatus {
            decision: "not now: a client is busy (pid 7); next look at 2026-01-02 03:04:25 UTC".to_owned(),
            verdict: v1::PlannerVerdict::ClientBusy.into(),
            because: "a client is busy (pid 7)".to_owned(),
            next_shape: "8x8x8 f32 nk".to_owned(),
            looks_again_at_unix_ms: NOW + 20_000,
            credit_ms: 400.0,
            duty: 0.01,
            wanted: 3,
            ..Default::default()
        }
    }

    fn because(reasons: &[&str]) -> v1::PlannerStatus {
        let stale =
            |reason: &&str| v1::StaleShape { shape: "8x8x8".to_owned(), reason: (*reason).to_owned() };
        v1::PlannerStatus { stale: reasons.iter().map(stale).collect(), ..planner() }
    }

    #[test]
    fn the_next_look_is_said_once() {
        assert_eq!(decision(&planner(), NOW), "not now: a client is busy (pid 7)");
        assert_eq!(next(&planner(), NOW), "8x8x8 f32 nk, in 20 s at the earliest");
        assert_eq!(next(&planner(), NOW + 30_000), "8x8x8 f32 nk, any moment");
    }

    #[test]
    fn an_older_daemon_is_quoted() {
        let old = v1::PlannerStatus { verdict: 0, because: String::new(), ..planner() };
        assert_eq!(decision(&old, NOW), old.decision);
        let newer = v1::PlannerStatus { verdict: 99, ..planner() };
        assert_eq!(decision(&newer, NOW), newer.decision);
    }

    #[test]
    fn what_comes_next_depends_on_what_is_waited_for() {
        let waiting = v1::PlannerStatus { looks_again_at_unix_ms: 0, ..planner() };
        assert_eq!(next(&waiting, NOW), "8x8x8 f32 nk, when something changes");
        let runs = v1::PlannerStatus {
            decision: "now 8x8x8 f32 nk: stale".to_owned(),
            verdict: v1::PlannerVerdict::Measure.into(),
            because: String::new(),
            ..waiting
        };
        assert_eq!(decision(&runs, NOW), "now 8x8x8 f32 nk: stale");
        assert_eq!(next(&runs, NOW), "8x8x8 f32 nk, now");
        let nothing = v1::PlannerStatus { next_shape: String::new(), ..planner() };
        assert_eq!(next(&nothing, NOW), "nothing; looked at again in 20 s");
        let nothing = v1::PlannerStatus { looks_again_at_unix_ms: 0, ..nothing };
        assert_eq!(next(&nothing, NOW), "nothing, until something changes");
    }

    #[test]
    fn a_pause_comes_first() {
        let paused = v1::PlannerStatus { paused: true, ..planner() };
        let text = "paused until 'fusionctl resume'; not now: a client is busy (pid 7)";
        assert_eq!(decision(&paused, NOW), text);
        let only = v1::PlannerStatus { verdict: v1::PlannerVerdict::Paused.into(), ..paused.clone() };
        assert_eq!(decision(&only, NOW), "paused until 'fusionctl resume'");
        let brief = v1::PlannerStatus { paused_until_unix_ms: NOW + 1_740_000, ..paused };
        assert!(decision(&brief, NOW).starts_with("paused, goes on in 29 min; "));
        assert!(decision(&brief, NOW * 2).starts_with("paused, goes on at once; "));
    }

    #[test]
    fn a_budget_may_be_overdrawn_or_get_nothing() {
        assert_eq!(budget(&planner()), "0.4 s of machine time saved up, 1 % of the time comes in");
        let overdrawn = v1::PlannerStatus { credit_ms: -2100.0, duty: 0.0025, ..planner() };
        assert_eq!(budget(&overdrawn), "overdrawn by 2.1 s of machine time, 0.25 % of the time comes in");
        let nothing = v1::PlannerStatus { duty: 0.0, credit_ms: 0.0, ..planner() };
        assert!(
            budget(&nothing)
                .ends_with("0.0 s of machine time saved up, nothing comes in under these conditions")
        );
    }

    #[test]
    fn the_most_frequent_reason_stands_for_all() {
        assert_eq!(stale(&because(&["old"])).unwrap(), "1 of 3 wanted shapes: old");
        assert_eq!(stale(&because(&["new", "old", "old"])).unwrap(), "3 of 3 wanted shapes: mostly (2) old");
        assert_eq!(stale(&because(&["new", "old"])).unwrap(), "2 of 3 wanted shapes: mostly (1) new");
        assert_eq!(stale(&planner()).unwrap(), "none of 3 wanted shapes");
        assert_eq!(stale(&v1::PlannerStatus::default()), None);
    }

    #[test]
    fn many_troubles_are_counted() {
        let trouble = |times, retry_at_unix_ms| v1::Trouble {
            subject: "the worker".to_owned(),
            reason: "signal 9\u{7}".to_owned(),
            times,
            retry_at_unix_ms,
        };
        let planner = v1::PlannerStatus {
            troubles: vec![
                trouble(2, NOW + 480_000),
                trouble(1, NOW),
                trouble(1, 0),
                trouble(1, 0),
                trouble(1, 0),
            ],
            ..planner()
        };
        let lines = troubles(&planner, NOW);
        let expected = [
            "the worker: signal 9?, 2 times in a row; tried again in 8 min",
            "the worker: signal 9?; tried again when its turn comes",
            "the worker: signal 9?",
            "and 2 more: see 'fusionctl status --json'",
        ];
        assert_eq!(lines, expected);
    }
}
