//! Lookup: which belief answers a question, and how.
//!
//! Serving never waits for a measurement: the nearest belief answers, and the answer says how near it was (design section 7). Rows
//! that were never measured are answered through the fitted lines, never by interpolating ratios, and never with a
//! cliff count. What was measured on this machine comes before everything that was taken over from another one, however near
//! ([`Origin`]); then the order of preference is that of [`Source`].

use std::cmp::Ordering;
use std::fmt;

use crate::chip::Chip;
use crate::conditions::Conditions;
use crate::engine::Engine;
use crate::estimate::{Estimate, Origin, StaleReason};
use crate::lines::Lines;
use crate::ratio::Ratio;
use crate::rows::RowRule;
use crate::shape::Shape;

/// Up to this many rows a product is decode (a few sequences, or a handful of drafted tokens): it is bound by reading the
/// weights, a second reader gains nothing, and it is never split.
pub const DECODE_ROWS: u32 = 32;

/// Predicted gain over stock that a split of rows never measured must have: below it, the fit's own error decides. The two-line model
/// predicts the recorded grids' times near their best ratio within about 3 % (median).
pub const PREDICTED_MARGIN: f64 = 0.03;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// The product.
    pub shape: Shape,
    /// The hardware.
    pub chip: &'a Chip,
    /// The code that the asker runs.
    pub engine: &'a Engine,
    /// The state of the machine.
    pub conditions: Conditions,
}

/// A stored belief and where it was measured.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The hardware that it was measured on.
    pub chip: &'a Chip,
    /// The code that it was measured with.
    pub engine: &'a Engine,
    /// The belief.
    pub estimate: &'a Estimate,
    /// Why it should be measured anew, if the store knows a reason (age, drift).
    pub stale: Option<StaleReason>,
}

/// What an answer rests on, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// This shape, chip, engine and these conditions.
    Exact,
    /// This shape, chip and engine under the nearest other conditions.
    OtherConditions,
    /// This layer, chip and engine at another number of rows, through the lines.
    OtherRows,
    /// This layer and chip with another engine: stale.
    OtherEngine,
    /// Shipped for this kind of chip.
    ChipPrior,
    /// Nothing: no split.
    None,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::OtherConditions => "other conditions",
            Self::OtherRows => "other rows",
            Self::OtherEngine => "other engine",
            Self::ChipPrior => "chip prior",
            Self::None => "none",
        })
    }
}

/// Why a candidate wasn't the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WhyNot {
    /// Measured on other hardware.
    OtherChip,
    /// Another layer: inputs, outputs, weight format or layout differ.
    OtherLayer,
    /// It has no lines, and its number of rows isn't the one asked for.
    NoLines,
    /// It was taken over from another machine, and something of this one, or of a more similar one, answers.
    OtherMachine,
    /// A candidate of a nearer source answered.
    NearerSource,
    /// Same source, but its conditions are further away.
    FurtherConditions,
    /// Same source and conditions, but its rows are further away.
    FurtherRows,
    /// Equally near, but trusted less, stale, or older.
    LessTrusted,
    /// Few rows are never split, whatever is believed.
    Decode,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherChip => "measured on another chip",
            Self::OtherLayer => "another layer",
            Self::NoLines => "has no lines and other rows",
            Self::OtherMachine => "taken over from another machine",
            Self::NearerSource => "a nearer one answers",
            Self::FurtherConditions => "its conditions are further away",
            Self::FurtherRows => "its number of rows is further away",
            Self::LessTrusted => "trusted less, stale, or older",
            Self::Decode => "so few rows are never split",
        })
    }
}

/// Why the answer is 0 although something is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZeroReason {
    /// At most [`DECODE_ROWS`] rows.
    Decode,
    /// Measured, and splitting didn't win by more than its uncertainty.
    MeasuredLoss,
    /// The lines predict no gain above [`PREDICTED_MARGIN`] at this number of rows.
    BelowBreakEven,
    /// Nothing is known.
    NothingKnown,
}

impl fmt::Display for ZeroReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Decode => "few rows (decode) are never split",
            Self::MeasuredLoss => "measured: splitting does not win by more than its uncertainty",
            Self::BelowBreakEven => "below the break-even number of rows",
            Self::NothingKnown => "nothing is known of this layer on this chip",
        })
    }
}

