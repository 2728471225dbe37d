//! The one rule that turns a ratio into row counts.
//!
//! Nothing else in the code base does: on every Apple chip measured, a CPU part of exactly 2048 rows with K >= 6400, or 4096
//! rows with K >= 4096, is 2-6 times slower than its neighbours (FusionML's grids), and which counts are bad is a property of
//! the machine, so the rule is data of the chip.

use crate::lines::Lines;
use crate::ratio::Ratio;
use crate::shape::Shape;

/// How many rows fewer are taken instead of a cliff: 16, a tile of every kernel known, and far enough on the machines measured.
pub const CLIFF_STEP: u32 = 16;

/// A count of secondary rows that must not be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cliff {
    /// The exact number of secondary rows.
    pub secondary_rows: u32,
    /// It is bad for layers of at least this many inputs (K).
    pub minimum_inputs: u32,
}

/// How rows are shared on one chip.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowRule {
    /// Row counts to avoid.
    pub cliffs: Vec<Cliff>,
    /// The primary unit's rows are made a multiple of this where that costs nothing; 0 and 1 mean no alignment.
    pub primary_alignment: u32,
}

/// A layer of work that goes through several layers before its rows are joined, a feed-forward part say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Passage {
    /// The layer, with the rows of the work.
    pub shape: Shape,
    /// What the layer would be split at by itself.
    pub secondary_rows: u32,
    /// The lines that it follows.
    pub lines: Lines,
}

impl Passage {
    /// How much the layer has to say: the ratio at which both units finish `a` and `b` together is the mean of both ratios, weighted so.
    fn weight(&self) -> f64 {
        self.lines.primary_ms_per_row + self.lines.secondary_ms_per_row
    }
}

impl RowRule {
    /// What is known of every Apple chip measured so far.
    pub fn apple() -> Self {
        Self {
            cliffs: vec![
                Cliff { secondary_rows: 2048, minimum_inputs: 6400 },
                Cliff { secondary_rows: 4096, minimum_inputs: 4096 },
            ],
            primary_alignment: 0,
        }
    }

    /// Whether `secondary_rows` of a layer with `inputs` must not be chosen.
    pub fn is_cliff(&self, secondary_rows: u32, inputs: u32) -> bool {
        self.cliffs
            .iter()
            .any(|cliff| cliff.secondary_rows == secondary_rows && inputs >= cliff.minimum_inputs)
    }

    /// The secondary unit's rows of `shape` at `ratio`: the nearest count that aligns the primary unit's rows, and, should
    /// that be a cliff, [`CLIFF_STEP`] fewer.
    pub fn secondary_rows(&self, shape: Shape, ratio: Ratio) -> u32 {
        let wanted = (f64::from(shape.rows()) * ratio.get()).round() as u32;
        self.nearest_allowed(shape, self.aligned(shape, wanted))
    }

    /// `rows` itself, or the nearest smaller count that is no cliff of this shape's layer.
    pub fn nearest_allowed(&self, shape: Shape, rows: u32) -> u32 {
        let mut rows = rows.min(shape.rows());
        while rows > 0 && self.is_cliff(rows, shape.layer().inputs()) {
            rows = rows.saturating_sub(CLIFF_STEP);
        }
        rows
    }

    /// The secondary unit's rows of work that passes through all of `layers`: what balances their times together, and is no cliff of any. 0 if a
    /// layer wants none: the whole isn't known to gain.
    pub fn rows_through(&self, layers: &[Passage]) -> u32 {
        let weight: f64 = layers.iter().map(Passage::weight).sum();
        let wanted: f64 = layers.iter().map(|layer| layer.weight() * f64::from(layer.secondary_rows)).sum();
        if layers.iter().any(|layer| layer.secondary_rows == 0) || !(weight > 0.0 && weight.is_finite()) {
            return 0;
        }
        // A cliff of one layer is one of every layer with as many inputs or more, so that the last step suits all.
        let wanted = (wanted / weight).round() as u32;
        layers.iter().fold(wanted, |rows, layer| self.nearest_allowed(layer.shape, rows))
    }

    /// The same where no lines tell what balances the whole: the fewest that a layer wants.
    pub fn fewest_rows_through(&self, layers: &[(Shape, u32)]) -> u32 {
        let fewest = layers.iter().map(|(_, rows)| *rows).min().unwrap_or(0);
        layers.iter().fold(fewest, |rows, (shape, _)| self.nearest_allowed(*shape, rows))
    }

    /// The rows with the smallest predicted time of `shape`, by the rule; 0 where no split is predicted to beat stock.
    ///
    /// Both sides of a cliff at the balance are compared.
    pub fn best_rows(&self, shape: Shape, lines: &Lines) -> u32 {
        let balanced = self.secondary_rows(shape, lines.balanced_ratio());
        let predicted = |rows: u32| lines.split_ms(shape.rows(), rows);
        [balanced, balanced + 2 * CLIFF_STEP]
            .into_iter()
            .filter(|rows| f64::from(*rows) <= f64::from(shape.rows()) * Ratio::MAX.get())
            .map(|rows| self.nearest_allowed(shape, rows))
            .fold(0, |best, rows| if predicted(rows) < predicted(best) { rows } else { best })
    }

