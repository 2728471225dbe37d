//! The search: which call to time next, and what the answers mean.
//!
//! A pure state machine. [`Search::next`] says what to measure, [`Search::tell`] takes the answer; the live worker, the replay of
//! recorded machines and the tests drive the same code. It has no clock, no I/O and no randomness but a seed.
//!
//! ```text
//! stock (thrown away), stock | probes: where is the balance? | the choice again | stock again: does it win?
//! ```
//!
//! * The first call after a change between stock and split is thrown away: it is 1.04-1.25 times slower on a cool machine and 10 %
//!   faster on a hot one (FusionML's `first_call_after_probe` and `convergence`).
//! * Where both units' finish times are known, one or two probes give both lines and the balance ([`Evidence::FinishTimes`]). Where
//!   only totals are known the lines are fitted to a few of them ([`Evidence::Totals`]).
//! * The calls that confirm the choice tell the balance, too. Where they move it, the moved choice is confirmed instead, once.
//! * The choice is compared with stock in pairs, in balanced order. It is chosen only if the interval on the ratio of pairs
//!   at [`DECISION_CONFIDENCE`] lies above 1, and if it probably wins in other sessions of the machine too ([`ANOTHER_SESSION`]).
//! * Everything is decided on ratios of times: scaling all times changes nothing but the budget.

mod conclusion;
mod evidence;
mod options;
mod outcome;
pub mod points;
mod posterior;
mod totals;

use crate::lines::Lines;
use crate::ratio::Ratio;
use crate::rows::{Cliff, RowRule};
use crate::sample::{DropReason, Sample, Unit};
use crate::shape::Shape;
use crate::stats::{CONFIDENCE, PRIOR_RELATIVE_DEVIATION, median, ratio_of_pairs};

pub use conclusion::{ANOTHER_SESSION, SESSION_DEVIATION, any_session, wins_another_session};
pub use options::{Budget, Candidates, Evidence, Known, Options, Start};
pub use outcome::{Outcome, Rejection, Verdict};
pub(crate) use totals::fit_grid;

/// Two-sided confidence of the interval that must lie above 1 before a split is chosen: with it, a machine where splitting
/// changes nothing gets a non-zero ratio in at most 1 % of searches.
pub const DECISION_CONFIDENCE: f64 = 0.99;

/// Pairs at least of a cold search, in balanced order: stock, splits, stock.
const MINIMUM_PAIRS: usize = 2;
/// Pairs at least where something was known before. One pair decides only gains above about 10 % (the interval of one pair), and both its
/// calls have a neighbour of the same arm that vouches for them.
const MINIMUM_PAIRS_KNOWN: usize = 1;
/// An earlier calibration holds if the speed-up now differs from it by no more than this (logarithm): three standard deviations of the ratio
/// of two calls.
const STILL_HOLDS: f64 = 0.064;
/// A balance further from the earlier choice than this share has moved: five deviations of what a call of each unit tells.
const BALANCE_MOVED: f64 = 0.03;
/// Pairs at most: what six don't show isn't worth more of the machine's time.
const MAXIMUM_PAIRS: usize = 6;
/// From so many pairs on a speed-up below this isn't pursued: proving it would cost more calls than it will ever be worth.
const HOPELESS: [(usize, f64); 2] = [(2, 1.005), (3, 1.02)];
/// A loss shown by so many split calls, or fewer, is doubted where another split call was faster: a few accidents in a row are no loss. The next call tells.
const DOUBTED_LOSS: usize = 3;
/// Split calls at most before the choice, with finish times.
const PROBES: usize = 4;
/// Calls that confirming other rows takes: two splits, and stock after a first call that is thrown away.
const MOVING_CALLS: u32 = 4;
/// A change of the balance smaller than this share isn't followed.
const SETTLED: f64 = 0.01;
/// First probe without any knowledge: both units have a good part, whatever their speeds.
const FIRST_RATIO: f64 = 0.3;
/// First probe where only totals are known: the secondary unit must dominate, so that the total is its time.
const FIRST_RATIO_TOTALS: f64 = 0.45;
/// Unusable answers in a row after which the search gives up.
const GIVE_UP_AFTER: usize = 4;

/// One timed call that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Stock: the primary unit alone.
    Stock,
    /// A split.
    Split {
        /// The secondary unit's rows, at least 1.
        secondary_rows: u32,
        /// The unit to wait for first.
        first_waited: Unit,
    },
}