/// What is served.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer<'a> {
    /// The share; 0 is stock.
    pub ratio: Ratio,
    /// The secondary unit's rows, never a cliff count.
    pub secondary_rows: u32,
    /// The lines behind it, where there are any.
    pub lines: Option<Lines>,
    /// How near the belief behind it is.
    pub source: Source,
    /// Why that belief should be measured anew, if it should.
    pub stale: Option<StaleReason>,
    /// Why the ratio is 0, where it is.
    pub zero: Option<ZeroReason>,
    /// The belief behind it; `None` for [`Source::ChipPrior`] and [`Source::None`].
    pub estimate: Option<&'a Estimate>,
    /// Indices of the candidates that weren't the answer, and why not, in the order given.
    pub considered: Vec<(usize, WhyNot)>,
}

/// Answers `query` from `candidates` (in any order, of any chip), else from the chip's prior lines for the layer, else with 0.
///
/// `prior` is what [`crate::chips::ChipPrior::lines`] gives for the layer, where the chip is known; `rule` that of the chip.
pub fn answer<'a>(
    query: &Query<'_>,
    candidates: &[Candidate<'a>],
    prior: Option<Lines>,
    rule: &RowRule,
) -> Answer<'a> {
    let ranks: Vec<Result<Rank, WhyNot>> =
        candidates.iter().map(|candidate| Rank::of(query, candidate)).collect();
    let best = ranks
        .iter()
        .enumerate()
        .filter_map(|(index, rank)| rank.as_ref().ok().map(|rank| (index, rank)))
        .min_by(|(_, a), (_, b)| a.compare(b));
    let considered = |winner: Option<&Rank>, chosen: Option<usize>| {
        ranks
            .iter()
            .enumerate()
            .filter(|(index, _)| Some(*index) != chosen)
            .map(|(index, rank)| {
                let why = match (rank, winner) {
                    (Err(why), _) => *why,
                    (Ok(rank), Some(winner)) => rank.why_behind(winner),
                    (Ok(_), None) => WhyNot::Decode,
                };
                (index, why)
            })
            .collect()
    };
    if query.shape.rows() <= DECODE_ROWS {
        return Answer { considered: considered(None, None), ..zero(ZeroReason::Decode) };
    }
    match (best, prior) {
        (Some((index, rank)), _) => Answer {
            considered: considered(Some(rank), Some(index)),
            ..from_candidate(query, &candidates[index], rank.source, rule)
        },
        (None, Some(lines)) => Answer {
            source: Source::ChipPrior,
            considered: considered(None, None),
            ..through_lines(query.shape, lines, rule)
        },
        (None, None) => Answer { considered: considered(None, None), ..zero(ZeroReason::NothingKnown) },
    }
}

fn zero<'a>(reason: ZeroReason) -> Answer<'a> {
    Answer {
        ratio: Ratio::ZERO,
        secondary_rows: 0,
        lines: None,
        source: Source::None,
        stale: None,
        zero: Some(reason),
        estimate: None,
        considered: Vec::new(),
    }
}

fn from_candidate<'a>(
    query: &Query<'_>,
    candidate: &Candidate<'a>,
    source: Source,
    rule: &RowRule,
) -> Answer<'a> {
    let estimate = candidate.estimate;
    let engine_changed = (source == Source::OtherEngine).then_some(StaleReason::EngineChanged);
    let served = match estimate.lines {
        _ if estimate.shape == query.shape => as_measured(query.shape, estimate, rule),
        // A loss at more rows than asked for is a loss here too: the overhead weighs more.
        Some(_) if !estimate.ratio.splits() && estimate.shape.rows() > query.shape.rows() => {
            zero(ZeroReason::MeasuredLoss)
        }
        Some(lines) => through_lines(query.shape, lines, rule),
        None => zero(ZeroReason::NothingKnown),
    };
    Answer {
        lines: estimate.lines,
        source,
        stale: engine_changed.or(candidate.stale),
        estimate: Some(estimate),
        ..served
    }
}

/// The very shape was measured: what won there, unless the row rule has learnt of a cliff since.
fn as_measured<'a>(shape: Shape, estimate: &Estimate, rule: &RowRule) -> Answer<'a> {
    let rows = rule.nearest_allowed(shape, estimate.secondary_rows);
    if rows == 0 {
        return zero(ZeroReason::MeasuredLoss);
    }
    let ratio = if rows == estimate.secondary_rows { estimate.ratio } else { share(shape, rows) };
    Answer { ratio, secondary_rows: rows, zero: None, ..zero(ZeroReason::NothingKnown) }
}

