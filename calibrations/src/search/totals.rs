//! The search where only total times are known.

use std::cell::OnceCell;

use super::posterior::{Belief, Cloud, Observation, Trust};
use super::{Candidates, FIRST_RATIO_TOTALS, Known, Search, Start, evidence};
use crate::lines::Lines;
use crate::ratio::Ratio;
use crate::recorded::Grid;
use crate::rows::RowRule;
use crate::stats::PRIOR_RELATIVE_DEVIATION;

/// A probe must be expected to lower the time of the choice by this share, per machine time of one stock call.
const WORTH_PROBING: f64 = 0.00015;
/// Steps of the shares that are considered where any row count may be chosen.
const SHARE_STEP: f64 = 0.025;
/// A single call this much (logarithm) above what two lines allow may be an accident: it is believed little until repeated.
const SUSPICIOUS: f64 = 0.07;
/// Standard deviation of a suspicious call.
const SUSPICIOUS_DEVIATION: f64 = 0.4;
/// The start is wrong when those who doubt it have this weight.
const WRONG_START: f64 = 0.3;
/// A best split this much (logarithm) slower than the start's lines promised is looked at again from far away.
const SHORTFALL: f64 = 0.1;
/// From this share on the secondary unit dominates on every chip recorded.
const FAR_ENOUGH: f64 = 0.4;
/// Degrees of freedom that the usual noise of a call counts for.
const PRIOR_DEGREES: f64 = 4.0;
/// Split calls at most before the comparison with stock.
const MOST_PROBES: usize = 14;

/// How far the chip's file, or lines of something near, are believed.
const PRIOR_TRUST: Trust = Trust { secondary: 0.12, primary: 0.06, doubt: 0.25 };
/// How far an earlier calibration of the very shape is believed.
const WARM_TRUST: Trust = Trust { secondary: 0.06, primary: 0.04, doubt: 0.15 };

/// What the totals search knows at one moment.
pub(super) struct Totals {
    rows: Vec<u32>,
    belief: Option<Belief>,
    noise: f64,
}

impl Totals {
    pub(super) fn into_belief(self) -> Option<Belief> {
        self.belief
    }
}

pub(super) type CloudCell = OnceCell<Cloud>;

impl Search {
    pub(super) fn cloud(&self) -> &Cloud {
        self.cloud.get_or_init(|| match &self.options.start {
            Start::Prior(lines) => Cloud::around(lines, self.shape.rows(), PRIOR_TRUST),
            Start::Warm(Known { lines: Some(lines), .. }) => {
                Cloud::around(lines, self.shape.rows(), WARM_TRUST)
            }
            Start::Cold | Start::Warm(_) => Cloud::cold(),
        })
    }

