//! Live lines: the running split is the sensor.
//!
//! Heat arrives while clients run, which is exactly when the daemon may not measure. But a split call shows when each of its units finished, and
//! that is each unit's time per row. A few such calls recover the balance after a change, without one extra matmul.
//!
//! Both units' times per row are followed by one Kalman filter (Kalman, 1960) on their logarithms (`belief`): a fresh one distrusts the stored values as much as
//! sessions of one machine differ, so the first calls correct quickly; a settled one moves little: the correction is *damped*. What slows a call slows both units, so the
//! difference of their times, which is what the balance rests on, is learned from calls that show both; where a call shows one unit only, or both far slower, it waits for the
//! next to say whether that was an accident. The correction is *bounded* twice: an observation counts at most as if it were [`BOUND`] standard deviations away, and no line
//! leaves `[1/LIMIT, LIMIT]` times its stored value. It is *undone* if it doesn't help: when even the fastest of the calls after a
//! correction takes longer than those before it by more than noise explains, the lines before it return ([`LiveLines::observe`]).
//!
//! What isn't split isn't observed, so a wrong word that a layer isn't worth splitting would never be taken back. Until [`ENOUGH_TO_LOSE`] calls were seen, and each unit
//! in one of them, a split is therefore believed to gain what it was measured to gain.

mod belief;

use std::collections::VecDeque;

use belief::Belief;

use crate::lines::Lines;
use crate::sample::{FinishTimes, Unit};

/// Standard deviation of the logarithm of a unit's time per row between sessions of one machine: cells that FusionML recorded twice
/// differ by up to 1.5 times in the slow session of an M3 Pro, which is two of these, and by about 15 % in the middle.
pub const UNIT_SESSION_DEVIATION: f64 = 0.2;
/// Standard deviation of the logarithm of one unit's time in a call, without what slows the call as a whole: calls of one session differ by about 1.5 %, single units by more.
pub const CALL_DEVIATION: f64 = 0.02;
/// Drift of the logarithm from call to call, as standard deviation. M2's split slowed by 14 % over 130 calls; several times faster than that is followed without lag.
pub const DRIFT_DEVIATION: f64 = 0.007;
/// Standard deviations at which an observation is cut off.
pub const BOUND: f64 = 3.0;
/// How far a line may move from its stored value, as a factor. The largest change ever recorded between two sessions is 1.5.
pub const LIMIT: f64 = 3.0;
/// Observations from which on they may say that a split doesn't gain. An accident slows one call in fifty, and the next call shows it.
pub const ENOUGH_TO_LOSE: u32 = 3;
/// Calls that a correction is judged by: as many before as after.
const JUDGED_CALLS: usize = 3;
/// A change of the balanced ratio that counts as a correction worth judging.
const CORRECTION: f64 = 0.02;

/// A split call that a client reports: rows and both units' finish times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// All rows of the product.
    pub rows: u32,
    /// Those of the secondary unit; neither 0 nor all.
    pub secondary_rows: u32,
    /// Until the joined result was there, in ms.
    pub total_ms: f64,
    /// When both parts finished.
    pub finish_times: FinishTimes,
}

/// What an observation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The lines were refreshed.
    Refreshed,
    /// The correction before was undone: the calls after it took longer.
    Undone,
    /// It can't be: not a split, or not a time. Nothing changed.
    Ignored,
}

/// The lines of one layer, followed while models run.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveLines {
    stored: Lines,
    belief: Belief,
    judge: Judge,
    observations: u32,
    /// Whether a call showed the primary unit's exact time, and the secondary unit's.
    seen: [bool; 2],
}

impl LiveLines {
    /// Follows `stored`.
    pub fn new(stored: Lines) -> Self {
        Self { stored, belief: Belief::new(), judge: Judge::default(), observations: 0, seen: [false; 2] }
    }