/// The secondary unit's rows that `lines` predict for `shape`; 0 for decode, and where no gain above [`PREDICTED_MARGIN`] is predicted.
/// Allocates nothing: clients call it for every product.
pub fn predicted_rows(shape: Shape, lines: &Lines, rule: &RowRule) -> u32 {
    if shape.rows() <= DECODE_ROWS {
        return 0;
    }
    let rows = rule.best_rows(shape, lines);
    let gain = lines.stock_ms(shape.rows()) / lines.split_ms(shape.rows(), rows) - 1.0;
    if gain > PREDICTED_MARGIN { rows } else { 0 }
}

fn through_lines<'a>(shape: Shape, lines: Lines, rule: &RowRule) -> Answer<'a> {
    let rows = predicted_rows(shape, &lines, rule);
    if rows == 0 {
        return Answer { lines: Some(lines), ..zero(ZeroReason::BelowBreakEven) };
    }
    Answer {
        ratio: share(shape, rows),
        secondary_rows: rows,
        lines: Some(lines),
        zero: None,
        ..zero(ZeroReason::NothingKnown)
    }
}

fn share(shape: Shape, rows: u32) -> Ratio {
    Ratio::saturating(f64::from(rows) / f64::from(shape.rows()))
}

/// How near a candidate is; smaller is nearer.
struct Rank {
    origin: Origin,
    source: Source,
    conditions: u32,
    rows: f64,
    less_trusted: (bool, u8, u64),
}

impl Rank {
    fn of(query: &Query<'_>, candidate: &Candidate<'_>) -> Result<Self, WhyNot> {
        let estimate = candidate.estimate;
        if candidate.chip != query.chip {
            return Err(WhyNot::OtherChip);
        }
        if estimate.shape.layer() != query.shape.layer() {
            return Err(WhyNot::OtherLayer);
        }
        let same_rows = estimate.shape.rows() == query.shape.rows();
        if !same_rows && estimate.lines.is_none() {
            return Err(WhyNot::NoLines);
        }
        let source = match (candidate.engine == query.engine, same_rows) {
            (false, _) => Source::OtherEngine,
            (true, false) => Source::OtherRows,
            (true, true) if estimate.conditions == query.conditions => Source::Exact,
            (true, true) => Source::OtherConditions,
        };
        let apart = (f64::from(estimate.shape.rows()) / f64::from(query.shape.rows())).ln().abs();
        Ok(Self {
            origin: estimate.provenance.origin(),
            source,
            conditions: estimate.conditions.distance(query.conditions),
            rows: apart,
            less_trusted: (
                candidate.stale.is_some(),
                u8::MAX - estimate.provenance.code(),
                u64::MAX - estimate.measured_at_unix_ms,
            ),
        })
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.origin
            .cmp(&other.origin)
            .then(self.source.cmp(&other.source))
            .then(self.conditions.cmp(&other.conditions))
            .then(self.rows.total_cmp(&other.rows))
            .then(self.less_trusted.cmp(&other.less_trusted))
    }

