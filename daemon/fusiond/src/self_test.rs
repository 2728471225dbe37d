//! Whether the daemon's surroundings slow its worker, and what follows.
//!
//! The daemon can't find out alone: somebody has to time the same product outside of them ([`fusion_calibrations::self_test`]). What came of
//! it is kept as long as the daemon lives: the next one may run in other surroundings.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use fusion_calibrations::search::Ask;
use fusion_calibrations::self_test::{Comparison, Pair, Verdict, compare};
use fusion_proto::v1;

use crate::machine::{Machine, MachineError};
use crate::measure::unix_ms;
use crate::table::Table;

/// Calls of a round. The first of the whole test warms up and isn't told.
pub const CALLS: u32 = 5;
/// Why nothing measured here is served, and nothing is measured.
pub const REASON: &str = "agent throttled: the daemon's worker is slower than the same worker started from a terminal; \
     install it with 'fusionctl install', or start it from a terminal, then run 'fusionctl doctor'";

/// The last self-test of this daemon.
#[derive(Debug)]
pub struct SelfTests {
    table: Arc<Table>,
    last: Mutex<Option<Reported>>,
}

#[derive(Debug, Clone, Copy)]
struct Reported {
    comparison: Comparison,
    at_unix_ms: u64,
}

impl SelfTests {
    /// None was made yet: what is known is served.
    pub fn new(table: Arc<Table>) -> Self {
        Self { table, last: Mutex::default() }
    }

    /// Takes the rounds of a self-test; what they say, or `None` without a usable one. A throttled worker's numbers are withheld until a test
    /// passes; one that tells nothing changes nothing.
    pub fn report(&self, pairs: &[Pair]) -> Option<Comparison> {
        let comparison = compare(pairs)?;
        *self.last() = Some(Reported { comparison, at_unix_ms: unix_ms(SystemTime::now()) });
        match comparison.verdict {
            Verdict::Throttled => self.table.withhold(true),
            Verdict::Equal => self.table.withhold(false),
            Verdict::Unresolved => {}
        }
        Some(comparison)
    }

    /// Why nothing measured here is served; empty if it is.
    pub fn withheld(&self) -> String {
        if self.table.is_withheld() { REASON.to_owned() } else { String::new() }
    }

    /// For the status; `None` until somebody tested.
    pub fn status(&self) -> Option<v1::SelfTestStatus> {
        let Reported { comparison, at_unix_ms } = (*self.last())?;
        let verdict = match comparison.verdict {
            Verdict::Equal => v1::SelfTestVerdict::Equal,
            Verdict::Throttled => v1::SelfTestVerdict::Throttled,
            Verdict::Unresolved => v1::SelfTestVerdict::Unresolved,
        };
        Some(v1::SelfTestStatus {
            verdict: verdict.into(),
            factor: Some(comparison.factor.into()),
            pairs: u32::try_from(comparison.pairs).unwrap_or(u32::MAX),
            reported_at_unix_ms: at_unix_ms,
            withheld: self.withheld(),
        })
    }

    fn last(&self) -> MutexGuard<'_, Option<Reported>> {
        self.last.lock().expect("no holder of this lock panics")
    }
}

/// A round: the time of each call of the prepared product, in ms.
///
/// # Errors
/// Every [`MachineError`].
pub async fn round(machine: &mut Machine) -> Result<Vec<f64>, MachineError> {
    let mut times_ms = Vec::new();
    for _ in 0..CALLS {
        times_ms.push(machine.time(Ask::Stock).await?.sample.total_ms);
    }
    Ok(times_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(daemon_ms: f64) -> [Pair; 5] {
        [Pair { terminal_ms: 5.0, daemon_ms }; 5]
    }

    #[test]
    fn a_throttled_worker_is_not_believed_until_a_test_passes() {
        let table = Arc::new(Table::default());
        let tests = SelfTests::new(Arc::clone(&table));
        assert_eq!((tests.status(), tests.withheld().as_str()), (None, ""));
        assert_eq!(tests.report(&rounds(8.0)).unwrap().verdict, Verdict::Throttled);
        assert!(table.is_withheld() && tests.withheld().starts_with("agent throttled"));
        let noisy = [(5.0, 4.0), (5.0, 9.0), (5.0, 5.5), (9.0, 5.0)]
            .map(|(terminal_ms, daemon_ms)| Pair { terminal_ms, daemon_ms });
        assert_eq!(tests.report(&noisy).unwrap().verdict, Verdict::Unresolved);
        assert!(table.is_withheld(), "nothing was resolved");
        assert_eq!(tests.report(&[]), None);
        assert_eq!(tests.report(&rounds(5.1)).unwrap().verdict, Verdict::Equal);
        assert!(!table.is_withheld());
        assert_eq!(tests.status().unwrap().verdict(), v1::SelfTestVerdict::Equal);
    }
}