impl Ask {
    /// The secondary unit's rows; 0 for stock.
    pub fn secondary_rows(self) -> u32 {
        match self {
            Self::Stock => 0,
            Self::Split { secondary_rows, .. } => secondary_rows,
        }
    }
}

/// What a search wants next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Time this call and [`Search::tell`] the result.
    Measure(Ask),
    /// Finished.
    Done(Box<Outcome>),
}

/// An answer that can't be taken. The search is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// The answer is about another call than the one asked for.
    #[error(
        "asked for {asked} secondary rows, but the answer is about {answered}: answer what Search::next asks"
    )]
    NotAsked {
        /// Secondary rows that were asked for; 0 is stock.
        asked: u32,
        /// Secondary rows of the answer.
        answered: u32,
    },
    /// The search is finished.
    #[error("the search is done and takes no more samples: start another one")]
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Where is the balance?
    Explore,
    /// These rows against stock.
    Confirm(u32),
    /// The same, for rows that the confirming calls moved: they are moved once.
    ConfirmMoved(u32),
}

impl Phase {
    /// The rows that are confirmed.
    fn rows(self) -> Option<u32> {
        match self {
            Self::Explore => None,
            Self::Confirm(rows) | Self::ConfirmMoved(rows) => Some(rows),
        }
    }
}

/// What exploring comes to.
enum Explore {
    Probe(u32),
    Settled(u32),
}

impl Explore {
    /// No rows that may be probed: there is nothing to split.
    fn probe(rows: u32) -> Self {
        if rows == 0 { Self::Settled(0) } else { Self::Probe(rows) }
    }
}

/// A search for one shape's ratio.
#[derive(Debug, Clone)]
pub struct Search {
    shape: Shape,
    options: Options,
    rule: RowRule,
    discovered: Vec<Cliff>,
    samples: Vec<Sample>,
    spent_ms: f64,
    longest_ms: f64,
    phase: Phase,
    step: Step,
    cloud: totals::CloudCell,
}

impl Search {
    /// A search for `shape` that hasn't measured anything.
    pub fn new(shape: Shape, options: Options) -> Self {
        let rule = options.rule.clone();
        let mut search = Self {
            shape,
            options,
            rule,
            discovered: Vec::new(),
            samples: Vec::new(),
            spent_ms: 0.0,
            longest_ms: 0.0,
            phase: Phase::Explore,
            step: Step::Measure(Ask::Stock),
            cloud: totals::CloudCell::new(),
        };
        search.step = search.plan();
        search
    }

    /// What to do next. The same until a sample is told.
    pub fn next(&self) -> Step {
        self.step.clone()
    }

    /// Takes the answer to what [`Self::next`] asks. A sample that the caller marked as dropped counts as a call, but not as evidence. Times that
    /// aren't positive and finite, and the first call after a change of arm, are marked here.
    ///
    /// # Errors
    /// [`SearchError::NotAsked`] if it answers something else, [`SearchError::Done`] if nothing is asked.
    pub fn tell(&mut self, mut sample: Sample) -> Result<(), SearchError> {
        let Step::Measure(ask) = &self.step else { return Err(SearchError::Done) };
        let asked = ask.secondary_rows();
        if asked != sample.secondary_rows {
            return Err(SearchError::NotAsked { asked, answered: sample.secondary_rows });
        }
        let is_time = self.spend(sample.total_ms);
        if sample.dropped.is_none() {
            sample.dropped = match self.samples.last() {
                _ if !is_time => Some(DropReason::Nonsense),
                Some(last) if (last.secondary_rows == 0) == (sample.secondary_rows == 0) => None,
                _ => Some(DropReason::FirstAfterChange),
            };
        }
        self.samples.push(sample);
        self.discover_cliffs();
        self.step = self.plan();
        Ok(())
    }

    /// Counts a call that another process disturbed and that is made again: no evidence and none of the budget's calls, but machine time. The
    /// search may end by it.
    pub fn charge(&mut self, disturbed: &Sample) {
        if matches!(self.step, Step::Measure(_)) && self.spend(disturbed.total_ms) && self.exhausted() {
            self.step = self.done(true);
        }
    }

    /// Counts machine time; false if this is none.
    fn spend(&mut self, ms: f64) -> bool {
        let is_time = ms.is_finite() && ms > 0.0;
        if is_time {
            self.spent_ms += ms;
            self.longest_ms = self.longest_ms.max(ms);
        }
        is_time
    }

    /// Calls made so far, thrown-away ones included.
    pub fn calls(&self) -> u32 {
        u32::try_from(self.samples.len()).unwrap_or(u32::MAX)
    }

