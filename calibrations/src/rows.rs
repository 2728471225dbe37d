//! The one rule that turns a ratio into row counts.
//!
//! Nothing else in the code base does: on every Apple chip measured, a CPU part of exactly 2048 rows with K >= 6400, or 4096
//! rows with K >= 4096, is 2-6 times slower than its neighbours (FusionML's grids), and which counts are bad is a property of
//! the machine, so the rule is data of the chip.

use crate::ratio::Ratio;
use crate::shape::Shape;

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

    /// The secondary unit's rows of `shape` at `ratio`: the nearest count that is no cliff, moved towards fewer rows.
    pub fn secondary_rows(&self, shape: Shape, ratio: Ratio) -> u32 {
        let wanted = (f64::from(shape.rows()) * ratio.get()).round() as u32;
        (0..=wanted).rev().find(|rows| !self.is_cliff(*rows, shape.layer().inputs())).unwrap_or_default()
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

    #[test]
    fn the_measured_cliff_is_stepped_over() {
        let layer = Layer::new(14336, 4096, WeightFormat::F16, Layout::default()).unwrap();
        let shape = layer.with_rows(8192).unwrap();
        assert_eq!(RowRule::apple().secondary_rows(shape, Ratio::new(0.25).unwrap()), 2047);
        assert_eq!(RowRule::default().secondary_rows(shape, Ratio::new(0.25).unwrap()), 2048);
    }
}
