//! What is wanted, in which order.
//!
//! Layers of attached clients come first, then recently used ones, then configured models. Among equals comes first what promises most: what the
//! split is predicted to gain, times the share of it that the present answer is expected to lose. Every eighth job goes to whoever was passed over
//! for longest instead, so that nothing waits for ever: of n shapes that stay wanted, each is chosen within 8 n jobs.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use fusion_calibrations::shape::Shape;

use super::policy::Policy;
use super::staleness::{Believed, Known, Staleness};

/// The longest submission. The worker is dead within this time of a client's first product, also where submitted GPU work can't be recalled.
pub const LONGEST_SUBMISSION: Duration = Duration::from_millis(50);
/// How much longer than predicted a call may take: the first after a change of arm, on a machine that is warm.
const CALL_MARGIN: f64 = 1.25;
/// Calibrations of one shape differ by less than this factor, heat included.
const NEARLY: f64 = 1.15;
/// Fewer rows than these tell nothing of many: what a split costs beyond its rows weighs too much.
const FEWEST_ROWS: u32 = 128;
/// Calls of a calibration, at most (`calibrations::search::Budget`).
const CALLS: f64 = 12.0;
/// How much more than it needs at most a job may take before it is stopped: calls that others disturbed are made again.
const ALLOWANCE: f64 = 2.0;
/// What a split is expected to gain where nothing is known: the middle of the recorded blocks.
const UNKNOWN_GAIN: f64 = 0.2;
/// No gain is known well enough to be called none.
const LEAST_GAIN: f64 = 0.02;
/// Shapes whose turns are remembered; of more, those chosen longest ago are forgotten.
const MOST: usize = 8192;

/// Who wants a shape. The order is that of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interest {
    /// A configured model.
    Configured,
    /// A client that was attached lately.
    Recent,
    /// An attached client.
    Attached,
}

impl fmt::Display for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configured => "a configured model has it",
            Self::Recent => "it was used lately",
            Self::Attached => "an attached client runs it",
        })
    }
}

/// A shape that should be known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Want {
    /// The shape, as [`measurable`] makes it.
    pub shape: Shape,
    /// Who wants it.
    pub interest: Interest,
    /// What is served for it.
    pub known: Known,
}

/// The shape that is measured to know `shape`, of which `known` is served: as many rows, halved until a call is one submission. More rows are answered
/// through its lines.
///
/// Where lines lie near the limit, a new calibration must not ask for another number of rows than the one before: what was measured stays, if it
/// is nearly right.
pub fn measurable(shape: Shape, known: &Known) -> Shape {
    let Some(lines) = known.lines() else { return shape };
    let limit_ms = LONGEST_SUBMISSION.as_secs_f64() * 1e3;
    let call_ms = |rows: u32| lines.stock_ms(rows) * CALL_MARGIN;
    let halved = |rows: u32, limit_ms: f64| rows >= 2 * FEWEST_ROWS && call_ms(rows) > limit_ms;
    let cut = |limit_ms: f64| {
        let mut rows = shape.rows();
        while halved(rows, limit_ms) {
            rows /= 2;
        }
        rows
    };
    let rows = match known {
        Known::Calibrated(Believed { shape: measured, .. })
            if [limit_ms * NEARLY, limit_ms / NEARLY].map(cut).contains(&measured.rows()) =>
        {
            measured.rows()
        }
        _ => cut(limit_ms),
    };
    shape.layer().with_rows(rows).unwrap_or(shape)
}

impl Want {
    /// Machine time that measuring it takes, at most, in ms. A shape of unknown speed is assumed to fill its submissions.
    pub fn need_ms(&self) -> f64 {
        let call_ms = match self.known.lines() {
            Some(lines) => lines.stock_ms(self.shape.rows()) * CALL_MARGIN,
            None => LONGEST_SUBMISSION.as_secs_f64() * 1e3,
        };
        // A record with nonsense in it is no free ticket.
        if call_ms.is_finite() && call_ms > 0.0 { CALLS * call_ms } else { f64::INFINITY }
    }

