//! Why a shape should be measured, or measured anew. What is known keeps being served meanwhile, with its reason.

use std::fmt;
use std::time::Duration;

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::estimate::{Estimate, Provenance, StaleReason};
use fusion_calibrations::lines::Lines;
use fusion_calibrations::lookup::{Answer, Source};
use fusion_calibrations::shape::Shape;

use super::evidence::Seen;
use super::moment::Moment;
use super::policy::Policy;

/// Row counts up to this factor apart are answered through the same lines: a tail needs no calibration of its own.
const NEAR_ROWS: f64 = 2.0;
/// A calibration so far in the future was made while the clock was wrong: its age says nothing.
const CLOCK_ERROR: Duration = Duration::from_secs(24 * 3600);
/// Difference of two speed-ups (logarithm) that noise doesn't explain: five deviations of one from a pair of calls.
const CONTRADICTION: f64 = 0.12;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The stored belief that answers for a shape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Believed {
    /// What was measured.
    pub shape: Shape,
    /// Under which conditions.
    pub conditions: Conditions,
    /// When.
    pub measured_at: Moment,
    /// Where it comes from.
    pub provenance: Provenance,
    /// The fitted lines, where there are any.
    pub lines: Option<Lines>,
    /// The secondary unit's rows that were chosen; 0 is stock.
    pub secondary_rows: u32,
    /// Stock over the chosen split, as measured; 1 for stock.
    pub speed_up: f64,
}

impl Believed {
    /// Whether its own lines speak against what was compared: an accident decided one of both. Where stock was chosen nobody would ever
    /// notice, since what isn't split isn't observed.
    pub fn is_doubtful(&self) -> bool {
        let Some(lines) = self.lines else { return false };
        let rows = self.shape.rows();
        let balanced = (f64::from(rows) * lines.balanced_ratio().get()) as u32;
        let split = if self.secondary_rows > 0 { self.secondary_rows } else { balanced };
        let predicted = lines.stock_ms(rows) / lines.split_ms(rows, split);
        let against = (predicted / self.speed_up).ln();
        // That stock isn't beaten is no contradiction to lines that predict a loss.
        let doubtful = if self.secondary_rows > 0 { against.abs() } else { against };
        doubtful > CONTRADICTION
    }
}

impl From<&Estimate> for Believed {
    fn from(estimate: &Estimate) -> Self {
        Self {
            shape: estimate.shape,
            conditions: estimate.conditions,
            measured_at: Moment::from_unix_ms(estimate.measured_at_unix_ms),
            provenance: estimate.provenance,
            lines: estimate.lines,
            secondary_rows: estimate.secondary_rows,
            speed_up: if estimate.ratio.splits() { estimate.stock_ms / estimate.split_ms } else { 1.0 },
        }
    }
}

/// What is served for a shape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Known {
    /// Nothing: stock.
    Nothing,
    /// The chip's shipped prior.
    Prior(Lines),
    /// A calibration by another engine.
    OtherEngine(Believed),
    /// A calibration of the layer by this engine, of whatever rows and under whatever conditions.
    Calibrated(Believed),
}

impl Known {
    /// What an answer of `calibrations::lookup` rests on.
    pub fn of(answer: &Answer<'_>) -> Self {
        match (answer.estimate, answer.source, answer.lines) {
            (Some(estimate), Source::OtherEngine, _) => Self::OtherEngine(estimate.into()),
            (Some(estimate), _, _) => Self::Calibrated(estimate.into()),
            (None, Source::ChipPrior, Some(lines)) => Self::Prior(lines),
            (None, _, _) => Self::Nothing,
        }
    }

    /// The lines that it answers with.
    pub fn lines(&self) -> Option<Lines> {
        match self {
            Self::Nothing => None,
            Self::Prior(lines) => Some(*lines),
            Self::OtherEngine(believed) | Self::Calibrated(believed) => believed.lines,
        }
    }
}