    /// Calls at most: the length of a progress bar. A search usually needs fewer.
    pub fn calls_at_most(&self) -> u32 {
        self.options.budget.calls
    }

    /// Machine time spent so far, thrown-away calls included, in ms.
    pub fn machine_ms(&self) -> f64 {
        self.spent_ms
    }

    /// Everything that was told, in order; the dropped with their reason.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The shape that is searched for.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The lines as fitted so far; `None` before stock and a split were seen.
    pub fn lines(&self) -> Option<Lines> {
        let rows = f64::from(self.shape.rows());
        let stock = evidence::total_ms(&self.samples, 0)? / rows;
        match self.unit_times() {
            (Some(primary), Some(secondary)) => Some(Lines {
                primary_ms_per_row: primary,
                secondary_ms_per_row: secondary,
                overhead_ms: self.overhead_ms(),
                stock_ms_per_row: stock,
            }),
            _ => self.lines_from_totals(stock * rows),
        }
    }

    fn plan(&mut self) -> Step {
        if self.exhausted() {
            return self.done(true);
        }
        if let Some(step) = self.check_what_is_known() {
            return step;
        }
        if evidence::total_ms(&self.samples, 0).is_none() {
            return Step::Measure(Ask::Stock);
        }
        if self.phase == Phase::Explore {
            match self.explore() {
                Explore::Probe(rows) => return self.ask_split(rows),
                Explore::Settled(0) => return self.done(false),
                Explore::Settled(rows) => self.phase = Phase::Confirm(rows),
            }
        }
        let Some(rows) = self.phase.rows() else { return self.done(false) };
        self.confirm(rows)
    }

    /// An earlier calibration of the very shape is checked first: its split, then stock. If the speed-up is what it was, the choice stands.
    fn check_what_is_known(&mut self) -> Option<Step> {
        let Start::Warm(known) = self.options.start else { return None };
        let rows = self.allowed(known.secondary_rows);
        if self.phase != Phase::Explore || rows == 0 || rows != known.secondary_rows {
            return None;
        }
        let Some(split) = evidence::total_ms(&self.samples, rows) else { return Some(self.ask_split(rows)) };
        let Some(stock) = evidence::total_ms(&self.samples, 0) else {
            return Some(Step::Measure(Ask::Stock));
        };
        let change = ((stock / split) / (known.stock_ms / known.split_ms)).ln();
        if change.abs() <= STILL_HOLDS && !self.balance_moved(rows) {
            self.phase = Phase::Confirm(rows);
            return Some(self.confirm(rows));
        }
        None
    }

    /// Whether both units' finish times say that the balance is elsewhere: a choice that was off by an accident would stand for ever.
    fn balance_moved(&self, rows: u32) -> bool {
        let (Some(_), Some(_)) = self.unit_times() else { return false };
        let balanced = self.lines().map_or(rows, |lines| self.allowed(self.best_rows(&lines)));
        f64::from(balanced.abs_diff(rows)) > BALANCE_MOVED * f64::from(self.shape.rows())
    }

    fn minimum_pairs(&self) -> usize {
        match (&self.options.start, self.options.evidence) {
            (Start::Warm(_), _) | (Start::Prior(_), Evidence::Totals) => MINIMUM_PAIRS_KNOWN,
            _ => MINIMUM_PAIRS,
        }
    }

    fn exhausted(&self) -> bool {
        let budget = self.options.budget;
        let unusable = self
            .samples
            .iter()
            .rev()
            .take_while(|s| !matches!(s.dropped, None | Some(DropReason::FirstAfterChange)))
            .count();
        self.calls() >= budget.calls
            || self.spent_ms + self.longest_ms > budget.machine_ms
            || unusable >= GIVE_UP_AFTER
    }

    fn ask_split(&self, secondary_rows: u32) -> Step {
        let splits = self.samples.iter().filter(|sample| sample.secondary_rows > 0).count() as u64;
        // A unit whose time was hidden is waited for first next time; else in turn.
        let turn = if splits.wrapping_add(self.options.seed).is_multiple_of(2) {
            Unit::Primary
        } else {
            Unit::Secondary
        };
        let first_waited = match self.unit_times() {
            (None, Some(_)) => Unit::Primary,
            (Some(_), None) => Unit::Secondary,
            _ => turn,
        };
        Step::Measure(Ask::Split { secondary_rows, first_waited })
    }

