//! The self-test: the same tiny product, timed in turns by a worker that the user's terminal started and by one that the daemon started.
//!
//! A manager may run the daemon in a throttled band: then everything that its worker measures is too slow, unevenly so for the two units, and
//! every ratio is wrong. On Macs an agent of the default `ProcessType` was measured 1.1 to 57 times slower than a shell (dryvist/nix-ai#916,
//! KarpelesLab/teamclaude#320, traycerai/traycer#705), and even an interactive one may be (raullenchai/Rapid-MLX#1363).

use crate::stats::{self, CONFIDENCE, Interval};

/// The daemon may be slower than the terminal by this factor. More than noise of a few rounds explains, and less than moves a ratio by more than
/// its own uncertainty: both units of a throttled worker are slowed.
pub const LIMIT: f64 = 1.1;

/// Pairs below which nothing is decided: one disturbed round must not decide alone.
pub const FEWEST_PAIRS: usize = 3;

/// One round: the median times of a call, in ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// By the terminal's worker.
    pub terminal_ms: f64,
    /// By the daemon's, right before or after.
    pub daemon_ms: f64,
}

/// What the rounds say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The daemon's worker is as fast, within [`LIMIT`].
    Equal,
    /// It is slower.
    Throttled,
    /// The interval straddles the limit, or there are too few rounds: the machine isn't quiet enough.
    Unresolved,
}

/// What came of a self-test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// How many times as long the daemon's worker takes.
    pub factor: Interval,
    /// Usable rounds behind it.
    pub pairs: usize,
    /// What that means.
    pub verdict: Verdict,
}

/// Judges the rounds of a self-test; `None` without a usable one.
pub fn compare(pairs: &[Pair]) -> Option<Comparison> {
    let usable = |time: f64| time.is_finite() && time > 0.0;
    let usable: Vec<(f64, f64)> = pairs
        .iter()
        .filter(|pair| usable(pair.terminal_ms) && usable(pair.daemon_ms))
        .map(|pair| (pair.daemon_ms, pair.terminal_ms))
        .collect();
    let factor = stats::ratio_of_pairs(&usable, CONFIDENCE)?;
    let verdict = match factor {
        _ if usable.len() < FEWEST_PAIRS => Verdict::Unresolved,
        Interval { low, .. } if low > LIMIT => Verdict::Throttled,
        Interval { high, .. } if high <= LIMIT => Verdict::Equal,
        _ => Verdict::Unresolved,
    };
    Some(Comparison { factor, pairs: usable.len(), verdict })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rounds(times: &[(f64, f64)]) -> Vec<Pair> {
        times.iter().map(|&(terminal_ms, daemon_ms)| Pair { terminal_ms, daemon_ms }).collect()
    }

    fn verdict(times: &[(f64, f64)]) -> Verdict {
        compare(&rounds(times)).unwrap().verdict
    }

    #[test]
    fn a_throttled_worker_is_told_from_an_equal_one_and_from_noise() {
        assert_eq!(verdict(&[(5.0, 5.1), (5.1, 5.0), (5.0, 5.0), (5.2, 5.1), (5.0, 5.05)]), Verdict::Equal);
        assert_eq!(
            verdict(&[(5.0, 7.1), (5.1, 7.0), (5.0, 7.0), (5.2, 7.1), (5.0, 6.9)]),
            Verdict::Throttled
        );
        assert_eq!(
            verdict(&[(5.0, 4.0), (5.0, 9.0), (5.0, 5.5), (9.0, 5.0), (5.0, 6.5)]),
            Verdict::Unresolved
        );
        // A faster daemon is no trouble.
        assert_eq!(verdict(&[(5.0, 2.5), (5.0, 2.5), (5.0, 2.5)]), Verdict::Equal);
    }

    #[test]
    fn one_disturbed_round_decides_nothing() {
        let disturbed =
            [(5.0, 5.0), (5.0, 60.0), (5.0, 5.0), (5.1, 5.0), (5.0, 5.1), (5.0, 5.0), (5.0, 5.05)];
        assert_eq!(verdict(&disturbed), Verdict::Equal);
        assert_eq!(verdict(&[(5.0, 60.0)]), Verdict::Unresolved);
    }

    #[test]
    fn rounds_without_times_say_nothing() {
        assert_eq!(compare(&[]), None);
        assert_eq!(compare(&rounds(&[(0.0, 5.0), (f64::NAN, 5.0), (5.0, f64::INFINITY), (5.0, -1.0)])), None);
    }

    proptest! {
        #[test]
        fn a_constant_factor_is_found_whatever_the_unit(factor in 0.2f64..5.0, scale in 0.01f64..100.0, count in 3usize..20) {
            let pairs: Vec<_> = (0..count).map(|_| (scale, factor * scale)).collect();
            let found = compare(&rounds(&pairs)).unwrap();
            prop_assert!((found.factor.value / factor - 1.0).abs() < 1e-9);
            let near = (factor / LIMIT).ln().abs() < 0.1;
            let expected = if factor > LIMIT { Verdict::Throttled } else { Verdict::Equal };
            prop_assert!(near || found.verdict == expected, "{found:?}");
        }
    }
}
