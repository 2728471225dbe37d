//! What the model says about a whole transformer block, held against recorded blocks it was not fitted on.
//!
//! A block is its linear layers plus attention, which is never split and grows with the square of the rows. In a block a split gains less than
//! alone: its input must be materialised, its parts joined, and the other units' caches are cold; that loss is one number a chip.
//!
//! # Error of the model
//! Each cell is predicted from the grids of its chip (layers alone, other calls than the blocks') and from a loss and an attention rate fitted
//! without the cell. The form of the model and its three constants were chosen with this table in view, so the error is a
//! little flattered. Printed by `cargo test -p fusion-calibrations machine -- --nocapture`:
//!
//! | chip | rows | recorded | predicted | error | chip's mean |
//! |---|---|---|---|---|---|
//! | m1 | 1024 | 1.183 | 1.167 | -0.016 | 1.107 |
//! | m1 | 2048 | 1.084 | 1.183 | +0.099 | 1.156 |
//! | m1 | 4096 | 1.130 | 1.141 | +0.011 | 1.134 |
//! | m2 | 1024 | 1.225 | 1.256 | +0.031 | 1.265 |
//! | m2 | 2048 | 1.295 | 1.276 | -0.019 | 1.242 |
//! | m2 | 4096 | 1.312 | 1.284 | -0.028 | 1.236 |
//! | m2 | 8192 | 1.189 | 1.285 | +0.096 | 1.277 |
//! | m3-pro | 1024 | 1.155 | 1.149 | -0.006 | 1.162 |
//! | m3-pro | 2048 | 1.161 | 1.178 | +0.017 | 1.160 |
//! | m3-pro | 4096 | 1.174 | 1.176 | +0.002 | 1.155 |
//! | m3-pro | 8192 | 1.150 | 1.126 | -0.024 | 1.163 |
//! | m4 | 1024 | 1.148 | 1.161 | +0.013 | 1.195 |
//! | m4 | 2048 | 1.166 | 1.164 | -0.002 | 1.189 |
//! | m4 | 4096 | 1.249 | 1.185 | -0.064 | 1.161 |
//! | m4 | 8192 | 1.170 | 1.181 | +0.011 | 1.188 |
//! | m4-pro | 1024 | 1.295 | 1.316 | +0.021 | 1.281 |
//! | m4-pro | 2048 | 1.376 | 1.314 | -0.062 | 1.254 |
//! | m4-pro | 4096 | 1.274 | 1.269 | -0.005 | 1.288 |
//! | m4-pro | 8192 | 1.194 | 1.185 | -0.009 | 1.315 |
//!
//! Mean absolute error 0.0283; predicting the mean of the chip's other cells 0.0471.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::recorded::{self, Grid};
use crate::rows::RowRule;
use crate::shape::{Layer, Layout, Shape, WeightFormat};
use crate::stats::median;

const FILE: &str = include_str!("../../data/recorded/prefill_cells.json");

/// Width of the recorded blocks.
const HIDDEN: u32 = 4096;
/// The linear layers of the recorded blocks: inputs, outputs, how often.
const LAYERS: [(u32, u32, f64); 3] = [(HIDDEN, HIDDEN, 4.0), (HIDDEN, 14_336, 2.0), (14_336, HIDDEN, 1.0)];
/// How much a distance in rows counts next to one in inputs or outputs, and what makes the nearest grid not the only one.
const ROWS_WEIGHT: f64 = 0.1;
const SOFTNESS: f64 = 0.05;

/// One recorded block: FusionML's median time of stock and of the split block.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// "m4-pro".
    pub chip: String,
    /// Rows (tokens).
    pub rows: u32,
    /// Stock, in ms.
    pub stock_ms: f64,
    /// Every layer split at its calibrated ratio, in ms.
    pub split_ms: f64,
    /// Stock over split as published.
    pub speed_up: f64,
    /// repository@commit:path.
    pub source: String,
}

#[derive(Deserialize)]
struct File {
    cells: Vec<Cell>,
}

static CELLS: LazyLock<Vec<Cell>> =
    LazyLock::new(|| serde_json::from_str::<File>(FILE).map(|file| file.cells).unwrap_or_default());

/// The recorded Llama-geometry blocks of all five chips (M1 at 8192 rows excluded: merged sessions).
pub fn cells() -> &'static [Cell] {
    &CELLS
}

/// A prediction for a cell that was left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The cell.
    pub cell: &'static Cell,
    /// Predicted stock over split.
    pub speed_up: f64,
    /// What predicting the chip's mean (of its other cells) would say.
    pub chip_mean: f64,
}

impl Prediction {
    /// Predicted less recorded speed-up.
    pub fn error(&self) -> f64 {
        self.speed_up - self.cell.speed_up
    }
}

/// Times of a cell's parts as the model has them, in ms.
#[derive(Debug, Clone, Copy)]
struct Parts {
    stock: f64,
    split: f64,
    attention: f64,
}

impl Parts {
    /// From the chip's grids, the nearest counting most.
    fn of(cell: &Cell) -> Option<Self> {
        let grids = &recorded::find(&cell.chip)?.grids;
        let mut parts = Self { stock: 0.0, split: 0.0, attention: 0.0 };
        for (inputs, outputs, count) in LAYERS {
            let layer = Layer::new(inputs, outputs, WeightFormat::F16, Layout::default()).ok()?;
            let (stock, split) = layer_ms(grids, layer.with_rows(cell.rows).ok()?)?;
            parts.stock += count * stock;
            parts.split += count * split;
            if outputs == inputs {
                // Scores and weighted sum of one head, 4 M^2 D operations, at the rate of the square layer.
                parts.attention = 2.0 * f64::from(cell.rows) / f64::from(HIDDEN) * stock;
            }
        }
        Some(parts)
    }