/// Why a shape should be measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Staleness {
    /// Nothing is known of its layer.
    NothingKnown,
    /// Only a prior is: the chip's, or one that was taken over from another chip.
    PriorOnly,
    /// The OS build or the MLX library changed.
    EngineChanged,
    /// It was taken over from an equal machine.
    Imported,
    /// Running clients see other times.
    Drift {
        /// What the stored ratio loses by them, as a share.
        loss: f64,
    },
    /// Its own lines speak against what was compared.
    Doubtful,
    /// These conditions were never seen.
    NewConditions,
    /// Only row counts far away were measured.
    NewRows {
        /// The nearest.
        nearest: u32,
    },
    /// Nobody confirmed it for long.
    Age {
        /// For how long.
        days: u64,
    },
    /// It says that it was measured in the future.
    ClockWasWrong,
}

impl Staleness {
    /// What the answer is expected to lose meanwhile, as a share of what the right split gains: by how much what it rests on is off, in the
    /// recordings behind `calibrations` where there are any.
    pub fn loses(&self) -> f64 {
        match self {
            // Stock runs, so all of it.
            Self::NothingKnown | Self::Doubtful => 1.0,
            // A session's best ratio costs 6 % of the time in another session, which is about half of what a split gains there.
            Self::PriorOnly | Self::Imported | Self::EngineChanged => 0.5,
            Self::Drift { loss } => (loss / 0.1).clamp(0.1, 1.0),
            Self::NewConditions => 0.3,
            Self::NewRows { .. } => 0.2,
            Self::ClockWasWrong => 0.15,
            Self::Age { .. } => 0.1,
        }
    }

    /// What the served answer is marked with, where something was measured once.
    pub fn mark(&self) -> Option<StaleReason> {
        match self {
            Self::EngineChanged => Some(StaleReason::EngineChanged),
            Self::Drift { .. } => Some(StaleReason::Drift),
            Self::Age { .. } | Self::ClockWasWrong => Some(StaleReason::Age),
            Self::NothingKnown
            | Self::PriorOnly
            | Self::Imported
            | Self::Doubtful
            | Self::NewConditions
            | Self::NewRows { .. } => None,
        }
    }
}

impl fmt::Display for Staleness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingKnown => f.write_str("nothing is known of it"),
            Self::PriorOnly => f.write_str("only the chip's prior is known"),
            Self::EngineChanged => f.write_str("it was measured with another OS build or MLX library"),
            Self::Imported => f.write_str("it was measured on another machine"),
            Self::Drift { loss } => write!(f, "running clients lose {:.1} % by it", 100.0 * loss),
            Self::Doubtful => f.write_str("its own lines contradict it"),
            Self::NewConditions => f.write_str("these conditions were never seen"),
            Self::NewRows { nearest } => write!(f, "the nearest rows measured are {nearest}"),
            Self::Age { days } => write!(f, "nobody confirmed it for {days} days"),
            Self::ClockWasWrong => f.write_str("it was measured while the clock was wrong"),
        }
    }
}

/// Whether a shape should be measured now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Freshness {
    /// It should.
    Stale(Staleness),
    /// Not before this, if nothing happens.
    Until(Moment),
}

/// Judges what is known of `shape` under the present `conditions`, with what clients showed of its layer under them.
pub fn judge(
    shape: Shape,
    known: &Known,
    conditions: Conditions,
    seen: Option<&Seen>,
    now: Moment,
    policy: &Policy,
) -> Freshness {
    match known {
        Known::Nothing => Freshness::Stale(Staleness::NothingKnown),
        Known::Prior(_) => Freshness::Stale(Staleness::PriorOnly),
        Known::OtherEngine(_) => Freshness::Stale(Staleness::EngineChanged),
        Known::Calibrated(believed) => judge_calibrated(shape, believed, conditions, seen, now, policy),
    }
}

