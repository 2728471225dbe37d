//! The search, run on recorded grids: how good are its choices, and what do they cost?
//!
//! A run restricts the search to the recorded row counts and tells it only totals, with seeded noise. *Regret* is the recorded
//! time of the choice over the best recorded time, less one. *Cost share* is the machine time of all calls, thrown-away ones
//! included, over that of the paper's full grid (nine calls per candidate).

use crate::chips::{self, Rate};
use crate::lines::Lines;
use crate::noise::Noise;
use crate::recorded::{self, Grid};
use crate::rows::RowRule;
use crate::search::{Budget, Candidates, Evidence, Known, Options, Outcome, Search, Start, Step};
use crate::stats::median;

/// What the search is given to start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StartKind {
    /// Nothing but the row rule.
    Cold,
    /// The chip's file, fitted without this grid.
    Prior,
    /// This cell's own estimate of an earlier run, with other noise.
    Warm,
    /// The file of another chip: each of the others in turn, by seed.
    WrongPrior,
    /// What all other chips have in common: nothing of this chip was seen.
    OtherChips,
}

/// How often and how noisily grids are replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Runs per grid.
    pub seeds: u64,
    /// Relative standard deviation of a call; 2 % of the calls take 1.5 times as long on top.
    pub noise: f64,
    /// What the search starts from.
    pub start: StartKind,
}

/// One run of one grid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Recorded ratio of the chosen rows.
    pub chosen_ratio: f64,
    /// Its recorded time, in ms.
    pub chosen_ms: f64,
    /// Recorded time over the best recorded, less one.
    pub regret: f64,
    /// Calls made.
    pub calls: u32,
    /// Machine time of all calls, in ms.
    pub machine_ms: f64,
    /// Machine time over that of the full grid.
    pub cost_share: f64,
}

/// Mean, 95th percentile and largest regret, and mean cost share, over runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Mean regret.
    pub regret_mean: f64,
    /// 95th percentile of the regret (nearest rank).
    pub regret_p95: f64,
    /// Largest regret.
    pub regret_max: f64,
    /// Mean cost share.
    pub cost_share_mean: f64,
}

/// Summarises (regret, cost share) pairs; `None` of nothing.
pub fn summarise(runs: impl IntoIterator<Item = (f64, f64)>) -> Option<Summary> {
    let (mut regrets, shares): (Vec<f64>, Vec<f64>) = runs.into_iter().unzip();
    let count = regrets.len();
    regrets.sort_by(f64::total_cmp);
    let rank = (count as f64 * 0.95).ceil() as usize;
    Some(Summary {
        regret_mean: regrets.iter().sum::<f64>() / count as f64,
        regret_p95: *regrets.get(rank.checked_sub(1)?)?,
        regret_max: *regrets.last()?,
        cost_share_mean: shares.iter().sum::<f64>() / count as f64,
    })
}

/// Replays `grid` once per seed. `others` are grids that a prior for an unshipped chip may be fitted from.
pub fn replay(grid: &Grid, others: &[Grid], settings: Settings) -> Vec<Run> {
    (0..settings.seeds)
        .map(|seed| {
            let start = start_for(grid, others, settings, seed);
            let mut noise = Noise::for_use(seed, &format!("{} {} {}", grid.chip, grid.arm, grid.shape));
            let (search, outcome) = search(grid, start, seed, &mut noise, settings.noise);
            let chosen_ms = grid.ms_at(outcome.secondary_rows).unwrap_or(f64::INFINITY);
            Run::of(grid, chosen_ms, search.calls(), search.machine_ms())
        })
        .collect()
}

impl Run {
    fn of(grid: &Grid, chosen_ms: f64, calls: u32, machine_ms: f64) -> Self {
        let ratio =
            grid.points.iter().find(|point| point.median_ms == chosen_ms).map_or(0.0, |point| point.ratio);
        Self {
            chosen_ratio: ratio,
            chosen_ms,
            regret: chosen_ms / grid.best().median_ms - 1.0,
            calls,
            machine_ms,
            cost_share: machine_ms / grid.full_grid_ms(),
        }
    }
}

/// One search on `grid`, to its end.
fn search(grid: &Grid, start: Start, seed: u64, noise: &mut Noise, deviation: f64) -> (Search, Outcome) {
    let options = Options {
        start,
        evidence: Evidence::Totals,
        candidates: Candidates::Rows(grid.split_rows()),
        rule: RowRule::apple(),
        budget: Budget::totals(),
        seed,
        ..Options::default()
    };
    let mut search = Search::new(grid.shape, options);
    loop {
        match search.next() {
            Step::Done(outcome) => return (search, *outcome),
            Step::Measure(ask) => {
                let told = grid.call(ask, noise, deviation).map(|sample| search.tell(sample));
                debug_assert!(matches!(told, Some(Ok(()))), "asked for rows that weren't recorded");
            }
        }
    }
}

fn start_for(grid: &Grid, others: &[Grid], settings: Settings, seed: u64) -> Start {
    match settings.start {
        StartKind::Cold => Start::Cold,
        StartKind::Prior => prior_lines(grid, others).map_or(Start::Cold, Start::Prior),
        StartKind::WrongPrior => wrong_lines(grid, seed).map_or(Start::Cold, Start::Prior),
        StartKind::OtherChips => other_chips_lines(grid).map_or(Start::Cold, Start::Prior),
        StartKind::Warm => {
            let mut noise =
                Noise::for_use(seed, &format!("earlier {} {} {}", grid.chip, grid.arm, grid.shape));
            let (_, earlier) = search(grid, Start::Cold, seed, &mut noise, settings.noise);
            match (earlier.stock_ms, earlier.split_ms) {
                (Some(stock_ms), Some(split_ms)) => Start::Warm(Known {
                    secondary_rows: earlier.secondary_rows,
                    lines: earlier.lines,
                    stock_ms,
                    split_ms,
                }),
                _ => Start::Cold,
            }
        }
    }
}