    fn speed_up(self, attention: f64, loss: f64) -> f64 {
        let rest = attention * self.attention;
        (self.stock + rest) / (self.split * (1.0 + loss) + rest)
    }

    /// The loss that explains a recorded speed-up.
    fn loss(self, attention: f64, speed_up: f64) -> f64 {
        let rest = attention * self.attention;
        ((self.stock + rest) / speed_up - rest) / self.split - 1.0
    }
}

/// Time of a layer alone, stock and at its best split, in ms: geometric means over grids of Llama's layers, weighted by nearness in
/// inputs, outputs and (a little) rows.
fn layer_ms(grids: &[Grid], shape: Shape) -> Option<(f64, f64)> {
    let apart = |a: u32, b: u32| (f64::from(a) / f64::from(b)).ln().powi(2);
    let (mut total, mut stock, mut gain) = (0.0, 0.0, 0.0);
    for grid in grids {
        let layer = grid.shape.layer();
        if !LAYERS.iter().any(|(inputs, outputs, _)| (*inputs, *outputs) == (layer.inputs(), layer.outputs()))
        {
            continue;
        }
        let distance = apart(layer.inputs(), shape.layer().inputs())
            + apart(layer.outputs(), shape.layer().outputs())
            + ROWS_WEIGHT * apart(grid.shape.rows(), shape.rows());
        let weight = (distance + SOFTNESS).powi(-2);
        total += weight;
        stock += weight * (grid.stock_ms() / grid.shape.flops()).ln();
        gain += weight * (grid.stock_ms() / best_split_ms(grid)?).ln();
    }
    let stock_ms = (stock / total).exp() * shape.flops();
    (total > 0.0).then_some((stock_ms, stock_ms / (gain / total).exp()))
}

fn best_split_ms(grid: &Grid) -> Option<f64> {
    let rule = RowRule::apple();
    grid.points
        .iter()
        .filter(|point| point.secondary_rows > 0)
        .filter(|point| !rule.is_cliff(point.secondary_rows, grid.shape.layer().inputs()))
        .map(|point| point.median_ms)
        .reduce(f64::min)
}

/// Predicts every cell from the others.
pub fn leave_one_out() -> Vec<Prediction> {
    let known: Vec<(&'static Cell, Parts)> =
        cells().iter().filter_map(|cell| Some((cell, Parts::of(cell)?))).collect();
    (0..known.len())
        .map(|left_out| {
            let others: Vec<(&Cell, Parts)> = known
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != left_out)
                .map(|(_, (cell, parts))| (*cell, *parts))
                .collect();
            let (cell, parts) = known[left_out];
            let attention = fit_attention(&others);
            let same: Vec<f64> = others
                .iter()
                .filter(|(other, _)| other.chip == cell.chip)
                .map(|(other, _)| other.speed_up)
                .collect();
            Prediction {
                cell,
                speed_up: parts.speed_up(attention, loss_of(&cell.chip, &others, attention)),
                chip_mean: same.iter().sum::<f64>() / same.len() as f64,
            }
        })
        .collect()
}

/// The loss of a chip: the median over its cells and the median of all, which counts as one cell.
fn loss_of(chip: &str, cells: &[(&Cell, Parts)], attention: f64) -> f64 {
    let loss = |(cell, parts): &(&Cell, Parts)| parts.loss(attention, cell.speed_up);
    let all: Vec<f64> = cells.iter().map(loss).collect();
    let own = cells.iter().filter(|(cell, _)| cell.chip == chip).map(loss);
    let own: Vec<f64> = own.chain(median(&all)).collect();
    median(&own).unwrap_or(0.0)
}

/// How many times as long attention takes as its operations at the primary unit's rate: one number for all chips, by least absolute error.
fn fit_attention(cells: &[(&Cell, Parts)]) -> f64 {
    let error = |attention: f64| -> f64 {
        cells
            .iter()
            .map(|(cell, parts)| {
                (parts.speed_up(attention, loss_of(&cell.chip, cells, attention)) - cell.speed_up).abs()
            })
            .sum()
    };
    (2..=60).map(|step| f64::from(step) * 0.05).min_by(|a, b| error(*a).total_cmp(&error(*b))).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_it_was_not_fitted_on_are_predicted_within_three_points() {
        let predictions = leave_one_out();
        assert_eq!(predictions.len(), 19);
        println!("| chip | rows | recorded | predicted | error | chip's mean |\n|---|---|---|---|---|---|");
        for p in &predictions {
            println!(
                "| {} | {} | {:.3} | {:.3} | {:+.3} | {:.3} |",
                p.cell.chip,
                p.cell.rows,
                p.cell.speed_up,
                p.speed_up,
                p.error(),
                p.chip_mean
            );
        }
        let mean = |error: &dyn Fn(&Prediction) -> f64| {
            predictions.iter().map(error).sum::<f64>() / predictions.len() as f64
        };
        let (model, naive) = (mean(&|p| p.error().abs()), mean(&|p| (p.chip_mean - p.cell.speed_up).abs()));
        println!("mean absolute error {model:.4}; predicting the mean of the chip's other cells {naive:.4}");
        assert!(model <= 0.03, "mean absolute error {model}");
    }
}