    /// What a job for it may take before it is stopped, in ms, out of `credit_ms`.
    pub fn allowance_ms(&self, credit_ms: f64) -> f64 {
        match self.known.lines() {
            Some(_) => credit_ms.min(ALLOWANCE * self.need_ms()),
            None => credit_ms,
        }
    }

    /// What measuring it is expected to win, as a share of its time.
    pub fn promise(&self, why: &Staleness) -> f64 {
        let gain = self.known.lines().map_or(UNKNOWN_GAIN, |lines| {
            let rows = self.shape.rows();
            let secondary = (f64::from(rows) * lines.balanced_ratio().get()) as u32;
            lines.stock_ms(rows) / lines.split_ms(rows, secondary) - 1.0
        });
        let gain = if gain.is_finite() { gain.clamp(LEAST_GAIN, 1.0) } else { UNKNOWN_GAIN };
        why.loses() * gain
    }
}

/// A want that is due, with why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Due<'a> {
    /// The want.
    pub want: &'a Want,
    /// Why it is due.
    pub why: Staleness,
}

impl Due<'_> {
    /// Who comes first; ties are broken by the shape, so that the same question has the same answer.
    pub fn precedence(&self, other: &Self) -> Ordering {
        let promise = |due: &Self| due.want.promise(&due.why);
        other
            .want
            .interest
            .cmp(&self.want.interest)
            .then(promise(other).total_cmp(&promise(self)))
            .then(shape_order(self.want.shape).cmp(&shape_order(other.want.shape)))
    }
}

fn shape_order(shape: Shape) -> (fusion_calibrations::shape::Layer, u32) {
    (shape.layer(), shape.rows())
}

/// Whose turn it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turns {
    jobs: u64,
    chosen: BTreeMap<Shape, u64>,
}

impl Turns {
    /// A job for `shape` starts.
    pub fn started(&mut self, shape: Shape) {
        self.jobs += 1;
        self.chosen.insert(shape, self.jobs);
        if self.chosen.len() > MOST {
            let oldest = self.chosen.iter().min_by_key(|(_, job)| **job).map(|(shape, _)| *shape);
            self.chosen.retain(|shape, _| Some(*shape) != oldest);
        }
    }

