//! The local copy. Immutable: the background thread puts a new one in its place.

use fusion_calibrations::chip::Cooling;
use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::gate::{Bucket, LayerPart, Prediction};
use fusion_calibrations::lines::Lines;
use fusion_calibrations::lookup::{DECODE_ROWS, predicted_rows};
use fusion_calibrations::rows::{Passage, RowRule};
use fusion_calibrations::shape::Layer;
use fusion_calibrations::stats::Interval;
use fusion_proto::v1;

use super::Basis;

/// Rows beyond which nobody looks for a gain that fewer don't have.
const MOST_ROWS: u32 = 1 << 16;

/// Share of the installed memory that the GPU holds at once without paging, as a fraction: what Metal recommends on the smallest machines
/// (`recommendedMaxWorkingSetSize` is 5461 MiB of 8192 on an M1, as llama.cpp prints it; larger ones get three quarters).
const GPU_SHARE: (u64, u64) = (2, 3);

/// What is known of one layer.
#[derive(Debug, Clone)]
struct Entry {
    layer: Layer,
    lines: Option<Lines>,
    /// Whether they hold for the running engine, as far as is known.
    fresh: bool,
    /// (rows, secondary rows), in the order of rows.
    measured: Vec<(u32, u32)>,
}

/// The local copy of the daemon's knowledge, a layer a place.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) basis: Basis,
    pub(super) conditions: Option<Conditions>,
    /// The key of the engine that runs the products: the client's own, else the worker's.
    pub(super) engine: Option<String>,
    /// The key of the chip.
    pub(super) chip: Option<String>,
    pub(super) cooling: Cooling,
    /// What the process needs at once, in bytes, if it said so.
    working_set_bytes: Option<u64>,
    /// Installed memory, in GiB; 0 until the chip is known.
    memory_gib: u32,
    own_engine: bool,
    rule: RowRule,
    entries: Vec<Entry>,
}

impl Table {
    /// Knows nothing.
    pub(super) fn stock(layers: &[Layer], engine: Option<&Engine>, working_set_bytes: Option<u64>) -> Self {
        let entry = |layer: &Layer| Entry { layer: *layer, lines: None, fresh: true, measured: Vec::new() };
        Self {
            basis: Basis::Stock,
            conditions: None,
            engine: engine.map(Engine::key),
            own_engine: engine.is_some(),
            chip: None,
            cooling: Cooling::Unknown,
            working_set_bytes,
            memory_gib: 0,
            rule: RowRule::default(),
            entries: layers.iter().map(entry).collect(),
        }
    }

