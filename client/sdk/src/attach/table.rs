//! The local copy. Immutable: the background thread puts a new one in its place.

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::lines::Lines;
use fusion_calibrations::lookup::predicted_rows;
use fusion_calibrations::rows::RowRule;
use fusion_calibrations::shape::Layer;
use fusion_proto::v1;

use super::Basis;

/// What is known of one layer.
#[derive(Debug, Clone)]
struct Entry {
    layer: Layer,
    lines: Option<Lines>,
    /// (rows, secondary rows), in the order of rows.
    measured: Vec<(u32, u32)>,
}

/// The local copy of the daemon's knowledge, a layer a place.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) basis: Basis,
    pub(super) conditions: Option<Conditions>,
    rule: RowRule,
    entries: Vec<Entry>,
}

impl Table {
    /// Knows nothing.
    pub(super) fn stock(layers: &[Layer]) -> Self {
        let entry = |layer: &Layer| Entry { layer: *layer, lines: None, measured: Vec::new() };
        Self {
            basis: Basis::Stock,
            conditions: None,
            rule: RowRule::default(),
            entries: layers.iter().map(entry).collect(),
        }
    }

    /// The same layers with what a snapshot says of them.
    pub(super) fn with_snapshot(&self, snapshot: &v1::Snapshot, basis: Basis) -> Self {
        let layers: Vec<Layer> = self.entries.iter().map(|entry| entry.layer).collect();
        let mut table = Self::stock(&layers);
        table.basis = basis;
        table.conditions = snapshot.conditions.as_ref().map(Into::into);
        table.rule = snapshot.row_rule.as_ref().map(Into::into).unwrap_or_default();
        table.learn(&snapshot.layers);
        table
    }

    /// This table with what changed.
    pub(super) fn with_delta(&self, delta: &v1::Delta) -> Self {
        let mut table = self.clone();
        if let Some(conditions) = &delta.conditions {
            table.conditions = Some(conditions.into());
        }
        table.learn(&delta.layers);
        table
    }

    /// This table on another basis.
    pub(super) fn with_basis(&self, basis: Basis) -> Self {
        Self { basis, ..self.clone() }
    }

    fn learn(&mut self, layers: &[v1::LayerKnowledge]) {
        for knowledge in layers {
            // What can't be read is as if it weren't known: stock.
            let Some(Ok(layer)) = knowledge.layer.as_ref().map(Layer::try_from) else { continue };
            for entry in self.entries.iter_mut().filter(|entry| entry.layer == layer) {
                entry.lines = knowledge.lines.as_ref().map(Lines::from);
                entry.measured = knowledge.measured.iter().map(|at| (at.rows, at.secondary_rows)).collect();
                entry.measured.sort_unstable();
            }
        }
    }

    /// The secondary unit's rows; 0 where nothing is known, and never all of them, whatever the daemon says.
    pub(super) fn secondary_rows(&self, place: usize, rows: u32) -> u32 {
        let Some(entry) = self.entries.get(place) else { return 0 };
        let answer = match entry.measured.binary_search_by_key(&rows, |(measured, _)| *measured) {
            Ok(found) => entry.measured[found].1,
            Err(_) => match (&entry.lines, entry.layer.with_rows(rows)) {
                (Some(lines), Ok(shape)) => predicted_rows(shape, lines, &self.rule),
                _ => 0,
            },
        };
        if answer < rows { answer } else { 0 }
    }

    pub(super) fn lines(&self, place: usize) -> Option<Lines> {
        self.entries.get(place)?.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_calibrations::shape::{Layout, WeightFormat};

    fn layer(outputs: u32) -> Layer {
        Layer::new(896, outputs, WeightFormat::F32, Layout::default()).unwrap()
    }

    fn knowledge(secondary_ms_per_row: f64, measured: &[(u32, u32)]) -> v1::LayerKnowledge {
        v1::LayerKnowledge {
            layer: Some(layer(4864).into()),
            lines: Some(v1::Lines {
                primary_ms_per_row: 0.01,
                secondary_ms_per_row,
                overhead_ms: 0.0,
                stock_ms_per_row: 0.01,
            }),
            measured: measured
                .iter()
                .map(|&(rows, secondary_rows)| v1::MeasuredRows { rows, secondary_rows })
                .collect(),
            ..Default::default()
        }
    }

    #[test]
    fn measured_rows_answer_first_then_the_lines_then_stock() {
        let stock = Table::stock(&[layer(4864), layer(64)]);
        assert_eq!((stock.secondary_rows(0, 512), stock.secondary_rows(9, 512)), (0, 0));
        let snapshot = v1::Snapshot { layers: vec![knowledge(0.03, &[(512, 100)])], ..Default::default() };
        let table = stock.with_snapshot(&snapshot, Basis::Attached);
        assert_eq!((table.secondary_rows(0, 512), table.secondary_rows(0, 1024)), (100, 256));
        assert_eq!((table.secondary_rows(0, 1), table.secondary_rows(1, 512)), (0, 0));
        let delta = v1::Delta { layers: vec![knowledge(0.01, &[])], ..Default::default() };
        assert_eq!(table.with_delta(&delta).secondary_rows(0, 512), 256);
    }

    #[test]
    fn nonsense_of_a_daemon_is_stock() {
        let snapshot = v1::Snapshot {
            layers: vec![knowledge(f64::NAN, &[(512, 512), (600, 9999)])],
            ..Default::default()
        };
        let table = Table::stock(&[layer(4864)]).with_snapshot(&snapshot, Basis::Attached);
        for rows in [0, 1, 512, 600, 2048] {
            assert_eq!(table.secondary_rows(0, rows), 0, "{rows}");
        }
    }
}
