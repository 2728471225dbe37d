//! What a client is told of its layers, and how running clients correct it.
//!
//! Knowledge of a layer is derived from the table under the present conditions. Where clients reported split calls, the lines are the live ones: stored
//! lines that follow those calls ([`fusion_calibrations::live`]). Live lines belong to one chip, engine, layer and set of conditions; another set
//! starts from what is stored for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use fusion_calibrations::chip::Chip;
use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::estimate::Provenance;
use fusion_calibrations::lines::Lines;
use fusion_calibrations::live::{Effect, LiveLines, Observation};
use fusion_calibrations::lookup::{Answer, Query};
use fusion_calibrations::record::Record;
use fusion_calibrations::rows::RowRule;
use fusion_calibrations::shape::{Layer, Shape};
use fusion_proto::v1;

use crate::planner::loss;
use crate::table::{self, Table};

/// Rows that the lines of a layer are chosen for where a client doesn't say: a chunk of MLX-LM's prefill.
pub const TYPICAL_ROWS: u32 = 2048;
/// What the rows that clients chose may lose before they are told, as a share of a split's time.
const WORTH_TELLING: f64 = 0.0025;
/// A change of what a split gains, as a share, that is worth a message: whether a layer is split at all hangs on it.
const GAIN_WORTH_TELLING: f64 = 0.01;
/// A change of a line, as a share, that is worth a message though the balance is the same: what a split gains against what is never split depends on it.
const PACE_WORTH_TELLING: f64 = 0.1;

/// Under what the lines of a layer hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    chip: String,
    engine: String,
    layer: Layer,
    conditions: Conditions,
}

/// What a client runs on: chip, code and state of the machine.
#[derive(Debug, Clone, Copy)]
pub struct Running<'a> {
    /// The hardware.
    pub chip: &'a Chip,
    /// The code.
    pub engine: &'a Engine,
    /// The state of the machine.
    pub conditions: Conditions,
}

impl Running<'_> {
    fn place(&self, layer: Layer) -> Place {
        Place { chip: self.chip.key(), engine: self.engine.key(), layer, conditions: self.conditions }
    }

    fn answer<'r>(
        &self,
        records: &'r [Arc<Record>],
        rule: &RowRule,
        layer: Layer,
        rows: u32,
    ) -> Option<Answer<'r>> {
        let Self { chip, engine, conditions } = *self;
        let shape = layer.with_rows(rows).ok()?;
        Some(table::answer(records, &Query { shape, chip, engine, conditions }, rule))
    }
}

/// Live lines, and those that clients were told last.
#[derive(Debug)]
struct Followed {
    live: LiveLines,
    told: Lines,
}

impl Followed {
    /// Whether the lines moved so far that clients should be told; they are, then.
    fn is_news(&mut self) -> bool {
        let now = self.live.lines();
        let news = is_worth_telling(&self.told, &now);
        if news {
            self.told = now;
        }
        news
    }
}

fn is_worth_telling(told: &Lines, now: &Lines) -> bool {
    let moved = |of: fn(&Lines) -> f64, most| (of(now) / of(told)).ln().abs() > most;
    loss(told, now) > WORTH_TELLING
        || moved(|lines| lines.stock_ms_per_row / lines.balanced_ms_per_row(), GAIN_WORTH_TELLING)
        || moved(|lines| lines.primary_ms_per_row, PACE_WORTH_TELLING)
        || moved(|lines| lines.secondary_ms_per_row, PACE_WORTH_TELLING)
}

/// What was asked for.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Question {
    chip: Chip,
    engine: Engine,
    conditions: Conditions,
    layers: Vec<Layer>,
    typical_rows: u32,
}

/// Answers of one revision.
type Answers = (u64, HashMap<Question, Arc<Vec<v1::LayerKnowledge>>>);

/// Derives what clients are told.
#[derive(Debug)]
pub struct Knowledge {
    table: Arc<Table>,
    answers: Mutex<Answers>,
    followed: Mutex<HashMap<Place, Followed>>,
}

impl Knowledge {
    /// Knowledge from the records of `table`.
    pub fn new(table: Arc<Table>) -> Self {
        Self { table, answers: Mutex::default(), followed: Mutex::default() }
    }

    /// What is known of `layers` at a revision: a thousand clients of one program ask the same question.
    pub fn at(
        &self,
        revision: u64,
        running: Running<'_>,
        layers: &[Layer],
        typical_rows: u32,
    ) -> Arc<Vec<v1::LayerKnowledge>> {
        let Running { chip, engine, conditions } = running;
        let question = Question {
            chip: chip.clone(),
            engine: engine.clone(),
            conditions,
            layers: layers.to_vec(),
            typical_rows,
        };
        let mut answers = self.answers.lock().expect("no holder of this lock panics");
        if answers.0 != revision {
            *answers = (revision, HashMap::new());
        }
        let answer = answers.1.entry(question);
        Arc::clone(answer.or_insert_with(|| Arc::new(self.of(running, layers, typical_rows))))
    }

    /// What is known of `layers`, in their order.
    pub fn of(&self, running: Running<'_>, layers: &[Layer], typical_rows: u32) -> Vec<v1::LayerKnowledge> {
        let records = self.table.served(running.chip);
        let rule = self.table.row_rule(running.chip);
        let withheld = self.table.is_withheld();
        let one = |layer: &Layer| {
            let stored = stored(&records, &rule, running, *layer, typical_rows);
            match self.live(&running.place(*layer)) {
                // They began as lines of this machine's worker.
                Some(lines) if !withheld => followed(stored, lines),
                _ => stored,
            }
        };
        layers.iter().map(one).collect()
    }