    /// Choosable rows, 0 first, rising.
    pub(super) fn candidate_rows(&self) -> Vec<u32> {
        let inputs = self.shape.layer().inputs();
        let mut rows: Vec<u32> = match &self.options.candidates {
            Candidates::Rows(list) => {
                list.iter().copied().filter(|rows| *rows <= self.shape.rows()).collect()
            }
            Candidates::Any => (1..)
                .map(|step| f64::from(step) * SHARE_STEP)
                .take_while(|share| *share <= Ratio::MAX.get())
                .map(|share| self.rule.secondary_rows(self.shape, Ratio::saturating(share)))
                .collect(),
        };
        rows.extend(self.samples.iter().map(|sample| sample.secondary_rows));
        rows.push(0);
        rows.retain(|rows| !self.rule.is_cliff(*rows, inputs));
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// What the samples so far say.
    pub(super) fn totals(&self) -> Totals {
        let rows = self.candidate_rows();
        let shares: Vec<f64> = rows.iter().map(|rows| self.share(*rows)).collect();
        let noise = self.call_deviation(&rows);
        let mut observations: Vec<Observation> = rows
            .iter()
            .filter_map(|&rows| {
                let times = evidence::usable_totals(&self.samples, rows);
                observe(self.share(rows), &times, noise)
            })
            .collect();
        self.doubt_accidents(&rows, &mut observations);
        let belief = self.cloud().update(&observations, &shares);
        Totals { rows, belief, noise }
    }

    fn share(&self, rows: u32) -> f64 {
        f64::from(rows) / f64::from(self.shape.rows())
    }

    /// Relative standard deviation of one call: that of repeated calls here, pooled with the usual one.
    fn call_deviation(&self, rows: &[u32]) -> f64 {
        let (mut squares, mut degrees) = (PRIOR_DEGREES * PRIOR_RELATIVE_DEVIATION.powi(2), PRIOR_DEGREES);
        for &rows in rows {
            let logs = logarithms(&evidence::usable_totals(&self.samples, rows));
            let mean = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
            squares += logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
            degrees += logs.len().saturating_sub(1) as f64;
        }
        (squares / degrees).sqrt()
    }

    /// Believes single calls little that no two lines could explain next to the others.
    ///
    /// From share q to a larger share r the time of `max(g (1 - r), c r) + o` grows by at most r / q, and to a smaller one by at most
    /// (1 - r) / (1 - q). A single call beyond that was disturbed, or found a cliff: a second call tells.
    fn doubt_accidents(&self, rows: &[u32], observations: &mut [Observation]) {
        let all = observations.to_vec();
        for observation in observations.iter_mut().filter(|observation| observation.share > 0.0) {
            let calls = rows
                .iter()
                .filter(|rows| self.share(**rows) == observation.share)
                .map(|rows| evidence::usable_totals(&self.samples, *rows).len())
                .sum::<usize>();
            let bound = all
                .iter()
                .filter(|other| other.share > 0.0 && other.share != observation.share)
                .map(|other| other.log_ms + steepest(other.share, observation.share))
                .fold(f64::INFINITY, f64::min);
            if calls == 1 && observation.log_ms > bound + SUSPICIOUS {
                observation.variance = SUSPICIOUS_DEVIATION * SUSPICIOUS_DEVIATION;
            }
        }
    }

    /// Where a cold search would have started, once the start has turned out wrong.
    fn far_probe(&self, totals: &Totals, belief: &Belief) -> Option<u32> {
        if belief.doubt > WRONG_START { self.unseen_far_rows(totals) } else { None }
    }

    /// Whether the best split found gains less than the start's lines promised, so that something better may lie elsewhere.
    fn falls_short(&self, log_time: f64) -> bool {
        let Start::Prior(lines) = &self.options.start else { return false };
        let rows = self.shape.rows();
        let best = self.rule.secondary_rows(self.shape, lines.balanced_ratio());
        log_time - (lines.split_ms(rows, best) / lines.stock_ms(rows)).ln() > SHORTFALL
    }

    fn unseen_far_rows(&self, totals: &Totals) -> Option<u32> {
        let far = self.allowed(self.rule.secondary_rows(self.shape, Ratio::saturating(FIRST_RATIO_TOTALS)));
        let seen = totals
            .rows
            .iter()
            .any(|&rows| self.share(rows) >= FAR_ENOUGH && evidence::total_ms(&self.samples, rows).is_some());
        (far > 0 && !seen && self.split_calls() < MOST_PROBES).then_some(far)
    }

    /// The rows to probe next, or `Err` with the choice when no probe is worth its time.
    pub(super) fn probe_totals(&self) -> Result<u32, u32> {
        let totals = self.totals();
        let Some(belief) = &totals.belief else { return Err(0) };
        let splits: Vec<usize> = (0..totals.rows.len()).filter(|index| totals.rows[*index] > 0).collect();
        let Some(best) = belief.best(|index| totals.rows[index] > 0) else { return Err(0) };
        if let Some(far) = self.far_probe(&totals, belief) {
            return Ok(far);
        }
        let stock = belief.best(|index| totals.rows[index] == 0).map_or(0.0, |index| belief.mean[index]);
        let variance = totals.noise * totals.noise;
        let worth = |index: usize| {
            belief.knowledge_gradient(index, variance, &splits) / (belief.mean[index] - stock).exp()
        };
        let probe = splits
            .iter()
            .map(|&index| (worth(index), index))
            .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        match probe {
            Some((worth, index)) if worth > WORTH_PROBING && self.split_calls() < MOST_PROBES => {
                Ok(totals.rows[index])
            }
            _ if self.falls_short(belief.mean[best] - stock) => {
                self.unseen_far_rows(&totals).ok_or(totals.rows[best])
            }
            _ => Err(totals.rows[best]),
        }
    }
}

/// Logarithm of the largest factor by which two lines can grow from one share to another.
fn steepest(from: f64, to: f64) -> f64 {
    if to > from { (to / from).ln() } else { ((1.0 - to) / (1.0 - from)).ln() }
}

/// A candidate's evidence: the mean of the logarithms.
fn observe(share: f64, times: &[f64], noise: f64) -> Option<Observation> {
    let logs = logarithms(times);
    if logs.is_empty() {
        return None;
    }
    let count = logs.len() as f64;
    Some(Observation { share, log_ms: logs.iter().sum::<f64>() / count, variance: noise * noise / count })
}

fn logarithms(times: &[f64]) -> Vec<f64> {
    times.iter().map(|ms| ms.ln()).collect()
}

/// The lines that describe all of a recorded grid best: the fit of the search, from every point that is no cliff.
pub(crate) fn fit_grid(grid: &Grid, rule: &RowRule) -> Option<Lines> {
    let observations: Vec<Observation> = grid
        .points
        .iter()
        .filter(|point| !rule.is_cliff(point.secondary_rows, grid.shape.layer().inputs()))
        .map(|point| Observation {
            share: f64::from(point.secondary_rows) / f64::from(grid.shape.rows()),
            log_ms: point.median_ms.ln(),
            variance: PRIOR_RELATIVE_DEVIATION.powi(2),
        })
        .collect();
    Some(Cloud::cold().update(&observations, &[])?.lines(grid.stock_ms(), grid.shape.rows()))
}