    /// `wanted` moved by at most half an alignment so that the primary unit's rows are a multiple of it.
    fn aligned(&self, shape: Shape, wanted: u32) -> u32 {
        let alignment = self.primary_alignment.max(1);
        let primary = shape.rows().saturating_sub(wanted);
        let aligned = (primary + alignment / 2) / alignment * alignment;
        if wanted == 0 || aligned == 0 || aligned >= shape.rows() {
            return wanted;
        }
        shape.rows() - aligned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{Layer, Layout, WeightFormat};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_a_cliff_never_more_than_asked(rows in 1u32..10_000, inputs in 1u32..20_000, share in 0.0f64..=0.9) {
            let layer = Layer::new(inputs, 64, WeightFormat::F16, Layout::default()).unwrap();
            let shape = layer.with_rows(rows).unwrap();
            let rule = RowRule::apple();
            let secondary = rule.secondary_rows(shape, Ratio::new(share).unwrap());
            prop_assert!(!rule.is_cliff(secondary, inputs));
            prop_assert!(f64::from(secondary) <= f64::from(rows) * share + 0.5);
        }
    }

    fn passage(inputs: u32, secondary_rows: u32, ms_per_row: f64) -> Passage {
        let layer = Layer::new(inputs, 64, WeightFormat::F16, Layout::default()).unwrap();
        let lines = Lines {
            primary_ms_per_row: ms_per_row,
            secondary_ms_per_row: ms_per_row,
            overhead_ms: 0.0,
            stock_ms_per_row: ms_per_row,
        };
        Passage { shape: layer.with_rows(8192).unwrap(), secondary_rows, lines }
    }

    #[test]
    fn work_through_several_layers_is_balanced_as_a_whole() {
        let rule = RowRule::apple();
        assert_eq!(rule.rows_through(&[passage(64, 1000, 1.0), passage(64, 2000, 3.0)]), 1750);
        assert_eq!(rule.rows_through(&[passage(64, 1000, 1.0), passage(64, 0, 3.0)]), 0);
        assert_eq!(rule.rows_through(&[passage(64, 1000, f64::NAN)]), 0);
        assert_eq!(rule.rows_through(&[]), 0);
    }

    #[test]
    fn no_layer_on_the_way_meets_its_cliff() {
        let cliff = |secondary_rows, minimum_inputs| Cliff { secondary_rows, minimum_inputs };
        let cliffs = vec![cliff(1000, 200), cliff(1000 - CLIFF_STEP, 100)];
        let rule = RowRule { cliffs, primary_alignment: 0 };
        let (narrow, wide) = (passage(100, 1000, 1.0), passage(200, 1000, 1.0));
        for layers in [[narrow, wide], [wide, narrow]] {
            assert_eq!(rule.rows_through(&layers), 1000 - 2 * CLIFF_STEP);
        }
    }

    #[test]
    fn the_primary_units_rows_are_aligned_where_asked() {
        let layer = Layer::new(64, 64, WeightFormat::F16, Layout::default()).unwrap();
        let rule = RowRule { primary_alignment: 32, ..RowRule::default() };
        let rows =
            |rows, share| rule.secondary_rows(layer.with_rows(rows).unwrap(), Ratio::new(share).unwrap());
        assert_eq!((1000 - rows(1000, 0.3)) % 32, 0);
        assert_eq!((rows(1000, 0.0), rows(20, 0.4)), (0, 8));
    }

    #[test]
    fn the_best_rows_are_at_the_balance_or_nowhere() {
        let layer = Layer::new(14336, 4096, WeightFormat::F16, Layout::default()).unwrap();
        let lines = Lines {
            primary_ms_per_row: 1.0,
            secondary_ms_per_row: 3.0,
            overhead_ms: 1.0,
            stock_ms_per_row: 1.0,
        };
        let best = |rows, lines| RowRule::apple().best_rows(layer.with_rows(rows).unwrap(), &lines);
        assert_eq!(best(1000, lines), 250);
        assert_eq!(best(8192, lines), 2032);
        assert_eq!(best(3, lines), 0);
        assert_eq!(best(1000, Lines { overhead_ms: 1e6, ..lines }), 0);
    }

    #[test]
    fn the_measured_cliff_is_stepped_over() {
        let layer = Layer::new(14336, 4096, WeightFormat::F16, Layout::default()).unwrap();
        let shape = layer.with_rows(8192).unwrap();
        assert_eq!(RowRule::apple().secondary_rows(shape, Ratio::new(0.25).unwrap()), 2032);
        assert_eq!(RowRule::default().secondary_rows(shape, Ratio::new(0.25).unwrap()), 2048);
    }
}