    /// The same layers with what a snapshot says of them.
    pub(super) fn with_snapshot(&self, snapshot: &v1::Snapshot, basis: Basis) -> Self {
        let layers: Vec<Layer> = self.entries.iter().map(|entry| entry.layer).collect();
        let mut table = Self::stock(&layers, None, self.working_set_bytes);
        table.basis = basis;
        table.own_engine = self.own_engine;
        table.engine = match (&self.engine, &snapshot.engine) {
            (Some(own), _) if self.own_engine => Some(own.clone()),
            (_, theirs) => theirs.clone().map(|engine| Engine::from(engine).key()),
        };
        table.chip = snapshot.chip.as_ref().map(|chip| chip.key.clone());
        table.memory_gib = snapshot.chip.as_ref().map_or(0, |chip| chip.memory_gib);
        table.cooling = match snapshot.chip.as_ref().map(|chip| chip.cooling.as_str()) {
            Some("active") => Cooling::Active,
            Some("passive") => Cooling::Passive,
            _ => Cooling::Unknown,
        };
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

    /// Whether what the process needs at once fits into what the GPU may hold. Assumed, where either isn't known.
    pub(super) fn fits(&self) -> bool {
        let usable_bytes = u64::from(self.memory_gib) * (1 << 30) / GPU_SHARE.1 * GPU_SHARE.0;
        self.memory_gib == 0 || self.working_set_bytes.is_none_or(|needed| needed <= usable_bytes)
    }

    fn learn(&mut self, layers: &[v1::LayerKnowledge]) {
        for knowledge in layers {
            // What can't be read is as if it weren't known: stock.
            let Some(Ok(layer)) = knowledge.layer.as_ref().map(Layer::try_from) else { continue };
            for entry in self.entries.iter_mut().filter(|entry| entry.layer == layer) {
                entry.lines = knowledge.lines.as_ref().map(Lines::from);
                entry.fresh = knowledge.stale_reason.is_empty();
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
            // A loss at more rows is a loss here too: what a split costs beyond its rows weighs more.
            Err(next) if entry.measured.get(next).is_some_and(|(_, secondary)| *secondary == 0) => 0,
            Err(_) => match (&entry.lines, entry.layer.with_rows(rows)) {
                (Some(lines), Ok(shape)) => predicted_rows(shape, lines, &self.rule),
                _ => 0,
            },
        };
        if answer < rows { answer } else { 0 }
    }

    /// The same for rows that go through all layers at `places` before they are joined.
    pub(super) fn secondary_rows_through(&self, places: &[usize], rows: u32) -> u32 {
        let passage = |place: &usize| {
            let entry = self.entries.get(*place)?;
            let secondary_rows = self.secondary_rows(*place, rows);
            Some(Passage { shape: entry.layer.with_rows(rows).ok()?, secondary_rows, lines: entry.lines? })
        };
        let layers: Option<Vec<Passage>> = places.iter().map(passage).collect();
        layers.map_or(0, |layers| self.rule.rows_through(&layers))
    }

    /// What a region gains by splitting a call of `rows` rows, and whether any of its layers would be split. Nothing, if nothing is known.
    ///
    /// A layer that nothing is known of is left out: it runs as before, and what the others gain stays a gain.
    pub(super) fn predict(&self, parts: &[(usize, u32)], other_ms: f64, rows: u32) -> (Prediction, bool) {
        let mut fresh = true;
        let part = |(place, times): &(usize, u32)| {
            let entry = self.entries.get(*place)?;
            let part = LayerPart {
                lines: entry.lines?,
                rows,
                secondary_rows: self.secondary_rows(*place, rows),
                times: *times,
            };
            fresh &= entry.fresh || part.secondary_rows == 0;
            Some(part)
        };
        let parts: Vec<LayerPart> = parts.iter().filter_map(part).collect();
        match Prediction::of_region(&parts, other_ms, fresh) {
            Some(prediction) => (prediction, true),
            None => (Prediction { gain: Interval::exact(1.0), fresh }, false),
        }
    }

    /// The fewest rows of a call that can win by more than `margin`; all, if nothing is known, and none, if none can.
    pub(super) fn break_even(&self, parts: &[(usize, u32)], other_ms: f64, margin: f64) -> u32 {
        let known = |(place, _): &(usize, u32)| self.lines(*place).is_some();
        if !parts.iter().any(known) {
            return 0;
        }
        let buckets = (0..).map_while(Bucket::from_index).map(Bucket::first_rows);
        buckets
            .filter(|rows| (DECODE_ROWS..=MOST_ROWS).contains(rows))
            .find(|rows| self.predict(parts, other_ms, *rows).0.gain.high > 1.0 + margin)
            .unwrap_or(u32::MAX)
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
        let stock = Table::stock(&[layer(4864), layer(64)], None, None);
        assert_eq!((stock.secondary_rows(0, 512), stock.secondary_rows(9, 512)), (0, 0));
        let snapshot = v1::Snapshot { layers: vec![knowledge(0.03, &[(512, 100)])], ..Default::default() };
        let table = stock.with_snapshot(&snapshot, Basis::Attached);
        assert_eq!((table.secondary_rows(0, 512), table.secondary_rows(0, 1024)), (100, 256));
        assert_eq!((table.secondary_rows(0, 1), table.secondary_rows(1, 512)), (0, 0));
        let loss = v1::Snapshot { layers: vec![knowledge(0.03, &[(512, 0)])], ..Default::default() };
        let lost = stock.with_snapshot(&loss, Basis::Attached);
        assert_eq!([300, 512, 1024].map(|rows| lost.secondary_rows(0, rows)), [0, 0, 256]);
        let delta = v1::Delta { layers: vec![knowledge(0.01, &[])], ..Default::default() };
        assert_eq!(table.with_delta(&delta).secondary_rows(0, 512), 256);
    }

    #[test]
    fn rows_through_several_layers_need_all_of_them_known() {
        let snapshot = v1::Snapshot { layers: vec![knowledge(0.03, &[(512, 100)])], ..Default::default() };
        let table =
            Table::stock(&[layer(4864), layer(64)], None, None).with_snapshot(&snapshot, Basis::Attached);
        assert_eq!(table.secondary_rows_through(&[0, 0], 512), 100);
        for unknown in [[0, 1], [0, 9]] {
            assert_eq!(table.secondary_rows_through(&unknown, 512), 0);
        }
    }

    #[test]
    fn large_calls_gain_small_ones_are_not_worth_a_thought_and_unknown_ones_are_stock() {
        let parts = [(0, 2), (1, 2)];
        let stock = Table::stock(&[layer(4864), layer(64)], None, None);
        assert_eq!(stock.break_even(&parts, 0.0, 0.03), 0);
        let (prediction, splits) = stock.predict(&parts, 0.0, 4096);
        assert_eq!((prediction.gain, splits), (Interval::exact(1.0), false));
        let snapshot = v1::Snapshot { layers: vec![knowledge(0.02, &[])], ..Default::default() };
        let table = stock.with_snapshot(&snapshot, Basis::Attached);
        let (prediction, splits) = table.predict(&parts, 0.0, 4096);
        assert!(splits && prediction.fresh && prediction.gain.low > 1.03, "{prediction:?}");
        let break_even = table.break_even(&parts, 0.0, 0.03);
        assert!((64..512).contains(&break_even), "{break_even}");
        // The layers are a small part of the whole: no number of rows makes that worth it.
        assert_eq!(table.break_even(&parts, 1e9, 0.03), u32::MAX);
        let mut stale = snapshot;
        stale.layers[0].stale_reason = "an update".to_owned();
        assert!(!stock.with_snapshot(&stale, Basis::Attached).predict(&parts, 0.0, 4096).0.fresh);
    }

    #[test]
    fn a_working_set_larger_than_the_gpu_may_hold_does_not_fit() {
        const GIB: u64 = 1 << 30;
        let fits = |working_set_bytes, memory_gib| {
            let chip = Some(v1::Chip { memory_gib, ..Default::default() });
            let snapshot = v1::Snapshot { chip, ..Default::default() };
            let stock = Table::stock(&[layer(64)], None, working_set_bytes);
            stock.with_snapshot(&snapshot, Basis::Attached).fits()
        };
        assert!(fits(Some(5 * GIB), 8) && !fits(Some(6 * GIB), 8) && fits(Some(6 * GIB), 16));
        assert!(fits(None, 8) && fits(Some(u64::MAX), 0));
    }

    #[test]
    fn nonsense_of_a_daemon_is_stock() {
        let snapshot = v1::Snapshot {
            layers: vec![knowledge(f64::NAN, &[(512, 512), (600, 9999)])],
            ..Default::default()
        };
        let table = Table::stock(&[layer(4864)], None, None).with_snapshot(&snapshot, Basis::Attached);
        for rows in [0, 1, 512, 600, 2048] {
            assert_eq!(table.secondary_rows(0, rows), 0, "{rows}");
        }
    }
}