    /// The lines as they are believed now. Stock was not observed: it slows with the primary unit, and at first with a split as a whole.
    pub fn lines(&self) -> Lines {
        let (primary, secondary) = (self.belief.factor(Unit::Primary), self.belief.factor(Unit::Secondary));
        let lines = Lines {
            primary_ms_per_row: self.stored.primary_ms_per_row * primary,
            secondary_ms_per_row: self.stored.secondary_ms_per_row * secondary,
            overhead_ms: self.stored.overhead_ms,
            stock_ms_per_row: self.stored.stock_ms_per_row * primary,
        };
        if self.observations >= ENOUGH_TO_LOSE && self.seen == [true; 2] {
            return lines;
        }
        let slowed = lines.balanced_ms_per_row() / self.stored.balanced_ms_per_row();
        Lines { stock_ms_per_row: self.stored.stock_ms_per_row * primary.max(slowed), ..lines }
    }

    /// The lines that it started from.
    pub fn stored(&self) -> &Lines {
        &self.stored
    }

    /// Observations that counted.
    pub fn observations(&self) -> u32 {
        self.observations
    }

    /// Takes a call in. Exact finish times count; a part that was already done when it was waited for took that long at most.
    pub fn observe(&mut self, observation: &Observation) -> Effect {
        let Observation { rows, secondary_rows, total_ms, finish_times } = *observation;
        let usable = |ms: f64| ms.is_finite() && ms > 0.0;
        if secondary_rows == 0 || secondary_rows >= rows || !usable(total_ms) {
            return Effect::Ignored;
        }
        let offset = |unit, ms: Option<f64>| {
            let ms = ms.filter(|ms| usable(*ms))?;
            let (count, stored_ms_per_row) = match unit {
                Unit::Primary => (rows - secondary_rows, self.stored.primary_ms_per_row),
                Unit::Secondary => (secondary_rows, self.stored.secondary_ms_per_row),
            };
            Some((ms / f64::from(count) / stored_ms_per_row).ln()).filter(|offset| offset.is_finite())
        };
        let exact = |unit| offset(unit, finish_times.exact_ms(unit));
        let at_most = |unit, ms| offset(unit, Some(ms));
        let before = self.belief;
        let shown = [exact(Unit::Primary), exact(Unit::Secondary)];
        match shown {
            [Some(primary), Some(secondary)] => self.belief.observe_both(primary, secondary),
            [Some(primary), None] => {
                let secondary = at_most(Unit::Secondary, finish_times.secondary_ms);
                self.belief.observe_one(Unit::Primary, primary, secondary);
            }
            [None, Some(secondary)] => {
                let primary = at_most(Unit::Primary, finish_times.primary_ms);
                self.belief.observe_one(Unit::Secondary, secondary, primary);
            }
            [None, None] => return Effect::Ignored,
        }
        self.observations += 1;
        self.seen = [0, 1].map(|unit| self.seen[unit] || shown[unit].is_some());
        let share = f64::from(secondary_rows) / f64::from(rows);
        // What splitting itself costs weighs more where rows are few.
        let ms_per_row = (total_ms - self.stored.overhead_ms).max(0.0) / f64::from(rows);
        match self.judge.judge(share, ms_per_row, before) {
            None => Effect::Refreshed,
            Some(belief) => {
                self.belief = belief.trusted();
                Effect::Undone
            }
        }
    }
}

/// Compares the calls after a correction with those before it.
#[derive(Debug, Clone, PartialEq, Default)]
struct Judge {
    /// The share that the calls since the last correction were made at.
    share: Option<f64>,
    /// How many there were.
    calls: usize,
    /// Times per row of the latest of them, at most [`JUDGED_CALLS`].
    current: VecDeque<f64>,
    /// The belief before the first of them: what that share was chosen by.
    chosen_by: Option<Belief>,
    /// Times per row of the calls before the last correction, and what their share was chosen by.
    previous: Option<(Vec<f64>, Belief)>,
}

