//! Whether the daemon's worker is as fast as the terminal's.

use fusion_calibrations::self_test::{Comparison, LIMIT, Verdict};

use crate::doctor::Check;
use crate::doctor::facts::{Facts, SelfTested};

const ID: &str = "self-test";

pub(super) fn check(facts: &Facts) -> Check {
    match &facts.self_test {
        SelfTested::Done(comparison) => judge(comparison),
        SelfTested::Not { why } => Check::warn(
            ID,
            format!("not made: {why}"),
            "whether the daemon's worker is as fast as a terminal's is not known",
            "run 'fusionctl doctor' again when the daemon rests",
        ),
        SelfTested::Unwanted => Check::pass(ID, "left out, as asked"),
    }
}

fn judge(comparison: &Comparison) -> Check {
    let Comparison { factor, pairs, verdict } = comparison;
    let found = format!(
        "the daemon's worker takes {:.2} [{:.2}, {:.2}] times as long as one of this terminal ({pairs} rounds)",
        factor.value, factor.low, factor.high
    );
    match verdict {
        Verdict::Equal => Check::pass(ID, found),
        Verdict::Throttled => Check::fail(
            ID,
            found,
            "the system throttles the daemon, so its measurements would be wrong: it measures nothing and serves nothing that was measured here, until a test passes or it is started anew",
            "'fusionctl install' installs an agent that isn't throttled; then 'fusionctl restart' and 'fusionctl doctor'",
        ),
        Verdict::Unresolved => Check::warn(
            ID,
            found,
            &format!("that doesn't tell whether it is below {LIMIT}: other programs disturbed the test"),
            "close other programs and run 'fusionctl doctor' again",
        ),
    }
}