    /// Every layer that is recorded of a chip.
    pub fn layers(&self, chip: &Chip) -> Vec<Layer> {
        let mut layers: Vec<Layer> =
            self.table.of_chip(chip).iter().map(|record| record.estimate.shape.layer()).collect();
        layers.sort_unstable();
        layers.dedup();
        layers
    }

    fn live(&self, place: &Place) -> Option<Lines> {
        let followed = self.followed.lock().expect("no holder of this lock panics");
        followed.get(place).map(|followed| followed.live.lines())
    }

    /// The stored lines of a layer and those that clients' calls moved them to; `None` while no client showed anything.
    pub fn correction(&self, running: Running<'_>, layer: Layer) -> Option<(Lines, Lines)> {
        let followed = self.followed.lock().expect("no holder of this lock panics");
        followed.get(&running.place(layer)).map(|followed| (*followed.live.stored(), followed.live.lines()))
    }

    /// Takes a client's observation of a layer in; whether clients should be told.
    pub fn observe(&self, running: Running<'_>, layer: Layer, observation: &Observation) -> bool {
        let place = running.place(layer);
        let mut all = self.followed.lock().expect("no holder of this lock panics");
        if let Some(followed) = all.get_mut(&place) {
            return followed.live.observe(observation) != Effect::Ignored && followed.is_news();
        }
        let records = self.table.served(running.chip);
        let rule = self.table.row_rule(running.chip);
        let answer = running.answer(&records, &rule, layer, observation.rows);
        let Some(lines) = answer.and_then(|answer| answer.lines) else { return false };
        let mut live = LiveLines::new(lines);
        // What can't be is no reason to follow a layer.
        live.observe(observation) != Effect::Ignored
            && all.entry(place).or_insert(Followed { live, told: lines }).is_news()
    }

    /// Forgets what clients reported of every layer.
    pub fn forget_all_corrections(&self) {
        self.followed.lock().expect("no holder of this lock panics").clear();
    }

    /// Forgets what clients reported of a layer that was just measured. What was taken over from another machine is no news of this one.
    pub fn committed(&self, record: &Record) {
        if record.estimate.provenance != Provenance::Measured {
            return;
        }
        let layer = record.estimate.shape.layer();
        let mut followed = self.followed.lock().expect("no holder of this lock panics");
        followed.retain(|place, _| {
            place.layer != layer
                || place.conditions != record.estimate.conditions
                || place.chip != record.chip.key()
                || place.engine != record.engine.key()
        });
    }
}

/// What is stored of a layer, with live lines: they answer where a split was measured to win, but a measured loss stays one.
fn followed(stored: v1::LayerKnowledge, lines: Lines) -> v1::LayerKnowledge {
    let losses = stored.measured.into_iter().filter(|measured| measured.secondary_rows == 0);
    v1::LayerKnowledge {
        lines: Some(lines.into()),
        measured: losses.collect(),
        provenance: v1::Provenance::Observed.into(),
        stale_reason: String::new(),
        layer: stored.layer,
    }
}

/// What the stored records say of a layer, or the chip's prior, or nothing.
fn stored(
    records: &[Arc<Record>],
    rule: &RowRule,
    running: Running<'_>,
    layer: Layer,
    typical_rows: u32,
) -> v1::LayerKnowledge {
    let rows = if typical_rows == 0 { TYPICAL_ROWS } else { typical_rows };
    let typical = running.answer(records, rule, layer, rows);
    let provenance = typical.as_ref().and_then(|answer| match answer.estimate {
        Some(estimate) => Some(estimate.provenance),
        None => answer.lines.map(|_| Provenance::Prior),
    });
    let measured = measured_rows(records, layer).into_iter().filter_map(|rows| {
        let answer = running.answer(records, rule, layer, rows)?;
        Some(v1::MeasuredRows { rows, secondary_rows: answer.secondary_rows })
    });
    v1::LayerKnowledge {
        layer: Some(layer.into()),
        lines: typical.as_ref().and_then(|answer| answer.lines).map(Into::into),
        measured: measured.collect(),
        provenance: provenance.map_or(v1::Provenance::Unspecified, Into::into).into(),
        stale_reason: typical
            .and_then(|answer| answer.stale)
            .map(|reason| reason.to_string())
            .unwrap_or_default(),
    }
}

/// Row counts that a layer was measured at.
fn measured_rows(records: &[Arc<Record>], layer: Layer) -> Vec<u32> {
    let of_layer = records.iter().map(|record| record.estimate.shape).filter(|shape| shape.layer() == layer);
    let mut rows: Vec<u32> = of_layer.map(Shape::rows).collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_what_their_rows_lose_what_a_split_gains_and_of_another_pace() {
        let told = Lines {
            primary_ms_per_row: 0.01,
            secondary_ms_per_row: 0.02,
            overhead_ms: 0.0,
            stock_ms_per_row: 0.01,
        };
        let is_told = |primary: f64, secondary: f64, stock: f64| {
            let now = Lines {
                stock_ms_per_row: told.stock_ms_per_row * stock,
                primary_ms_per_row: told.primary_ms_per_row * primary,
                secondary_ms_per_row: told.secondary_ms_per_row * secondary,
                ..told
            };
            is_worth_telling(&told, &now)
        };
        // Both slower alike: the rows stay right.
        assert!(!is_told(1.09, 1.09, 1.09));
        assert!(is_told(1.11, 1.11, 1.11));
        assert!(is_told(0.89, 0.89, 0.89));
        // One against the other: 0.1 % and 1 % are lost.
        assert!(!is_told(1.0015, 1.0, 1.0015));
        assert!(is_told(1.015, 0.985, 1.015));
        // The rows stay right, if it is worth splitting at all.
        assert!(!is_told(1.0, 1.0, 0.995));
        assert!(is_told(1.0, 1.0, 0.98));
    }
}
