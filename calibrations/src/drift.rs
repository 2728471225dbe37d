//! Does following live lines pay? Two recordings of one cell, from different sessions of one machine, tell.
//!
//! The second session starts with the ratio that the first found best. Without correction it stays there. With it, the client observes a few split
//! calls, whose unit times come from the second session's fitted lines with lognormal noise, and the live lines choose anew. Both are judged by the second
//! session's own recorded times.

use crate::lines::Lines;
use crate::live::{LiveLines, Observation};
use crate::noise::{Noise, OUTLIER_FACTOR};
use crate::recorded::Grid;
use crate::rows::RowRule;
use crate::sample::{FinishTimes, Unit};

/// How the second session is replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Split calls that are observed.
    pub observed_calls: u32,
    /// Relative standard deviation of a unit's time.
    pub noise: f64,
    /// Share of a unit's times that something disturbed: they are [`OUTLIER_FACTOR`] times as long.
    pub outlier_share: f64,
    /// Selects the noise.
    pub seed: u64,
}

impl Settings {
    /// What noise makes of a unit's time.
    fn factor(&self, noise: &mut Noise) -> f64 {
        let factor = (self.noise * noise.normal()).exp();
        if noise.uniform() < self.outlier_share { factor * OUTLIER_FACTOR } else { factor }
    }
}

/// Regret in the second session: recorded time of the choice over the best recorded, less one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// With the first session's ratio.
    pub without: f64,
    /// After the observed calls.
    pub with: f64,
    /// With the second session's fitted lines, exactly known: what two lines can tell of that grid at most.
    pub informed: f64,
    /// Whether the second session was one: two lines fit it within [`STEADY_DEVIATION`].
    pub steady: bool,
}

/// Two lines fitted to a grid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// The lines.
    pub lines: Lines,
    /// Root mean square of the logarithm of predicted over recorded time.
    pub deviation: f64,
}

/// A grid that two lines miss by more than this changed while it was recorded: a session that heats up within one calibration
/// (M1 at 8192 rows) is no state that a ratio could be right for.
pub const STEADY_DEVIATION: f64 = 0.07;

/// Two-line fit of a whole grid: the boundary between the primary and the secondary unit's points that leaves the least squared error of logarithms.
/// Cliffs are left out. `None` with fewer than one point on each side.
pub fn fit(grid: &Grid, rule: &RowRule) -> Option<Fit> {
    let (rows, inputs) = (grid.shape.rows(), grid.shape.layer().inputs());
    let points: Vec<(u32, f64)> = grid
        .points
        .iter()
        .filter(|point| point.secondary_rows > 0 && !rule.is_cliff(point.secondary_rows, inputs))
        .map(|point| (point.secondary_rows, point.median_ms))
        .collect();
    let lines = |boundary: usize| {
        let (left, right) = points.split_at(boundary);
        let primary: Vec<f64> = left.iter().map(|(secondary, ms)| ms / f64::from(rows - secondary)).collect();
        let secondary: Vec<f64> = right.iter().map(|(secondary, ms)| ms / f64::from(*secondary)).collect();
        Some(Lines {
            primary_ms_per_row: geometric_mean(&primary)?,
            secondary_ms_per_row: geometric_mean(&secondary)?,
            overhead_ms: 0.0,
            stock_ms_per_row: grid.stock_ms() / f64::from(rows),
        })
    };
    let error = |lines: &Lines| -> f64 {
        points.iter().map(|(secondary, ms)| (lines.split_ms(rows, *secondary) / ms).ln().powi(2)).sum()
    };
    let best = (1..points.len()).filter_map(lines).min_by(|a, b| error(a).total_cmp(&error(b)))?;
    Some(Fit { lines: best, deviation: (error(&best) / points.len() as f64).sqrt() })
}

