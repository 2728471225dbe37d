//! The gate on the models of the recorded machines: never slower than stock, and the split used where it pays.

use anyhow::{Context, Result};
use fusion_calibrations::gate::ArmSet;
use fusion_calibrations::gate::arena;
use fusion_calibrations::gate::tournament::{self, CellResult, Rules, Summary};
use fusion_calibrations::stats::Interval;

use crate::figure::{Figure, Limit};

/// Virtual minutes that stock works on each block. A short life pays for its first calls: that is shown beside, without a limit.
const SUSTAINED_MINUTES: f64 = 20.0;
const SHORT_MINUTES: f64 = 5.0;
const SEEDS: u64 = 5;

/// All 40 recorded blocks, sustained; ours, the paper's gate, and the best fixed arm against all-stock. In virtual time: exact for the seeds.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let sustained = play(SUSTAINED_MINUTES)?;
    let short = play(SHORT_MINUTES)?;
    let runs = arena::cells().len() * SEEDS as usize;
    let figure = |name: &str, value: f64, limit| {
        Figure::new(name, Interval::exact(value), "times stock", limit, runs, None)
            .note("modelled: recorded blocks, the machine models' heat and noise")
    };
    let (worst, mean) = (sustained.worst_against_stock, sustained.mean_against_stock);
    let used = sustained.worst_against_best_fixed_where_it_gains_clearly;
    Ok(vec![
        figure("gate, worst block, sustained, nothing known", worst.cold, Limit::AtLeast(0.99)),
        figure("gate, worst block, sustained, predicted", worst.predicted, Limit::AtLeast(0.99)),
        figure("gate, worst block, sustained, state kept", worst.kept, Limit::AtLeast(0.99)),
        figure("the paper's gate, worst block, sustained", worst.paper, Limit::None),
        figure("gate, mean of all blocks, predicted", mean.predicted, Limit::None),
        figure("the paper's gate, mean of all blocks", mean.paper, Limit::None),
        figure("gate over best fixed arm where that gains 1.15", used.least_of_ours(), Limit::None),
        figure("gate, worst block, 5 minutes, nothing known", short.worst_against_stock.cold, Limit::None),
        figure("gate, worst block, 5 minutes, state kept", short.worst_against_stock.kept, Limit::None),
        figure("the paper's gate, worst block, 5 minutes", short.worst_against_stock.paper, Limit::None),
    ])
}

fn play(minutes: f64) -> Result<Summary> {
    let rules = Rules { minutes, seeds: SEEDS, arms: ArmSet::all() };
    let cells: Option<Vec<CellResult>> =
        arena::cells().iter().map(|cell| tournament::play(cell, rules)).collect();
    Ok(Summary::of(&cells.context("a recorded block's chip isn't shipped")?))
}
