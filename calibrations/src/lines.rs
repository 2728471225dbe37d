//! The lines: the fitted time of each unit, which is what is stored and served. Ratios are derived from them.
//!
//! Time of a split of M rows, r of them on the secondary unit, is near `max(g (M - r), c r) + o`: g and c are the primary and
//! secondary unit's time per row while both run, o is what splitting itself costs. Stock takes `s M`. The two-line model picks the
//! best recorded ratio within one 0.05 step on almost every recorded Apple grid.

use crate::ratio::Ratio;

/// The fitted time of each unit for one layer under one set of conditions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lines {
    /// Time of one row on the primary unit while the secondary unit works too, in ms.
    pub primary_ms_per_row: f64,
    /// Time of one row on the secondary unit while the primary unit works too, in ms.
    pub secondary_ms_per_row: f64,
    /// What a split costs beyond its slower part, in ms a call.
    pub overhead_ms: f64,
    /// Time of one row of stock, the primary unit alone, in ms.
    pub stock_ms_per_row: f64,
}

impl Lines {
    /// The share at which both units finish together.
    pub fn balanced_ratio(&self) -> Ratio {
        Ratio::saturating(self.primary_ms_per_row / (self.primary_ms_per_row + self.secondary_ms_per_row))
    }

    /// Time of one row of a split at that share, without what splitting itself costs, in ms.
    pub fn balanced_ms_per_row(&self) -> f64 {
        self.primary_ms_per_row * (1.0 - self.balanced_ratio().get())
    }

    /// Predicted time of `rows` rows with `secondary_rows` of them on the secondary unit, in ms; stock for 0.
    pub fn split_ms(&self, rows: u32, secondary_rows: u32) -> f64 {
        if secondary_rows == 0 {
            return self.stock_ms(rows);
        }
        let primary = self.primary_ms_per_row * f64::from(rows.saturating_sub(secondary_rows));
        let secondary = self.secondary_ms_per_row * f64::from(secondary_rows);
        primary.max(secondary) + self.overhead_ms
    }

    /// Predicted time of stock for `rows` rows, in ms.
    pub fn stock_ms(&self, rows: u32) -> f64 {
        self.stock_ms_per_row * f64::from(rows)
    }

    /// The number of rows from which on a balanced split is predicted to beat stock; `None` if it never does.
    pub fn break_even_rows(&self) -> Option<f64> {
        let gain_per_row = self.stock_ms_per_row - self.balanced_ms_per_row();
        (gain_per_row > 0.0).then(|| (self.overhead_ms / gain_per_row).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: Lines = Lines {
        primary_ms_per_row: 0.01,
        secondary_ms_per_row: 0.03,
        overhead_ms: 0.5,
        stock_ms_per_row: 0.01,
    };

    #[test]
    fn both_units_finish_together_at_the_balanced_ratio() {
        assert!((LINES.balanced_ratio().get() - 0.25).abs() < 1e-12);
        assert!((LINES.split_ms(1000, 250) - 8.0).abs() < 1e-9);
        assert!((LINES.split_ms(1000, 0) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn below_break_even_a_split_loses() {
        let rows = LINES.break_even_rows().unwrap();
        assert!((rows - 200.0).abs() < 1e-9);
        assert!(LINES.split_ms(160, 40) > LINES.stock_ms(160));
        assert!(LINES.split_ms(240, 60) < LINES.stock_ms(240));
        assert_eq!(Lines { stock_ms_per_row: 0.001, ..LINES }.break_even_rows(), None);
    }
}