fn judge_calibrated(
    shape: Shape,
    believed: &Believed,
    conditions: Conditions,
    seen: Option<&Seen>,
    now: Moment,
    policy: &Policy,
) -> Freshness {
    let measured_at = believed.measured_at;
    let apart = f64::from(believed.shape.rows()) / f64::from(shape.rows());
    match believed.provenance {
        Provenance::Imported => return Freshness::Stale(Staleness::Imported),
        Provenance::Prior => return Freshness::Stale(Staleness::PriorOnly),
        Provenance::Observed | Provenance::Measured => {}
    }
    if !(1.0 / NEAR_ROWS..=NEAR_ROWS).contains(&apart)
        || (believed.lines.is_none() && believed.shape != shape)
    {
        return Freshness::Stale(Staleness::NewRows { nearest: believed.shape.rows() });
    }
    if measured_at > now.after(CLOCK_ERROR) {
        return Freshness::Stale(Staleness::ClockWasWrong);
    }
    let confirmed = seen.and_then(Seen::confirmed);
    if believed.conditions != conditions && confirmed.is_none() {
        return Freshness::Stale(Staleness::NewConditions);
    }
    if believed.is_doubtful() {
        return Freshness::Stale(Staleness::Doubtful);
    }
    let expires = confirmed.map_or(measured_at, |confirmed| confirmed.max(measured_at)).after(policy.oldest);
    if expires <= now {
        let days = policy.oldest.saturating_add(now.since(expires)).as_secs() / DAY.as_secs();
        return Freshness::Stale(Staleness::Age { days });
    }
    // Drift of other conditions' calibration is what those conditions are for.
    let drift = seen.filter(|_| believed.conditions == conditions).and_then(Seen::drift);
    match (drift, seen) {
        (Some((loss, since)), Some(seen)) if since > measured_at => {
            let at = measured_at.after(seen.patience(policy));
            if at <= now {
                Freshness::Stale(Staleness::Drift { loss })
            } else {
                Freshness::Until(at.min(expires))
            }
        }
        _ => Freshness::Until(expires),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::evidence::Evidence;
    use crate::planner::examples::LINES;
    use fusion_calibrations::conditions::{Power, Thermal};
    use fusion_calibrations::shape::{Layout, WeightFormat};

    const HOUR: Duration = Duration::from_secs(3600);
    fn shape(rows: u32) -> Shape {
        Shape::parse(&format!("{rows}x64x64"), WeightFormat::F16, Layout::default()).unwrap()
    }

    fn start() -> Moment {
        Moment::from_unix_ms(1_782_914_600_000)
    }

    fn believed() -> Believed {
        Believed {
            shape: shape(1024),
            conditions: Conditions::default(),
            measured_at: start(),
            provenance: Provenance::Measured,
            lines: Some(LINES),
            secondary_rows: 256,
            speed_up: 10.24 / 7.88,
        }
    }

    fn stale(known: Known, rows: u32, conditions: Conditions, now: Moment) -> Option<Staleness> {
        match judge(shape(rows), &known, conditions, None, now, &Policy::default()) {
            Freshness::Stale(why) => Some(why),
            Freshness::Until(at) => {
                assert!(at > now);
                None
            }
        }
    }

    #[test]
    fn every_reason_has_its_case() {
        let (cool, fresh) = (Conditions::default(), Known::Calibrated(believed()));
        assert_eq!(stale(Known::Nothing, 1024, cool, start()), Some(Staleness::NothingKnown));
        assert_eq!(stale(Known::Prior(LINES), 1024, cool, start()), Some(Staleness::PriorOnly));
        let other = Known::OtherEngine(believed());
        assert_eq!(stale(other, 1024, cool, start()), Some(Staleness::EngineChanged));
        assert_eq!(stale(fresh, 1024, cool, start().after(29 * DAY)), None);
        let old = stale(fresh, 1024, cool, start().after(31 * DAY));
        assert_eq!(old, Some(Staleness::Age { days: 31 }));
        let warm = Conditions { thermal: Thermal::Moderate, ..cool };
        assert_eq!(stale(fresh, 1024, warm, start()), Some(Staleness::NewConditions));
        for (rows, expected) in [(512, None), (2048, None), (511, Some(1024)), (2049, Some(1024))] {
            let found = stale(fresh, rows, cool, start());
            assert_eq!(found, expected.map(|nearest| Staleness::NewRows { nearest }), "{rows}");
        }
        let doubtful = |secondary_rows, speed_up, stock_ms_per_row| {
            let lines = Some(Lines { stock_ms_per_row, ..LINES });
            let known = Known::Calibrated(Believed { secondary_rows, speed_up, lines, ..believed() });
            stale(known, 1024, cool, start()) == Some(Staleness::Doubtful)
        };
        // The lines predict 1.3 with stock at 10 us a row, and 0.97 with stock at 7.5.
        assert!(!doubtful(256, 1.3, 0.01) && !doubtful(256, 1.2, 0.01) && doubtful(256, 1.1, 0.01));
        assert!(doubtful(0, 1.0, 0.01) && !doubtful(0, 1.0, 0.0075));
        assert!(doubtful(256, 1.3, 0.0075) && !doubtful(256, f64::NAN, 0.01));
        let imported = Known::Calibrated(Believed { provenance: Provenance::Imported, ..believed() });
        assert_eq!(stale(imported, 1024, cool, start()), Some(Staleness::Imported));
        let guess = Known::Calibrated(Believed { provenance: Provenance::Prior, ..believed() });
        assert_eq!(stale(guess, 1024, cool, start()), Some(Staleness::PriorOnly));
        let before = Moment::from_unix_ms(start().unix_ms() - 3 * 24 * 3_600_000);
        assert_eq!(stale(fresh, 1024, cool, before), Some(Staleness::ClockWasWrong));
    }

    #[test]
    fn running_clients_keep_it_fresh() {
        let (policy, battery) =
            (Policy::default(), Conditions { power: Power::Battery, ..Conditions::default() });
        let mut evidence = Evidence::default();
        let late = start().after(40 * DAY);
        for conditions in [Conditions::default(), battery] {
            assert!(stale(Known::Calibrated(believed()), 1024, conditions, late).is_some());
            for second in 0..3 {
                let at = late.after(Duration::from_secs(second));
                evidence.observed(at, shape(1).layer(), conditions, 0.0, &policy);
            }
            let seen = evidence.of(shape(1).layer(), conditions);
            let known = Known::Calibrated(believed());
            let fresh = judge(shape(1024), &known, conditions, seen, late.after(HOUR), &policy);
            assert_eq!(fresh, Freshness::Until(late.after(Duration::from_secs(2)).after(policy.oldest)));
        }
    }

    #[test]
    fn drift_is_measured_after_a_while_and_once() {
        let (policy, cool) = (Policy::default(), Conditions::default());
        let mut evidence = Evidence::default();
        let (patience, seen_at) = (policy.drift_patience, start().after(HOUR / 2));
        for _ in 0..3 {
            evidence.observed(seen_at, shape(1).layer(), cool, 0.04, &policy);
        }
        let judged = |believed: Believed, now: Moment| {
            let seen = evidence.of(shape(1).layer(), cool);
            judge(shape(1024), &Known::Calibrated(believed), cool, seen, now, &policy)
        };
        assert_eq!(judged(believed(), seen_at), Freshness::Until(start().after(patience)));
        let stale = Freshness::Stale(Staleness::Drift { loss: 0.04 });
        assert_eq!(judged(believed(), start().after(patience)), stale);
        // What was measured since has seen it too.
        let after = Believed { measured_at: start().after(patience), ..believed() };
        assert!(matches!(judged(after, start().after(3 * patience)), Freshness::Until(_)));
    }
}
