//! What a search concludes from its samples: whether the best split found is chosen, and why the others aren't.

use statrs::distribution::{ContinuousCDF as _, Normal};

use super::{Candidates, DECISION_CONFIDENCE, Outcome, Rejection, Search, Verdict, evidence};
use crate::ratio::Ratio;
use crate::sample::{DropReason, Sample};
use crate::stats::{CONFIDENCE, Interval, ratio_of_pairs};

/// Relative standard deviation of a speed-up between sessions of one machine, from the 19 pairs of FusionML's grids that
/// recorded one shape twice (171 ratios, scaled median of the differences). It is mostly heat: M2 and M4 repeat within 1 %, M1 and M4 Pro differ
/// by 5 to 25 %. Part of every choice through [`ANOTHER_SESSION`], and shown in [`Outcome::speed_up_any_session`].
pub const SESSION_DEVIATION: f64 = 0.057;

/// A split is chosen only if it wins in another session of the machine with at least this probability, the session's own uncertainty and
/// [`SESSION_DEVIATION`] together: a gain of about 5 % and more.
///
/// Not 97.5 %, which asks for a gain of 12 %: a session that turns out to lose is noticed (live lines, the gate) and costs a few
/// calls, one that wins gains as long as it lasts. So odds of four to one are enough to begin; what must be beyond doubt is
/// that the split wins now ([`DECISION_CONFIDENCE`]).
pub const ANOTHER_SESSION: f64 = 0.8;

impl Search {
    /// The rows that stand for splitting: those that are confirmed, unless others were faster by more than rows near the balance differ. Nothing
    /// makes a product too fast, so the calls that confirm were accidents then.
    fn best_split(&self) -> Option<u32> {
        let fastest = self.fastest_split()?;
        let confirmed = self.phase.rows().filter(|rows| !self.are_accidents(*rows));
        confirmed.or(Some(fastest.secondary_rows))
    }

    fn fastest_split(&self) -> Option<&Sample> {
        let inputs = self.shape.layer().inputs();
        let splits = self.samples.iter().filter(|sample| {
            sample.is_kept()
                && sample.secondary_rows > 0
                && !self.rule.is_cliff(sample.secondary_rows, inputs)
        });
        splits.min_by(|a, b| a.total_ms.total_cmp(&b.total_ms))
    }

    /// Whether all calls at these rows were slower than another split by more than rows near the balance differ.
    pub(super) fn are_accidents(&self, rows: u32) -> bool {
        let (Some(fastest), Some(ms)) = (self.fastest_split(), evidence::total_ms(&self.samples, rows))
        else {
            return false;
        };
        ms > fastest.total_ms * evidence::ACCIDENT_FACTOR
    }

    /// Whether these rows lose though the first call after a change to splitting, which is usually a slow one, was faster than stock.
    pub(super) fn loses_against_a_first_call(&self, rows: u32) -> bool {
        let (Some(stock), Some(split)) =
            (evidence::total_ms(&self.samples, 0), evidence::total_ms(&self.samples, rows))
        else {
            return false;
        };
        let first = |sample: &&Sample| {
            sample.secondary_rows > 0 && sample.dropped == Some(DropReason::FirstAfterChange)
        };
        split > stock && self.samples.iter().filter(first).any(|sample| sample.total_ms < stock)
    }

    pub(super) fn conclude(&self, out_of_budget: bool) -> Outcome {
        let best = self.best_split();
        let pairs = best.map(|rows| evidence::pairs(&self.samples, rows)).unwrap_or_default();
        let (deciding, speed_up) =
            (ratio_of_pairs(&pairs, DECISION_CONFIDENCE), ratio_of_pairs(&pairs, CONFIDENCE));
        let verdict = match deciding {
            None => Verdict::NoEvidence,
            // The interval of few pairs is wide enough by itself; more than these are wanted only while there is a budget.
            Some(interval)
                if (out_of_budget || pairs.len() >= self.minimum_pairs()) && wins(interval, speed_up) =>
            {
                Verdict::Confirmed
            }
            Some(interval) if out_of_budget && interval.high > 1.0 => Verdict::Unresolved,
            Some(_) => Verdict::NotBetter,
        };
        let secondary_rows = best.filter(|_| verdict == Verdict::Confirmed).unwrap_or(0);
        Outcome {
            verdict,
            ratio: Ratio::saturating(f64::from(secondary_rows) / f64::from(self.shape.rows())),
            secondary_rows,
            lines: self.lines(),
            stock_ms: evidence::total_ms(&self.samples, 0),
            split_ms: best.and_then(|rows| evidence::total_ms(&self.samples, rows)),
            best_split_rows: best,
            speed_up,
            speed_up_any_session: speed_up.map(any_session),
            pairs: u32::try_from(pairs.len()).unwrap_or(u32::MAX),
            rejected: self.rejected(best, secondary_rows),
            discovered_cliffs: self.discovered.clone(),
        }
    }

    fn rejected(&self, best: Option<u32>, chosen: u32) -> Vec<(u32, Rejection)> {
        let mut rows: Vec<u32> =
            self.samples.iter().map(|sample| sample.secondary_rows).filter(|rows| *rows > 0).collect();
        if let Candidates::Rows(list) = &self.options.candidates {
            rows.extend(list.iter().filter(|rows| self.rule.is_cliff(**rows, self.shape.layer().inputs())));
        }
        rows.sort_unstable();
        rows.dedup();
        rows.retain(|rows| *rows != chosen);
        rows.into_iter().map(|rows| (rows, self.why_rejected(rows, best))).collect()
    }

    fn why_rejected(&self, rows: u32, best: Option<u32>) -> Rejection {
        if self.discovered.iter().any(|cliff| cliff.secondary_rows == rows) {
            Rejection::DiscoveredCliff
        } else if self.rule.is_cliff(rows, self.shape.layer().inputs()) {
            Rejection::Cliff
        } else if best == Some(rows) {
            Rejection::NotBetterThanStock
        } else {
            Rejection::Slower
        }
    }
}

/// Whether a split is chosen: it wins in this session beyond doubt, and probably in another one too.
fn wins(deciding: Interval, speed_up: Option<Interval>) -> bool {
    deciding.low > 1.0 && speed_up.is_some_and(|interval| wins_another_session(interval) >= ANOTHER_SESSION)
}

/// The probability that a gain with this 95 % interval is one in another session of the machine too.
pub fn wins_another_session(interval: Interval) -> f64 {
    let within = (interval.high / interval.low).ln() / 2.0 / NORMAL_95;
    let gain = interval.value.ln() / within.hypot(SESSION_DEVIATION);
    Normal::standard().cdf(gain)
}

/// Half the width of a 95 % interval, in standard deviations of a normal distribution.
const NORMAL_95: f64 = 1.96;

/// The interval widened by what sessions of one machine differ ([`SESSION_DEVIATION`]), variances added in the logarithm.
pub fn any_session(interval: Interval) -> Interval {
    let within = (interval.high / interval.low).ln() / 2.0;
    let half_width = within.hypot(NORMAL_95 * SESSION_DEVIATION);
    Interval {
        low: interval.value * (-half_width).exp(),
        value: interval.value,
        high: interval.value * half_width.exp(),
    }
}