    fn why_behind(&self, winner: &Self) -> WhyNot {
        if self.origin > winner.origin {
            WhyNot::OtherMachine
        } else if self.source > winner.source {
            WhyNot::NearerSource
        } else if self.conditions > winner.conditions {
            WhyNot::FurtherConditions
        } else if self.rows > winner.rows {
            WhyNot::FurtherRows
        } else {
            WhyNot::LessTrusted
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chip::{Cooling, Pair};
    use crate::conditions::Thermal;
    use crate::estimate::Provenance;
    use crate::shape::{Layer, Layout, WeightFormat};
    use crate::stats::Interval;
    use proptest::prelude::*;

    const LINES: Lines = Lines {
        primary_ms_per_row: 0.01,
        secondary_ms_per_row: 0.03,
        overhead_ms: 0.5,
        stock_ms_per_row: 0.01,
    };

    fn chip() -> Chip {
        Chip {
            brand: "Apple M4".to_owned(),
            gpu_cores: Some(10),
            memory_gib: 24,
            model_identifier: "Mac16,10".to_owned(),
            cooling: Cooling::Active,
            pair: Pair::GpuAndCpu,
        }
    }

    fn engine(version: &str) -> Engine {
        Engine {
            os_build: "25G83".to_owned(),
            mlx_version: version.to_owned(),
            library_hash: "ab".to_owned(),
        }
    }

    fn shape(rows: u32) -> Shape {
        Layer::new(14336, 4096, WeightFormat::F16, Layout::default()).unwrap().with_rows(rows).unwrap()
    }

    fn hot() -> Conditions {
        Conditions { thermal: Thermal::Heavy, ..Conditions::default() }
    }

    fn estimate(rows: u32, ratio: f64) -> Estimate {
        Estimate {
            shape: shape(rows),
            conditions: Conditions::default(),
            lines: Some(LINES),
            ratio: Ratio::new(ratio).unwrap(),
            secondary_rows: (f64::from(rows) * ratio) as u32,
            stock_ms: 10.0,
            split_ms: 8.0,
            speed_up: Interval::exact(1.25),
            kept_samples: 9,
            dropped_samples: 1,
            relative_error: None,
            measured_at_unix_ms: 1,
            provenance: Provenance::Measured,
        }
    }

    fn candidate<'a>(chip: &'a Chip, engine: &'a Engine, estimate: &'a Estimate) -> Candidate<'a> {
        Candidate { chip, engine, estimate, stale: None }
    }

    #[test]
    fn the_nearest_source_answers_and_the_rest_say_why_not() {
        let (chip, old, new) = (chip(), engine("0.31"), engine("0.32"));
        let exact = estimate(1000, 0.25);
        let warm = Estimate { conditions: hot(), ..estimate(1000, 0.2) };
        let other_rows = estimate(2000, 0.3);
        let rule = RowRule::apple();
        let query =
            Query { shape: shape(1000), chip: &chip, engine: &new, conditions: Conditions::default() };
        let all = [
            candidate(&chip, &old, &exact),
            candidate(&chip, &new, &other_rows),
            candidate(&chip, &new, &warm),
            candidate(&chip, &new, &exact),
        ];
        for (count, source) in [
            (4, Source::Exact),
            (3, Source::OtherConditions),
            (2, Source::OtherRows),
            (1, Source::OtherEngine),
        ] {
            let answer = answer(&query, &all[..count], Some(LINES), &rule);
            assert_eq!(answer.source, source);
            assert_eq!(answer.considered.len(), count - 1);
            assert!(answer.considered.iter().all(|(_, why)| *why == WhyNot::NearerSource));
            assert_eq!(answer.stale.is_some(), source == Source::OtherEngine);
            assert!(answer.ratio.splits());
        }
        assert_eq!(answer(&query, &[], Some(LINES), &rule).source, Source::ChipPrior);
        assert_eq!(answer(&query, &[], None, &rule).zero, Some(ZeroReason::NothingKnown));
    }

    #[test]
    fn what_was_measured_here_comes_before_what_was_taken_over() {
        let (chip, old, new) = (chip(), engine("0.31"), engine("0.32"));
        let of = |provenance, estimate| Estimate { provenance, ..estimate };
        let measured = of(Provenance::Measured, Estimate { conditions: hot(), ..estimate(4000, 0.2) });
        let imported = of(Provenance::Imported, estimate(1000, 0.25));
        let guess = of(Provenance::Prior, estimate(1000, 0.3));
        let query =
            Query { shape: shape(1000), chip: &chip, engine: &new, conditions: Conditions::default() };
        let all = [
            candidate(&chip, &new, &guess),
            candidate(&chip, &new, &imported),
            candidate(&chip, &old, &measured),
        ];
        for (count, chosen) in [(1, &guess), (2, &imported), (3, &measured)] {
            let answer = answer(&query, &all[..count], Some(LINES), &RowRule::apple());
            assert_eq!(answer.estimate, Some(chosen));
            assert!(answer.considered.iter().all(|(_, why)| *why == WhyNot::OtherMachine));
        }
    }