    /// The one that comes next.
    pub fn next<'a>(&self, due: &[Due<'a>], policy: &Policy) -> Option<Due<'a>> {
        let fair = (self.jobs + 1).is_multiple_of(policy.fair_turn.max(1));
        let waited = |due: &Due<'_>| self.chosen.get(&due.want.shape).copied().unwrap_or(0);
        let order = |a: &&Due<'a>, b: &&Due<'a>| {
            let by_turn = if fair { waited(a).cmp(&waited(b)) } else { Ordering::Equal };
            by_turn.then(a.precedence(b))
        };
        due.iter().min_by(order).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::Moment;
    use crate::planner::examples::LINES;
    use fusion_calibrations::conditions::Conditions;
    use fusion_calibrations::estimate::Provenance;
    use fusion_calibrations::lines::Lines;
    use fusion_calibrations::shape::{Layout, WeightFormat};
    use proptest::prelude::*;

    fn shape(rows: u32) -> Shape {
        Shape::parse(&format!("{rows}x64x64"), WeightFormat::F16, Layout::default()).unwrap()
    }

    fn want(rows: u32, interest: Interest, known: Known) -> Want {
        Want { shape: shape(rows), interest, known }
    }

    #[test]
    fn a_call_is_one_submission() {
        let cut = |rows, lines| measurable(shape(rows), &Known::Prior(lines));
        assert_eq!(cut(4000, LINES), shape(4000));
        assert_eq!(cut(4001, LINES), shape(2000));
        assert_eq!(cut(8192, LINES), shape(2048));
        assert_eq!(measurable(shape(8192), &Known::Nothing), shape(8192));
        assert_eq!(cut(8192, Lines { stock_ms_per_row: 1e9, ..LINES }), shape(128));
        let nonsense = Lines { stock_ms_per_row: f64::NAN, ..LINES };
        assert_eq!(cut(8192, nonsense), shape(8192));
        assert_eq!(want(1, Interest::Attached, Known::Prior(nonsense)).need_ms(), f64::INFINITY);
    }

    #[test]
    fn near_the_limit_what_was_measured_stays() {
        let calibrated = |rows, slower: f64| {
            Known::Calibrated(Believed {
                shape: shape(rows),
                conditions: Conditions::default(),
                measured_at: Moment::default(),
                provenance: Provenance::Measured,
                lines: Some(Lines { stock_ms_per_row: LINES.stock_ms_per_row * slower, ..LINES }),
                secondary_rows: rows / 4,
                speed_up: 1.3,
            })
        };
        for slower in [0.9, 0.97, 1.0, 1.03, 1.1] {
            assert_eq!(measurable(shape(4000), &calibrated(4000, slower)), shape(4000), "{slower}");
            assert_eq!(measurable(shape(4000), &calibrated(2000, slower)), shape(2000), "{slower}");
        }
        assert_eq!(measurable(shape(4000), &calibrated(4000, 1.3)), shape(2000));
        assert_eq!(measurable(shape(4000), &calibrated(2000, 0.8)), shape(4000));
        assert_eq!(measurable(shape(4000), &calibrated(3000, 1.0)), shape(4000));
    }

    #[test]
    fn attached_clients_come_first_then_what_promises_most() {
        let wants = [
            want(1, Interest::Configured, Known::Nothing),
            want(2, Interest::Recent, Known::Nothing),
            want(3, Interest::Attached, Known::Prior(LINES)),
            want(4, Interest::Attached, Known::Nothing),
        ];
        let due: Vec<Due<'_>> = wants
            .iter()
            .map(|want| {
                let why = match want.known {
                    Known::Nothing => Staleness::NothingKnown,
                    _ => Staleness::PriorOnly,
                };
                Due { want, why }
            })
            .collect();
        let (mut turns, policy) = (Turns::default(), Policy::default());
        let mut rest = due.clone();
        for expected in [4, 3, 2, 1] {
            let next = turns.next(&rest, &policy).unwrap();
            assert_eq!(next.want.shape, shape(expected));
            turns.started(next.want.shape);
            rest.retain(|due| due.want.shape != next.want.shape);
        }
    }

    #[test]
    fn what_is_predicted_to_gain_more_promises_more() {
        let gains_little = Lines { secondary_ms_per_row: 0.3, ..LINES };
        let [little, much] =
            [gains_little, LINES].map(|lines| want(4096, Interest::Attached, Known::Prior(lines)));
        assert!(much.promise(&Staleness::PriorOnly) > little.promise(&Staleness::PriorOnly));
        assert!(little.promise(&Staleness::NothingKnown) > little.promise(&Staleness::Age { days: 1 }));
    }

    proptest! {
        /// Whatever the interests, and though nothing ever becomes fresh: nobody is passed over for more than 8 n jobs.
        #[test]
        fn nobody_starves(interests in prop::collection::vec(0u8..3, 1..12)) {
            let policy = Policy::default();
            let wants: Vec<Want> = interests
                .iter()
                .zip(1..)
                .map(|(interest, rows)| {
                    let interest = [Interest::Configured, Interest::Recent, Interest::Attached][usize::from(*interest)];
                    want(rows, interest, Known::Nothing)
                })
                .collect();
            let due: Vec<Due<'_>> = wants.iter().map(|want| Due { want, why: Staleness::NothingKnown }).collect();
            let mut turns = Turns::default();
            let mut waited = vec![0u64; wants.len()];
            for _ in 0..1000 {
                let next = turns.next(&due, &policy).unwrap();
                turns.started(next.want.shape);
                for (want, waited) in wants.iter().zip(&mut waited) {
                    *waited = if want.shape == next.want.shape { 0 } else { *waited + 1 };
                    prop_assert!(*waited <= policy.fair_turn * wants.len() as u64);
                }
            }
        }
    }
}