    fn explore(&self) -> Explore {
        if !self.split_seen() {
            return Explore::probe(self.probe_with_what_is_known());
        }
        match self.unit_times() {
            (None, None) => self.probe_totals().map_or_else(Explore::Settled, Explore::Probe),
            _ => self.probe_finish_times(),
        }
    }

    /// Before a split counted: the first probe, or where a thrown-away call's finish times point.
    fn probe_with_what_is_known(&self) -> u32 {
        match (self.split_calls(), self.unit_times(), self.lines()) {
            (1.., (Some(_), Some(_)), Some(lines)) => self.allowed(self.best_rows(&lines)),
            _ => self.first_rows(),
        }
    }

    fn probe_finish_times(&self) -> Explore {
        if let Some(suspect) = evidence::suspected_cliff(&self.samples, self.shape)
            && self.split_calls() <= PROBES
            && self.allowed(suspect) == suspect
        {
            return Explore::Probe(suspect);
        }
        let Some(lines) = self.lines() else { return Explore::probe(self.first_rows()) };
        let rows = self.allowed(self.best_rows(&lines));
        if self.settled(rows) { Explore::Settled(rows) } else { Explore::probe(rows) }
    }

    fn first_rows(&self) -> u32 {
        let from_ratio = |ratio: f64| self.rule.secondary_rows(self.shape, Ratio::saturating(ratio));
        let rows = match (&self.options.start, self.options.first_ratio) {
            (_, Some(ratio)) => from_ratio(ratio.get()),
            (Start::Warm(known), None) if known.secondary_rows > 0 => known.secondary_rows,
            (Start::Prior(lines) | Start::Warm(Known { lines: Some(lines), .. }), None) => {
                from_ratio(lines.balanced_ratio().get())
            }
            _ if self.options.evidence == Evidence::Totals => from_ratio(FIRST_RATIO_TOTALS),
            _ => from_ratio(FIRST_RATIO),
        };
        self.allowed(rows.max(1))
    }

    /// The rows of the balance, however small the gain: whether it beats stock is for the confirmation to say.
    ///
    /// Past the balance time grows as 1 / r, before it only as 1 / (1 - r). So the choice leans to fewer rows by that quantile of the balance's
    /// own uncertainty at which both errors cost the same.
    fn best_rows(&self, lines: &Lines) -> u32 {
        let balance = lines.balanced_ratio().get();
        let calls = (self.split_calls() as f64).max(1.0);
        let deviation = balance * (1.0 - balance) * PRIOR_RELATIVE_DEVIATION * (2.0 / calls).sqrt();
        // Half a deviation at a balance of 0.3, nothing at 0.5: the normal quantile of `balance`, nearly.
        let leaning = Ratio::saturating(balance - deviation * 2.5 * (0.5 - balance).max(0.0));
        self.rule.secondary_rows(self.shape, leaning).max(1)
    }

    /// The rows that the search stands at: what it would choose were it to end now and win; `None` before it knows enough.
    pub fn standing_rows(&self) -> Option<u32> {
        if let Some(rows) = self.phase.rows() {
            return Some(rows);
        }
        match self.unit_times() {
            (Some(_), Some(_)) => self.lines().map(|lines| self.allowed(self.best_rows(&lines))),
            _ if self.split_seen() => self.probe_totals().err(),
            _ => None,
        }
    }

    /// The nearest choosable count.
    fn allowed(&self, rows: u32) -> u32 {
        match &self.options.candidates {
            Candidates::Any => self.rule.nearest_allowed(self.shape, rows),
            Candidates::Rows(list) => list
                .iter()
                .copied()
                .filter(|&candidate| {
                    candidate > 0 && !self.rule.is_cliff(candidate, self.shape.layer().inputs())
                })
                .min_by_key(|candidate| candidate.abs_diff(rows))
                .unwrap_or(0),
        }
    }

    /// Whether a split call is evidence.
    fn split_seen(&self) -> bool {
        self.samples.iter().any(|sample| {
            sample.secondary_rows > 0 && evidence::total_ms(&self.samples, sample.secondary_rows).is_some()
        })
    }

    fn split_calls(&self) -> usize {
        self.samples.iter().filter(|sample| sample.secondary_rows > 0).count()
    }

    fn settled(&self, rows: u32) -> bool {
        let kept = evidence::usable_totals(&self.samples, rows).len();
        let near = self.samples.last().is_some_and(|last| {
            last.secondary_rows > 0
                && f64::from(last.secondary_rows.abs_diff(rows)) <= SETTLED * f64::from(self.shape.rows())
        });
        self.split_calls() >= PROBES || (near && kept >= 1 && self.split_calls() > 2)
    }