    #[test]
    fn a_measured_zero_is_served_and_holds_for_fewer_rows() {
        let (chip, engine, loss) = (chip(), engine("1"), estimate(1000, 0.0));
        for rows in [1000, 500] {
            let query = Query { shape: shape(rows), chip: &chip, engine: &engine, conditions: hot() };
            let answer = answer(&query, &[candidate(&chip, &engine, &loss)], Some(LINES), &RowRule::apple());
            assert_eq!((answer.secondary_rows, answer.zero), (0, Some(ZeroReason::MeasuredLoss)));
        }
    }

    #[test]
    fn decode_is_never_split() {
        let (chip, engine, exact) = (chip(), engine("1"), estimate(DECODE_ROWS, 0.25));
        let query = Query {
            shape: shape(DECODE_ROWS),
            chip: &chip,
            engine: &engine,
            conditions: Conditions::default(),
        };
        let free = Lines { overhead_ms: 0.0, ..LINES };
        let answer = answer(&query, &[candidate(&chip, &engine, &exact)], Some(free), &RowRule::apple());
        assert_eq!((answer.ratio, answer.zero), (Ratio::ZERO, Some(ZeroReason::Decode)));
    }

    #[test]
    fn other_chips_and_layers_never_answer() {
        let (chip, engine, exact) = (chip(), engine("1"), estimate(1000, 0.25));
        let recorded = Chip { pair: Pair::Recorded, ..chip.clone() };
        let other =
            Layer::new(64, 64, WeightFormat::F16, Layout::default()).unwrap().with_rows(1000).unwrap();
        let conditions = Conditions::default();
        let candidates = [candidate(&recorded, &engine, &exact)];
        let query = Query { shape: shape(1000), chip: &chip, engine: &engine, conditions };
        assert_eq!(answer(&query, &candidates, None, &RowRule::apple()).considered, [(0, WhyNot::OtherChip)]);
        let query = Query { shape: other, chip: &recorded, engine: &engine, conditions };
        assert_eq!(
            answer(&query, &candidates, None, &RowRule::apple()).considered,
            [(0, WhyNot::OtherLayer)]
        );
    }

    prop_compose! {
        fn beliefs()(
            rows in prop::sample::select(vec![64u32, 500, 1000, 1001, 4000]), ratio in 0.0f64..=0.5, lines: bool, hot_then: bool,
            provenance in prop::sample::select(Provenance::ALL.to_vec()), measured_at_unix_ms in 0u64..9,
        ) -> Estimate {
            let conditions = if hot_then { hot() } else { Conditions::default() };
            Estimate { conditions, provenance, measured_at_unix_ms, lines: lines.then_some(LINES), ..estimate(rows, ratio) }
        }
    }

    proptest! {
        #[test]
        fn nothing_imported_answers_where_something_measured_here_could(
            known in prop::collection::vec((beliefs(), any::<bool>()), 1..8),
        ) {
            let (chip, old, new) = (chip(), engine("1"), engine("2"));
            let candidates: Vec<_> =
                known.iter().map(|(estimate, current)| candidate(&chip, if *current { &new } else { &old }, estimate)).collect();
            let query = Query { shape: shape(1000), chip: &chip, engine: &new, conditions: Conditions::default() };
            let answer = answer(&query, &candidates, Some(LINES), &RowRule::apple());
            let nearest = known
                .iter()
                .filter(|(estimate, _)| estimate.lines.is_some() || estimate.shape == query.shape)
                .map(|(estimate, _)| estimate.provenance.origin())
                .min();
            prop_assert_eq!(answer.estimate.map(|estimate| estimate.provenance.origin()), nearest);
        }

        #[test]
        fn any_tail_gets_a_lawful_answer(rows in 1u32..20_000, measured in 1u32..20_000, ratio in 0.0f64..=0.9) {
            let (chip, engine, known, rule) = (chip(), engine("1"), estimate(measured, ratio), RowRule::apple());
            let query = Query { shape: shape(rows), chip: &chip, engine: &engine, conditions: Conditions::default() };
            let answer = answer(&query, &[candidate(&chip, &engine, &known)], None, &rule);
            prop_assert!(!rule.is_cliff(answer.secondary_rows, 14336));
            prop_assert!(f64::from(answer.secondary_rows) <= 0.9 * f64::from(rows) + 1.0);
            prop_assert_eq!(answer.zero.is_some(), answer.secondary_rows == 0);
            if rows != measured && f64::from(rows) < LINES.break_even_rows().unwrap() {
                prop_assert_eq!(answer.secondary_rows, 0);
            }
        }
    }
}
