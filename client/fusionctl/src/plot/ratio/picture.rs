//! What is shown.

use fusion_calibrations::lines::Lines;
use fusion_client::v1;

use crate::failure::Failure;
use crate::plot::nothing;
use crate::render::words;

/// How far the picture goes beyond the balance and beyond the last measured point, as factors.
const BEYOND_BALANCE: f64 = 1.7;
const BEYOND_POINTS: f64 = 1.12;
const BEYOND_TIMES: f64 = 1.12;

/// What is shown.
#[derive(Debug)]
pub(super) struct Picture {
    /// The answer in a line.
    pub(super) title: String,
    /// Where it holds: chip, conditions, what it rests on.
    pub(super) notes: Vec<String>,
    /// What must be told of the pair.
    pub(super) label: Option<String>,
    /// Rows of the shape.
    pub(super) rows: u32,
    /// The lines.
    pub(super) lines: Option<Lines>,
    /// Time of stock, in ms.
    pub(super) stock_ms: Option<f64>,
    /// What was measured.
    pub(super) points: Vec<Point>,
    /// Rows that are never chosen.
    pub(super) cliffs: Vec<u32>,
    /// The answer's rows and predicted or measured time; `None` for no split.
    pub(super) chosen: Option<(u32, f64)>,
    /// Where the axes end: rows and ms.
    pub(super) ends: (f64, f64),
}

/// A measured point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) secondary_rows: u32,
    pub(super) ms: v1::Interval,
    /// Whether it is the choice, or stock where that is.
    pub(super) counts: bool,
}

impl Picture {
    pub(super) fn new(shape: &v1::Shape, reply: &v1::ExplainRatioReply) -> Result<Self, Failure> {
        let answer = reply.answer.clone().unwrap_or_default();
        let lines = answer.lines.as_ref().map(Lines::from);
        let estimate = answer.estimate.as_ref();
        // Points of another number of rows have other times.
        let here = estimate.filter(|known| known.shape.as_ref() == Some(shape));
        let points: Vec<Point> = reply.points.iter().filter(|_| here.is_some()).filter_map(point).collect();
        if lines.is_none() && points.is_empty() {
            return Err(nothing(shape));
        }
        let rows = f64::from(shape.rows);
        let stock_ms = here.map(|known| known.stock_ms).or(lines.map(|lines| lines.stock_ms(shape.rows)));
        let mut picture = Self {
            title: title(shape, &answer),
            notes: notes(shape, &answer),
            label: answer.chip.as_ref().map(|chip| chip.pair_label.clone()).filter(|label| !label.is_empty()),
            rows: shape.rows,
            lines,
            stock_ms,
            cliffs: reply.cliffs.iter().map(|cliff| cliff.secondary_rows).collect(),
            chosen: chosen(shape, &answer, lines, &points),
            points,
            ends: (rows, 1.0),
        };
        picture.ends = (picture.last_row().min(rows), picture.last_ms());
        Ok(picture)
    }

    fn last_row(&self) -> f64 {
        let balance = self.lines.map_or(0.0, |lines| lines.balanced_ratio().get() * f64::from(self.rows));
        let measured = self.points.iter().map(|point| f64::from(point.secondary_rows)).fold(0.0, f64::max);
        (balance * BEYOND_BALANCE).max(measured * BEYOND_POINTS).max(1.0)
    }

    fn last_ms(&self) -> f64 {
        let measured = self.points.iter().map(|point| point.ms.high).fold(0.0, f64::max);
        let left = self
            .lines
            .map_or(0.0, |lines| lines.primary_ms_per_row * f64::from(self.rows) + lines.overhead_ms);
        self.stock_ms.unwrap_or(0.0).max(measured).max(left) * BEYOND_TIMES
    }
}

fn point(wire: &v1::MeasuredPoint) -> Option<Point> {
    Some(Point {
        secondary_rows: wire.secondary_rows,
        ms: wire.total_ms?,
        counts: matches!(wire.fate(), v1::Fate::Chosen | v1::Fate::Stock),
    })
}

fn chosen(
    shape: &v1::Shape,
    answer: &v1::GetRatioReply,
    lines: Option<Lines>,
    points: &[Point],
) -> Option<(u32, f64)> {
    let rows = Some(answer.secondary_rows).filter(|rows| *rows > 0)?;
    let measured = points.iter().find(|point| point.secondary_rows == rows).map(|point| point.ms.value);
    Some((rows, measured.or(lines.map(|lines| lines.split_ms(shape.rows, rows)))?))
}

fn title(shape: &v1::Shape, answer: &v1::GetRatioReply) -> String {
    let rows = answer.secondary_rows;
    let choice = if rows == 0 {
        "no split".to_owned()
    } else {
        format!("{rows} of {} rows on the secondary unit, ratio {}", shape.rows, words::ratio(answer.ratio))
    };
    format!("{}: {choice}", words::shape(shape, true))
}

fn notes(shape: &v1::Shape, answer: &v1::GetRatioReply) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(chip) = &answer.chip {
        let estimate = answer.estimate.as_ref();
        let conditions = estimate.and_then(|known| known.conditions.as_ref()).or(answer.conditions.as_ref());
        notes.push(format!("{}; conditions: {}", words::chip(chip), words::conditions(conditions)));
    }
    notes.push(match &answer.estimate {
        Some(known) => basis(shape, known),
        None if answer.lines.is_none() => "nothing is known".to_owned(),
        None => "from the shipped prior of this kind of chip: nothing was measured here".to_owned(),
    });
    notes.extend(answer.estimate.as_ref().and_then(|known| known.engine.as_ref()).map(words::engine));
    notes
}

/// What was measured, and at which rows if not at these.
fn basis(shape: &v1::Shape, known: &v1::Estimate) -> String {
    let facts = format!(
        "speed-up {} (95 %); {} of {} calls count; {}, {}",
        words::interval(known.speed_up),
        known.kept_samples,
        known.kept_samples.saturating_add(known.dropped_samples),
        words::provenance(known),
        words::moment_utc(known.measured_at_unix_ms)
    );
    match known.shape.as_ref().filter(|other| *other != shape) {
        Some(other) => {
            format!("no call was made at {} rows; lines of {} rows: {facts}", shape.rows, other.rows)
        }
        None => facts,
    }
}