    fn confirm(&mut self, rows: u32) -> Step {
        let (stock, split) = (
            evidence::usable_totals(&self.samples, 0).len(),
            evidence::usable_totals(&self.samples, rows).len(),
        );
        let done = stock.min(split);
        if done >= self.minimum_pairs() && (self.clear(rows) || self.hopeless(rows) || done >= MAXIMUM_PAIRS)
        {
            let doubted =
                split <= DOUBTED_LOSS && (self.are_accidents(rows) || self.loses_against_a_first_call(rows));
            return if doubted { self.ask_split(rows) } else { self.done(false) };
        }
        let wanted = (done + 1).max(self.minimum_pairs());
        let on_stock = self.samples.last().is_some_and(|sample| sample.secondary_rows == 0);
        // Stay with the arm that runs until it has enough: every change costs a call.
        if on_stock && stock < wanted {
            Step::Measure(Ask::Stock)
        } else if on_stock || split < wanted {
            self.ask_split(rows)
        } else if let Some(moved) = self.moved(rows) {
            self.phase = Phase::ConfirmMoved(moved);
            self.ask_split(moved)
        } else {
            Step::Measure(Ask::Stock)
        }
    }

    /// Where the balance is by all split calls up to now, if they moved it from `rows`, this is the first time, and there are calls left to
    /// confirm it.
    fn moved(&self, rows: u32) -> Option<u32> {
        let (Phase::Confirm(_), (Some(_), Some(_))) = (self.phase, self.unit_times()) else { return None };
        let balanced = self.allowed(self.best_rows(&self.lines()?));
        let is_moved = f64::from(balanced.abs_diff(rows)) > SETTLED * f64::from(self.shape.rows());
        let is_affordable = self.calls() + MOVING_CALLS <= self.options.budget.calls;
        (balanced > 0 && is_moved && is_affordable).then_some(balanced)
    }

    /// Whether the gain looks too small to be worth proving.
    fn hopeless(&self, rows: u32) -> bool {
        let pairs = evidence::pairs(&self.samples, rows);
        HOPELESS.iter().any(|(least, speed_up)| {
            pairs.len() >= *least
                && ratio_of_pairs(&pairs, CONFIDENCE).is_some_and(|interval| interval.value < *speed_up)
        })
    }

    /// Whether the interval that decides lies on one side of 1.
    fn clear(&self, rows: u32) -> bool {
        ratio_of_pairs(&evidence::pairs(&self.samples, rows), DECISION_CONFIDENCE)
            .is_some_and(|interval| interval.low > 1.0 || interval.high < 1.0)
    }

    fn unit_times(&self) -> (Option<f64>, Option<f64>) {
        let inputs = self.shape.layer().inputs();
        let suspect = evidence::suspected_cliff(&self.samples, self.shape);
        evidence::unit_times(&self.samples, self.shape, |rows| {
            !self.rule.is_cliff(rows, inputs) && suspect != Some(rows)
        })
    }

    /// What a split takes beyond its later part: joining.
    fn overhead_ms(&self) -> f64 {
        let beyond: Vec<f64> = self
            .samples
            .iter()
            .filter(|sample| sample.is_kept())
            .filter_map(|sample| {
                sample.finish_times.map(|times| sample.total_ms - times.primary_ms.max(times.secondary_ms))
            })
            .collect();
        median(&beyond).filter(|ms| ms.is_finite()).unwrap_or(0.0).max(0.0)
    }

    fn lines_from_totals(&self, stock_ms: f64) -> Option<Lines> {
        let belief = self.split_seen().then(|| self.totals().into_belief()).flatten()?;
        Some(belief.lines(stock_ms, self.shape.rows()))
    }

    /// Takes a cliff that the last call shows into the rule, and looks for the balance anew.
    fn discover_cliffs(&mut self) {
        let inputs = self.shape.layer().inputs();
        let Some(suspect) = evidence::shown_cliff(&self.samples, self.shape) else { return };
        if !self.rule.is_cliff(suspect, inputs) {
            let cliff = Cliff { secondary_rows: suspect, minimum_inputs: inputs };
            self.rule.cliffs.push(cliff);
            self.discovered.push(cliff);
            self.phase = Phase::Explore;
        }
    }

    fn done(&self, out_of_budget: bool) -> Step {
        Step::Done(Box::new(self.conclude(out_of_budget)))
    }
}

#[cfg(test)]
mod tests;