/// The name of a shipped chip for a chip as files name it: "M3_Pro" is "m3-pro".
fn shipped_name(chip: &str) -> String {
    chip.to_lowercase().replace(['_', ' '], "-").trim_start_matches("apple-").to_owned()
}

/// Lines for the grid's layer from the same chip's other grids: the shipped ones, or for an unshipped chip those next to it in
/// its file.
fn prior_lines(grid: &Grid, others: &[Grid]) -> Option<Lines> {
    let shipped = recorded::find(&shipped_name(&grid.chip));
    let same_chip = |other: &&Grid| shipped_name(&other.chip) == shipped_name(&grid.chip);
    let pool = shipped.map_or(others, |machine| &machine.grids);
    let unseen = pool
        .iter()
        .filter(same_chip)
        .filter(|other| other.shape != grid.shape || other.points != grid.points);
    lines_from(&chips::fit_rates(unseen, &RowRule::apple()), grid)
}

fn wrong_lines(grid: &Grid, seed: u64) -> Option<Lines> {
    let wrong: Vec<_> =
        chips::all().ok()?.iter().filter(|chip| chip.name != shipped_name(&grid.chip)).collect();
    let chip = wrong.get((seed % wrong.len() as u64) as usize)?;
    chip.lines(grid.shape.layer(), None)
}

fn other_chips_lines(grid: &Grid) -> Option<Lines> {
    // Their absolute rates differ, but only rates relative to stock's are used.
    let rates: Vec<Rate> = chips::all()
        .ok()?
        .iter()
        .filter(|chip| chip.name != shipped_name(&grid.chip))
        .flat_map(|chip| chip.rates.iter().copied())
        .collect();
    lines_from(&rates, grid)
}

fn lines_from(rates: &[Rate], grid: &Grid) -> Option<Lines> {
    chips::lines_from_rates(rates, grid.shape.layer(), 1.0)
}

/// The paper's calibration: two warm-up calls and seven timed ones per candidate, the smallest median wins, ties go to the
/// first.
pub fn paper_grid(grid: &Grid, settings: Settings) -> Vec<Run> {
    (0..settings.seeds)
        .map(|seed| {
            let mut noise = Noise::for_use(seed, &format!("paper {} {} {}", grid.chip, grid.arm, grid.shape));
            let (mut spent, mut best, mut chosen) = (0.0, f64::INFINITY, grid.stock_ms());
            for point in &grid.points {
                let calls: Vec<f64> =
                    (0..9).map(|_| point.median_ms * noise.call_factor(settings.noise)).collect();
                spent += calls.iter().sum::<f64>();
                let seen = median(&calls[2..]).unwrap_or(f64::INFINITY);
                if seen < best {
                    (best, chosen) = (seen, point.median_ms);
                }
            }
            Run::of(grid, chosen, 9 * grid.points.len() as u32, spent)
        })
        .collect()
}

/// A ratio composed from rates: stock alone, and the secondary unit where it surely dominates. No time of the CPU alone was recorded, so
/// its rate is that of the largest recorded share below 0.5, contended: kinder to this opponent than its own idea.
pub fn composed_rates(grid: &Grid, settings: Settings) -> Vec<Run> {
    (0..settings.seeds)
        .map(|seed| {
            let mut noise =
                Noise::for_use(seed, &format!("composed {} {} {}", grid.chip, grid.arm, grid.shape));
            let mut spent = 0.0;
            let mut time = |ms: f64| {
                let calls: Vec<f64> = (0..9).map(|_| ms * noise.call_factor(settings.noise)).collect();
                spent += calls.iter().sum::<f64>();
                median(&calls[2..]).unwrap_or(ms)
            };
            let rows = f64::from(grid.shape.rows());
            let primary = time(grid.stock_ms()) / rows;
            let far = grid.points.iter().rev().find(|point| point.ratio < 0.5).unwrap_or(&grid.points[0]);
            let secondary = time(far.median_ms) / f64::from(far.secondary_rows.max(1));
            let wanted = primary / (primary + secondary);
            let nearest = grid
                .points
                .iter()
                .min_by(|a, b| (a.ratio - wanted).abs().total_cmp(&(b.ratio - wanted).abs()));
            Run::of(grid, nearest.map_or(grid.stock_ms(), |point| point.median_ms), 18, spent)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary_of(start: StartKind) -> Summary {
        let settings = Settings { seeds: 2, noise: 0.015, start };
        let grids = recorded::all().unwrap().iter().flat_map(|machine| &machine.grids);
        summarise(grids.flat_map(|grid| replay(grid, &[], settings)).map(|run| (run.regret, run.cost_share)))
            .unwrap()
    }

    #[test]
    fn recorded_chips_are_searched_well_and_cheaply() {
        for (start, share) in [
            (StartKind::Cold, 0.15),
            (StartKind::Prior, 0.10),
            (StartKind::Warm, 0.06),
            (StartKind::WrongPrior, 0.18),
            (StartKind::OtherChips, 0.18),
        ] {
            let summary = summary_of(start);
            assert!(summary.regret_mean <= 0.002 && summary.regret_p95 <= 0.01, "{start:?}: {summary:?}");
            assert!(summary.regret_max <= 0.05 && summary.cost_share_mean <= share, "{start:?}: {summary:?}");
        }
    }

    #[test]
    fn a_summary_of_nothing_is_none() {
        assert_eq!(summarise([]), None);
    }
}
