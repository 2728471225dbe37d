//! `fusionctl.doctor/1`.

use fusion_calibrations::self_test::{Comparison, Verdict};
use fusion_client::v1;
use serde::Serialize;

use super::shared::Interval;
use crate::doctor::facts::SelfTested;
use crate::doctor::{Check, Outcome, worst};

#[derive(Debug, Serialize)]
pub(crate) struct Doctor<'a> {
    version: &'static str,
    outcome: Outcome,
    checks: &'a [Check],
    self_test: Option<SelfTest>,
}

impl<'a> Doctor<'a> {
    pub(crate) fn new(checks: &'a [Check], tested: &SelfTested) -> Self {
        let self_test = match tested {
            SelfTested::Done(comparison) => Some(SelfTest::from(comparison)),
            SelfTested::Not { .. } | SelfTested::Unwanted => None,
        };
        Self { version: fusion_client::VERSION, outcome: worst(checks), checks, self_test }
    }
}

#[derive(Debug, Serialize)]
struct SelfTest {
    verdict: &'static str,
    factor: Interval,
    rounds: usize,
}

impl From<&Comparison> for SelfTest {
    fn from(comparison: &Comparison) -> Self {
        let verdict = match comparison.verdict {
            Verdict::Equal => "equal",
            Verdict::Throttled => "throttled",
            Verdict::Unresolved => "unresolved",
        };
        let factor = Interval::from(&v1::Interval::from(comparison.factor));
        Self { verdict, factor, rounds: comparison.pairs }
    }
}