/// The value with the least squared error of logarithms.
fn geometric_mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty())
        .then(|| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// Replays the change from session `first` to session `second` of one cell; `None` if they aren't of one cell, or if the first found no split
/// better than stock: without a split there is nothing to observe.
pub fn replay(first: &Grid, second: &Grid, rule: &RowRule, settings: Settings) -> Option<Drift> {
    if first.chip != second.chip || first.shape != second.shape {
        return None;
    }
    let started = first.best().secondary_rows;
    let Fit { lines: truth, deviation } = fit(second, rule)?;
    let mut live = LiveLines::new(fit(first, rule)?.lines);
    let mut noise =
        Noise::for_use(settings.seed, &format!("{} {} {}", second.chip, second.arm, second.shape));
    let mut rows = Some(started).filter(|rows| *rows > 0)?;
    for index in 0..settings.observed_calls {
        let first_waited = if index % 2 == 0 { Unit::Primary } else { Unit::Secondary };
        live.observe(&call(&truth, second.shape.rows(), rows, first_waited, || settings.factor(&mut noise)));
        rows = choose(second, &live.lines(), rule)?;
    }
    let regret = |rows: u32| Some(second.ms_at(rows)? / second.best().median_ms - 1.0);
    let informed = choose(second, &truth, rule)?;
    Some(Drift {
        without: regret(started)?,
        with: regret(rows)?,
        informed: regret(informed)?,
        steady: deviation <= STEADY_DEVIATION,
    })
}

/// A split call whose units take what `truth` says, with noise; what a client sees of it.
fn call(
    truth: &Lines,
    rows: u32,
    secondary_rows: u32,
    first_waited: Unit,
    mut factor: impl FnMut() -> f64,
) -> Observation {
    let primary = truth.primary_ms_per_row * f64::from(rows - secondary_rows) * factor();
    let secondary = truth.secondary_ms_per_row * f64::from(secondary_rows) * factor();
    // The part that is waited for second is seen no earlier than the first.
    let (primary_ms, secondary_ms) = match first_waited {
        Unit::Primary => (primary, secondary.max(primary)),
        Unit::Secondary => (primary.max(secondary), secondary),
    };
    Observation {
        rows,
        secondary_rows,
        total_ms: primary.max(secondary) + truth.overhead_ms,
        finish_times: FinishTimes { primary_ms, secondary_ms, first_waited },
    }
}

/// The recorded split that the lines predict to be fastest.
fn choose(grid: &Grid, lines: &Lines, rule: &RowRule) -> Option<u32> {
    let (rows, inputs) = (grid.shape.rows(), grid.shape.layer().inputs());
    grid.split_rows()
        .into_iter()
        .filter(|candidate| !rule.is_cliff(*candidate, inputs))
        .min_by(|a, b| lines.split_ms(rows, *a).total_cmp(&lines.split_ms(rows, *b)))
}

/// Every ordered pair of two sessions of one cell.
pub fn session_pairs(grids: &[Grid]) -> Vec<(&Grid, &Grid)> {
    let pairs = grids.iter().enumerate().flat_map(|(index, first)| {
        grids
            .iter()
            .enumerate()
            .filter(move |(other, _)| *other != index)
            .map(move |(_, second)| (first, second))
    });
    pairs.filter(|(first, second)| first.chip == second.chip && first.shape == second.shape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::OUTLIER_SHARE;
    use crate::recorded;

    fn runs(steady: bool, outlier_share: f64) -> Vec<Drift> {
        let grids: Vec<Grid> =
            recorded::all().unwrap().iter().flat_map(|machine| machine.grids.clone()).collect();
        session_pairs(&grids)
            .into_iter()
            .flat_map(|(first, second)| {
                (0..5).filter_map(|seed| {
                    replay(
                        first,
                        second,
                        &RowRule::apple(),
                        Settings { observed_calls: 3, noise: 0.015, outlier_share, seed },
                    )
                })
            })
            .filter(|run| run.steady || !steady)
            .collect()
    }

    fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
        let count = values.len() as f64;
        values.sum::<f64>() / count
    }

    #[test]
    fn three_observed_calls_recover_what_a_new_session_costs() {
        let all = runs(false, 0.0);
        let (without, with) = (mean(all.iter().map(|run| run.without)), mean(all.iter().map(|run| run.with)));
        assert!((0.05..0.07).contains(&without) && with <= 0.01, "{without} {with}");
        let disturbed = mean(runs(false, OUTLIER_SHARE).iter().map(|run| run.with));
        assert!(disturbed <= 0.014, "{disturbed}");
        let steady = runs(true, OUTLIER_SHARE);
        let (without, with) =
            (mean(steady.iter().map(|run| run.without)), mean(steady.iter().map(|run| run.with)));
        assert!(without > 0.04 && with <= 0.01, "{without} {with}");
    }

    #[test]
    fn sessions_of_different_cells_are_no_pair() {
        let machine = recorded::find("m4").unwrap();
        let other = machine.grids.iter().find(|grid| grid.shape != machine.grids[0].shape).unwrap();
        let settings = Settings { observed_calls: 3, noise: 0.0, outlier_share: 0.0, seed: 0 };
        assert_eq!(replay(&machine.grids[0], other, &RowRule::apple(), settings), None);
    }
}