impl Judge {
    /// Takes one call in, made at `share`; the belief to return to, if the correction before it made things worse.
    fn judge(&mut self, share: f64, ms_per_row: f64, belief: Belief) -> Option<Belief> {
        if self.share.is_some_and(|first| (first - share).abs() > CORRECTION) {
            let times = std::mem::take(&mut self.current).into();
            self.previous = self.chosen_by.map(|chosen_by| (times, chosen_by));
            self.share = None;
        }
        if self.share.is_none() {
            (self.share, self.calls, self.chosen_by) = (Some(share), 0, Some(belief));
        }
        self.calls = self.calls.saturating_add(1);
        self.current.push_back(ms_per_row);
        if self.current.len() > JUDGED_CALLS {
            self.current.pop_front();
        }
        if self.calls != JUDGED_CALLS {
            return None;
        }
        let (before, belief) = self.previous.take()?;
        // Accidents slow calls and nothing makes one too fast, so the fastest tells what a share takes, though most of them met one.
        let before = before.into_iter().reduce(f64::min)?;
        let after = self.current.iter().copied().reduce(f64::min)?;
        // The fastest of three calls and of three others differ by noise alone by about this.
        let noise = BOUND * CALL_DEVIATION * (2.0 / JUDGED_CALLS as f64).sqrt();
        (after > before * (1.0 + noise)).then_some(belief)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::predicted_rows;
    use crate::noise::Noise;
    use crate::rows::RowRule;
    use crate::shape::{Layer, Layout, WeightFormat};
    use proptest::prelude::*;

    const STORED: Lines = Lines {
        primary_ms_per_row: 0.01,
        secondary_ms_per_row: 0.03,
        overhead_ms: 0.2,
        stock_ms_per_row: 0.01,
    };
    const ROWS: u32 = 2048;

    fn call(truth: Lines, secondary_rows: u32, first_waited: Unit) -> Observation {
        let primary = truth.primary_ms_per_row * f64::from(ROWS - secondary_rows);
        let secondary = truth.secondary_ms_per_row * f64::from(secondary_rows);
        let finish_times = match first_waited {
            Unit::Primary => {
                FinishTimes { primary_ms: primary, secondary_ms: secondary.max(primary), first_waited }
            }
            Unit::Secondary => {
                FinishTimes { primary_ms: primary.max(secondary), secondary_ms: secondary, first_waited }
            }
        };
        Observation {
            rows: ROWS,
            secondary_rows,
            total_ms: primary.max(secondary) + truth.overhead_ms,
            finish_times,
        }
    }

    fn follow(truth: Lines, calls: usize) -> LiveLines {
        let mut live = LiveLines::new(STORED);
        for index in 0..calls {
            let first = if index % 2 == 0 { Unit::Primary } else { Unit::Secondary };
            let rows = (f64::from(ROWS) * live.lines().balanced_ratio().get()) as u32;
            live.observe(&call(truth, rows, first));
        }
        live
    }

    #[test]
    fn three_calls_recover_the_balance_of_a_hot_machine() {
        let hot = Lines { primary_ms_per_row: 0.014, secondary_ms_per_row: 0.033, ..STORED };
        let live = follow(hot, 3).lines();
        let (found, wanted) = (live.balanced_ratio().get(), hot.balanced_ratio().get());
        assert!((found - wanted).abs() < 0.015, "{found} instead of {wanted}");
        assert!((live.stock_ms_per_row / STORED.stock_ms_per_row - 1.4).abs() < 0.06);
    }

    /// Whether the layer is still split at so many rows.
    fn splits(lines: &Lines) -> bool {
        let layer = Layer::new(4096, 4096, WeightFormat::F16, Layout::default()).unwrap();
        predicted_rows(layer.with_rows(ROWS).unwrap(), lines, &RowRule::apple()) > 0
    }

    #[test]
    fn a_split_isnt_given_up_for_calls_that_show_the_slower_unit_alone() {
        // The primary unit is slower beside another one, as on M2, and low power slows everything.
        let stored = Lines { primary_ms_per_row: 0.012, ..STORED };
        let slow = Lines {
            primary_ms_per_row: 1.5 * stored.primary_ms_per_row,
            secondary_ms_per_row: 1.75 * stored.secondary_ms_per_row,
            stock_ms_per_row: 1.5 * stored.stock_ms_per_row,
            ..stored
        };
        let mut live = LiveLines::new(stored);
        let observation = call(slow, 585, Unit::Secondary);
        assert_eq!(observation.finish_times.exact_ms(Unit::Primary), None);
        for _ in 0..=ENOUGH_TO_LOSE {
            live.observe(&observation);
            assert!(splits(&live.lines()), "{:?}", live.lines());
        }
    }

    #[test]
    fn a_split_is_given_up_when_three_calls_show_that_it_loses() {
        let slow = Lines { secondary_ms_per_row: 3.0 * STORED.secondary_ms_per_row, ..STORED };
        let stored = Lines { primary_ms_per_row: 0.0115, ..STORED };
        let mut live = LiveLines::new(stored);
        let truth = Lines { primary_ms_per_row: 0.0115, ..slow };
        for (count, first) in [Unit::Primary, Unit::Secondary, Unit::Primary].into_iter().enumerate() {
            assert!(splits(&live.lines()), "after {count} calls");
            let rows = (f64::from(ROWS) * live.lines().balanced_ratio().get()) as u32;
            live.observe(&call(truth, rows, first));
        }
        assert!(!splits(&live.lines()), "{:?}", live.lines());
    }

    #[test]
    fn a_unit_that_was_done_was_not_as_slow_as_an_accident_said() {
        let mut live = LiveLines::new(STORED);
        let wild = Lines { primary_ms_per_row: 0.015, ..STORED };
        live.observe(&call(wild, 512, Unit::Primary));
        assert!(live.lines().primary_ms_per_row > 1.3 * STORED.primary_ms_per_row);
        // Too many rows for it now, so the secondary unit hides the primary one.
        let rows = (f64::from(ROWS) * live.lines().balanced_ratio().get()) as u32;
        let hides = call(STORED, rows, Unit::Secondary);
        assert_eq!(hides.finish_times.exact_ms(Unit::Primary), None);
        live.observe(&hides);
        let most = hides.finish_times.primary_ms / f64::from(ROWS - rows);
        assert!(live.lines().primary_ms_per_row < 1.02 * most);
    }

    #[test]
    fn one_wild_call_moves_a_settled_line_little() {
        let mut live = follow(STORED, 10);
        let wild = Lines { primary_ms_per_row: 0.05, ..STORED };
        live.observe(&call(wild, 512, Unit::Primary));
        let moved = live.lines().primary_ms_per_row / STORED.primary_ms_per_row;
        assert!(moved < 1.1, "{moved}");
        for _ in 0..4 {
            live.observe(&call(STORED, 512, Unit::Primary));
        }
        assert!((live.lines().primary_ms_per_row / STORED.primary_ms_per_row - 1.0).abs() < 0.02);
    }

    #[test]
    fn what_is_no_split_or_no_time_changes_nothing() {
        let mut live = LiveLines::new(STORED);
        let good = call(STORED, 512, Unit::Primary);
        for bad in [
            Observation { secondary_rows: 0, ..good },
            Observation { secondary_rows: ROWS, ..good },
            Observation { total_ms: f64::NAN, ..good },
            Observation { total_ms: -1.0, ..good },
            Observation { finish_times: FinishTimes { primary_ms: 0.0, ..good.finish_times }, ..good },
        ] {
            let effect = live.observe(&bad);
            assert!(effect == Effect::Ignored || live.lines() == STORED, "{bad:?}");
        }
        assert_eq!(live.lines(), STORED);
    }

    #[test]
    fn a_correction_that_makes_calls_slower_is_undone() {
        let mut live = LiveLines::new(STORED);
        for _ in 0..4 {
            live.observe(&call(STORED, 512, Unit::Primary));
        }
        let trusted = live.lines();
        // From here on the clock of one unit lies: its part seems fast, so rows move to it, and the whole gets slower.
        let lying = |secondary_rows: u32| {
            let mut observation = call(STORED, secondary_rows, Unit::Secondary);
            observation.finish_times.secondary_ms *= 0.4;
            observation
        };
        let mut effects = Vec::new();
        for rows in [512, 800, 800, 800] {
            effects.push(live.observe(&lying(rows)));
        }
        assert_eq!(effects.last(), Some(&Effect::Undone), "{effects:?}");
        assert!((live.lines().balanced_ratio().get() - trusted.balanced_ratio().get()).abs() < 0.08);
    }

    #[test]
    fn accidents_after_a_correction_are_no_reason_to_undo_it() {
        let slow = Lines { secondary_ms_per_row: 1.3 * STORED.secondary_ms_per_row, ..STORED };
        let mut live = LiveLines::new(STORED);
        live.observe(&call(slow, 512, Unit::Primary));
        let rows = (f64::from(ROWS) * live.lines().balanced_ratio().get()) as u32;
        assert!(rows < 450, "{rows}");
        let accident = Lines {
            primary_ms_per_row: 1.5 * slow.primary_ms_per_row,
            secondary_ms_per_row: 1.5 * slow.secondary_ms_per_row,
            ..slow
        };
        for truth in [accident, slow, accident] {
            assert_eq!(live.observe(&call(truth, rows, Unit::Primary)), Effect::Refreshed);
        }
        let (found, wanted) = (live.lines().balanced_ratio().get(), slow.balanced_ratio().get());
        assert!((found - wanted).abs() < 0.01, "{found} instead of {wanted}");
    }

    #[test]
    fn a_unit_that_met_an_accident_is_right_after_three_more_calls_though_another_one_follows() {
        let mut live = LiveLines::new(STORED);
        let slowed = |by: f64| Lines {
            primary_ms_per_row: by * STORED.primary_ms_per_row,
            secondary_ms_per_row: by * STORED.secondary_ms_per_row,
            ..STORED
        };
        let mut first_waited = Unit::Primary;
        // The first sight of the primary unit, and the first call that shows both.
        for (number, by) in [1.5, 1.0, 1.5, 1.0].into_iter().enumerate() {
            let balanced = (f64::from(ROWS) * live.lines().balanced_ratio().get()) as u32;
            // The first call has a few rows less than would show the secondary unit.
            let rows = if number == 0 { balanced - 5 } else { balanced };
            let seen = call(slowed(by), rows, first_waited);
            live.observe(&seen);
            first_waited = seen.finish_times.next_first_waited();
        }
        let (found, wanted) = (live.lines().balanced_ratio().get(), STORED.balanced_ratio().get());
        assert!((found - wanted).abs() < 0.01, "{found} instead of {wanted}");
    }

    #[test]
    fn following_for_ever_keeps_nothing() {
        let mut live = LiveLines::new(STORED);
        for _ in 0..10_000 {
            live.observe(&call(STORED, 512, Unit::Primary));
        }
        assert!(live.judge.current.len() <= JUDGED_CALLS);
        assert_eq!(live.observations(), 10_000);
    }

    proptest! {
        #[test]
        fn no_line_leaves_its_bounds(
            calls in prop::collection::vec((1e-6f64..1e6, 1e-6f64..1e6, 1u32..ROWS, any::<bool>()), 0..60),
        ) {
            let mut live = LiveLines::new(STORED);
            for (primary_ms, secondary_ms, secondary_rows, primary_first) in calls {
                let first_waited = if primary_first { Unit::Primary } else { Unit::Secondary };
                let finish_times = FinishTimes { primary_ms, secondary_ms, first_waited };
                live.observe(&Observation { rows: ROWS, secondary_rows, total_ms: primary_ms.max(secondary_ms), finish_times });
                let lines = live.lines();
                for (now, stored) in [(lines.primary_ms_per_row, STORED.primary_ms_per_row), (lines.secondary_ms_per_row, STORED.secondary_ms_per_row)] {
                    let factor = now / stored;
                    prop_assert!((1.0 / LIMIT - 1e-9..=LIMIT + 1e-9).contains(&factor), "{factor}");
                }
            }
        }

        #[test]
        fn a_lasting_change_is_followed(slower in 0.6f64..1.8, seed: u64) {
            let truth = Lines { secondary_ms_per_row: STORED.secondary_ms_per_row * slower, ..STORED };
            let mut live = LiveLines::new(STORED);
            let mut noise = Noise::new(seed);
            for index in 0..12 {
                let rows = (f64::from(ROWS) * live.lines().balanced_ratio().get()) as u32;
                let first = if index % 2 == 0 { Unit::Primary } else { Unit::Secondary };
                let mut observation = call(truth, rows, first);
                let factor = (0.015 * noise.normal()).exp();
                observation.finish_times.primary_ms *= factor;
                observation.finish_times.secondary_ms *= factor;
                observation.total_ms *= factor;
                live.observe(&observation);
            }
            let (found, wanted) = (live.lines().balanced_ratio().get(), truth.balanced_ratio().get());
            prop_assert!((found - wanted).abs() < 0.03, "{} instead of {}", found, wanted);
        }
    }
}
