//! One region: which arm stands, and what speaks against it.

use crate::conditions::{Conditions, Memory};

use super::arm::Arm;
use super::belief::{ArmBelief, REFERENCE_CALLS};
use super::beliefs::Beliefs;
use super::drift::{ALLOWANCE, Cusum};
use super::explain::{Activity, Basis};
use super::ledger::{Account, Ledger};
use super::level::{Level, LogGain};
use super::options::GateOptions;
use super::predict::Prediction;
use super::state::{ArmState, Standing};
use super::{Call, Surroundings};

/// Middle between the margin and no gain, in the logarithm: a standing split whose gain stays below it is sent back.
const LOSS_OFFSET: f64 = 0.015;
/// The same for a standing stock arm against the other one.
const STOCK_LOSS_OFFSET: f64 = 0.005;
/// Deviations of one call up to which it is still stock's: "beyond stock's recorded bound".
const BOUND_DEVIATIONS: f64 = 3.0;
/// An untrusted first call that takes twice as long as stock refutes nevertheless; the worst ever recorded took 1.7 times a steady one.
const HOPELESS: f64 = std::f64::consts::LN_2;
/// Split calls of a process that are held against stock's bound, if the split was kept from another one.
const WATCHED_CALLS: u32 = 3;
/// Calls of a trial at least, and at most while no gain is shown.
const TRIAL_CALLS: std::ops::Range<u32> = 4..40;
/// Change of stock's level that reopens what was decided, in the logarithm.
const CHANGED: f64 = 0.02;
/// A prediction that changes by this much (logarithm) lets a refuted arm be tried again.
const NEW_PREDICTION: f64 = 0.05;
/// Calls that starting or resuming a trial must be able to pay for: the first is never trusted.
const CALLS_TO_RESUME: f64 = 3.0;
/// An arm that stood for so long is tried again soon after it lost, as if it had never failed.
const FORGIVEN_AFTER_MS: f64 = 600_000.0;
/// A short burst of splitting heats little: stock is itself again after so many times its length, and after the heat memory at most.
const BURST_MEMORY: f64 = 4.0;
/// Heat memories after which no trial's heat is left in stock, the slow part included: until then its reference can't rise, and what it takes
/// beyond its reference is the trial's.
const COOL_AFTER: f64 = 5.0;
/// Verifying takes at most one part in this many of the time.
const VERIFY_SHARE: f64 = 20.0;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Standing,
    Trial { arm: Arm, calls: u32, since_ms: Option<f64> },
    Referencing,
}

/// What the next call does: read by the hot path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    pub(crate) arm: Arm,
    pub(crate) explore: Option<Arm>,
    pub(crate) expected_ms_per_row: f64,
    pub(crate) free: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Region {
    pub(crate) beliefs: Beliefs,
    parked: Vec<(Conditions, Beliefs)>,
    surroundings: Surroundings,
    pub(crate) prediction: Option<Prediction>,
    phase: Phase,
    pub(crate) plan: Plan,
    lock: Option<Arm>,
    /// Drift of the active arm was seen since memory became short.
    reopened: bool,
    stock_first: bool,
    watched: u32,
    unreferenced: u32,
    account: Account,
    last_arm: Option<Arm>,
    split_ended_ms: f64,
    /// Time in split calls since stock was last seen clean.
    split_busy_ms: f64,
    reference_anew: bool,
    verified_at_ms: Option<f64>,
    stood_since_ms: f64,
    loss: Cusum,
    faster: Cusum,
    slower: Cusum,
    stock_drifts: bool,
    /// Stock is slower for good: what was taken for a trial's heat was the machine.
    blameless: bool,
    /// The split got faster: stock may have, too.
    verify_wanted: bool,
    anchor: Option<Level>,
}

impl Region {
    pub(crate) fn new(options: &GateOptions, surroundings: Surroundings) -> Self {
        let stock = options.arms.stock();
        let beliefs = Beliefs {
            arms: [ArmBelief::default(); 3],
            standing: stock,
            stock,
            basis: Basis::Default,
            changes: 0,
        };
        Self {
            beliefs,
            parked: Vec::new(),
            surroundings,
            prediction: None,
            phase: Phase::Standing,
            plan: Plan { arm: stock, explore: None, expected_ms_per_row: 0.0, free: false },
            lock: None,
            reopened: false,
            stock_first: false,
            watched: 0,
            unreferenced: 0,
            account: Account::default(),
            last_arm: None,
            split_ended_ms: f64::NEG_INFINITY,
            split_busy_ms: 0.0,
            reference_anew: false,
            verified_at_ms: None,
            stood_since_ms: 0.0,
            loss: Cusum::default(),
            faster: Cusum::default(),
            slower: Cusum::default(),
            stock_drifts: false,
            blameless: false,
            verify_wanted: false,
            anchor: None,
        }
    }

    fn arm(&self, arm: Arm) -> &ArmBelief {
        &self.beliefs.arms[arm.index()]
    }

    fn arm_mut(&mut self, arm: Arm) -> &mut ArmBelief {
        &mut self.beliefs.arms[arm.index()]
    }

    /// The comparator: what stock takes when it runs alone.
    pub(crate) fn reference(&self) -> Option<Level> {
        self.arm(self.beliefs.stock).reference()
    }

    /// How much faster than stock the split is, as far as both are known.
    pub(crate) fn split_gain(&self) -> Option<LogGain> {
        Some(self.arm(Arm::Split).level?.faster_than(&self.reference()?))
    }

    pub(crate) fn pressed(&self) -> bool {
        self.surroundings.presses()
    }

    /// How long the heat of the latest split calls decides what stock takes, in ms.
    fn memory_ms(&self, options: &GateOptions) -> f64 {
        (BURST_MEMORY * self.split_busy_ms).min(options.heat_memory_ms)
    }

    pub(crate) fn activity(&self) -> Activity {
        match self.phase {
            Phase::Standing => Activity::Standing,
            Phase::Trial { arm, .. } => Activity::Trying(arm),
            Phase::Referencing => Activity::Referencing,
        }
    }

    pub(crate) fn loss_alarm(&self) -> f64 {
        self.loss.sum() / super::drift::THRESHOLD
    }

    pub(crate) fn locked(&self) -> Option<Arm> {
        self.lock
    }

    /// Takes a call. The ledger has been told of its time.
    pub(crate) fn record(&mut self, call: &Call, ledger: &mut Ledger, options: &GateOptions) {
        let (arm, now_ms) = (call.decision.arm, call.ended_at_ms);
        let trusted = self.last_arm == Some(arm);
        let since_split_ms = now_ms - call.ms - self.split_ended_ms;
        self.settle_accounts(call, since_split_ms, ledger, options);
        self.last_arm = Some(arm);
        if arm == Arm::Split {
            self.split_ended_ms = now_ms;
            self.split_busy_ms += call.ms;
            self.reference_anew = true;
        }
        let log = (call.ms / f64::from(call.rows.max(1))).ln();
        if call.contended || !log.is_finite() {
            return;
        }
        self.verified_at_ms.get_or_insert(now_ms);
        let trial = matches!(self.phase, Phase::Trial { arm: tried, .. } if tried == arm);
        if trial {
            self.after_trial_call(arm, log, trusted, now_ms, options);
        } else if arm.is_stock() {
            self.after_stock_call(arm, log, trusted.then_some(since_split_ms), now_ms, options);
        } else {
            self.after_split_call(log, trusted, now_ms, options);
        }
        if std::mem::take(&mut self.blameless) {
            ledger.forgive_aftermath(&mut self.account);
        }
        self.replan(now_ms, options);
    }

    /// Excess of an exploring call, and of stock in the heat that it left.
    fn settle_accounts(
        &mut self,
        call: &Call,
        since_split_ms: f64,
        ledger: &mut Ledger,
        options: &GateOptions,
    ) {
        let arm = call.decision.arm;
        let stock_ms = self.reference().map(|level| level.ms(call.rows));
        let excess = call.ms - stock_ms.unwrap_or(0.0);
        if call.decision.explore {
            // A disturbed call teaches nothing, so it isn't one of the first n0; it is paid for.
            let free = !call.contended && self.arm(arm).explored < options.first_calls;
            ledger.charge(&mut self.account, excess, free);
            if !call.contended {
                let belief = self.arm_mut(arm);
                belief.explored = belief.explored.saturating_add(1);
            }
        } else if arm.is_stock() && stock_ms.is_some() && since_split_ms < COOL_AFTER * options.heat_memory_ms
        {
            ledger.charge_aftermath(&mut self.account, excess);
        }
    }

    fn after_trial_call(&mut self, arm: Arm, log: f64, trusted: bool, now_ms: f64, options: &GateOptions) {
        let Phase::Trial { calls, since_ms, .. } = self.phase else { return };
        let since_ms = since_ms.filter(|_| trusted).unwrap_or(now_ms);
        self.phase = Phase::Trial { arm, calls: calls + 1, since_ms: Some(since_ms) };
        let Some(reference) = self.reference() else { return };
        if log > reference.value + HOPELESS {
            self.arm_mut(arm).push(log, now_ms);
            return self.refute(arm, Basis::NotBetter, now_ms, options);
        }
        if !trusted {
            return;
        }
        self.arm_mut(arm).push(log, now_ms);
        let Some(gain) = self.arm(arm).level.map(|level| level.faster_than(&reference)) else { return };
        let margin = options.log_margin(arm);
        let dwelt = arm.is_stock() || now_ms - since_ms >= options.heat_memory_ms;
        if gain.high < margin {
            self.refute(arm, Basis::NotBetter, now_ms, options);
        } else if gain.low > margin {
            if dwelt && calls + 1 >= TRIAL_CALLS.start {
                self.stand(arm, Basis::Proven, now_ms);
            }
        } else if calls + 1 >= TRIAL_CALLS.end && dwelt {
            self.refute(arm, Basis::NotBetter, now_ms, options);
        }
    }

    fn after_stock_call(
        &mut self,
        arm: Arm,
        log: f64,
        since_split_ms: Option<f64>,
        now_ms: f64,
        options: &GateOptions,
    ) {
        if let Phase::Trial { arm: tried, calls, .. } = self.phase {
            self.phase = Phase::Trial { arm: tried, calls, since_ms: None };
        }
        let Some(since_split_ms) = since_split_ms.filter(|since| *since >= self.memory_ms(options)) else {
            return;
        };
        let cool = since_split_ms >= COOL_AFTER * options.heat_memory_ms;
        if cool {
            self.split_busy_ms = 0.0;
        }
        let anew = std::mem::take(&mut self.reference_anew);
        self.arm_mut(arm).push_reference(log, now_ms, anew, cool);
        self.unreferenced = 0;
        if arm == self.beliefs.standing {
            self.watch_stock(arm, log);
        }
        let seen = self.arm(arm).window.len();
        if self.phase == Phase::Referencing && seen >= REFERENCE_CALLS && self.reference().is_some() {
            self.verified_at_ms = Some(now_ms);
            self.phase = Phase::Standing;
            self.loss.reset();
            if self.split_gain().is_some_and(|gain| gain.high < 0.0) {
                self.refute(Arm::Split, Basis::LossProven, now_ms, options);
            }
        }
        // Proven faster than the other stock arm once, and no more: back to the default.
        let default = options.arms.stock();
        if arm == self.beliefs.standing
            && arm != default
            && let Some(other) = self.arm(default).reference()
            && self.lost(log, &other, STOCK_LOSS_OFFSET, arm)
        {
            self.refute(arm, Basis::LossProven, now_ms, options);
        }
    }

    /// Two-sided drift of stock. It counts once the reference has followed, so that stock that cools down isn't taken for news.
    fn watch_stock(&mut self, arm: Arm, log: f64) {
        let Some(level) = self.arm(arm).reference() else { return };
        let Some(anchor) = self.anchor else {
            self.anchor = Some(level);
            return;
        };
        let deviation = (log - anchor.value) / anchor.deviation;
        let up = self.slower.push(deviation, ALLOWANCE);
        let down = self.faster.push(-deviation, ALLOWANCE);
        self.stock_drifts |= up || down;
        if self.stock_drifts && (level.value - anchor.value).abs() > CHANGED {
            self.reopen();
            self.anchor = Some(level);
        }
    }

    /// The machine changed: what was decided is open again.
    fn reopen(&mut self) {
        self.stock_drifts = false;
        self.reopened = true;
        self.blameless = true;
        let standing = self.beliefs.standing;
        for arm in Arm::ALL {
            if arm != standing {
                self.arm_mut(arm).reopen();
            }
        }
    }

    fn after_split_call(&mut self, log: f64, trusted: bool, now_ms: f64, options: &GateOptions) {
        if trusted {
            self.arm_mut(Arm::Split).push(log, now_ms);
        }
        let Some(reference) = self.reference() else {
            self.unreferenced += 1;
            let split = self.arm_mut(Arm::Split);
            split.explored = split.explored.saturating_add(1);
            if self.unreferenced >= options.first_calls && self.lock.is_none() {
                self.phase = Phase::Referencing;
            }
            return;
        };
        if self.beliefs.standing != Arm::Split || self.lock.is_some() {
            return;
        }
        // The first call is 1.04-1.25 times slower on a cool machine whatever the split is worth.
        if !trusted && log <= reference.value + HOPELESS {
            return;
        }
        if self.watched > 0 {
            self.watched -= 1;
            if log > reference.value + BOUND_DEVIATIONS * reference.deviation {
                self.beliefs.standing = self.beliefs.stock;
                self.beliefs.basis = Basis::BeyondStock;
                return self.forget_drift();
            }
        }
        if self.lost(log, &reference, LOSS_OFFSET, Arm::Split) {
            return self.refute(Arm::Split, Basis::LossProven, now_ms, options);
        }
        self.watch_split(log, now_ms, options);
    }

    /// Whether the calls of a standing arm have lost their gain over `reference`.
    fn lost(&mut self, log: f64, reference: &Level, offset: f64, arm: Arm) -> bool {
        let own = self.arm(arm).level.map_or(reference.deviation, |level| level.deviation);
        let deviation = (log - reference.value + offset) / own.max(reference.deviation);
        self.loss.push(deviation, 0.0)
    }

    /// A split that got faster may mean that stock did too: only then, and rarely, is stock run again.
    fn watch_split(&mut self, log: f64, now_ms: f64, options: &GateOptions) {
        let Some(level) = self.arm(Arm::Split).level else { return };
        let anchor = *self.anchor.get_or_insert(level);
        let deviation = (log - anchor.value) / anchor.deviation;
        let up = self.slower.push(deviation, ALLOWANCE);
        let down = self.faster.push(-deviation, ALLOWANCE);
        if up || down {
            self.reopened = true;
            self.anchor = Some(level);
        }
        let since = now_ms - self.verified_at_ms.unwrap_or(now_ms);
        let may = since > VERIFY_SHARE * options.heat_memory_ms && (!self.pressed() || self.reopened);
        self.verify_wanted |= down;
        if may && (self.verify_wanted || since > options.verify_every_ms) {
            self.verify_wanted = false;
            self.phase = Phase::Referencing;
        }
    }

    fn stand(&mut self, arm: Arm, basis: Basis, now_ms: f64) {
        self.beliefs.standing = arm;
        self.beliefs.basis = basis;
        self.beliefs.changes = self.beliefs.changes.saturating_add(1);
        if arm.is_stock() {
            self.beliefs.stock = arm;
        }
        self.phase = Phase::Standing;
        self.account = Account::default();
        self.verified_at_ms = Some(now_ms);
        self.stood_since_ms = now_ms;
        self.forget_drift();
    }

    fn refute(&mut self, arm: Arm, basis: Basis, now_ms: f64, options: &GateOptions) {
        let stood = self.beliefs.standing == arm;
        if stood && now_ms - self.stood_since_ms > FORGIVEN_AFTER_MS {
            self.arm_mut(arm).failures = 0;
        }
        self.arm_mut(arm).refute(now_ms, options.retry_ms);
        self.phase = Phase::Standing;
        if stood {
            let stock = if arm.is_stock() { options.arms.stock() } else { self.beliefs.stock };
            self.stand(stock, basis, now_ms);
        } else if arm == Arm::Split {
            self.beliefs.basis = basis;
        }
    }

    fn forget_drift(&mut self) {
        self.loss.reset();
        self.faster.reset();
        self.slower.reset();
        self.stock_drifts = false;
        self.verify_wanted = false;
        self.anchor = self.arm(self.beliefs.standing).level;
    }

    /// Stands on the prediction, leaves it, or stays, by what is known now.
    fn follow_prediction(&mut self, options: &GateOptions) {
        let Some(prediction) = self.prediction else { return };
        let margin = options.log_margin(Arm::Split);
        let (low, high) = (prediction.gain.low.ln(), prediction.gain.high.ln());
        let referenced = self.reference().is_some();
        let untried = self.arm(Arm::Split).failures == 0;
        let spent = !referenced && self.arm(Arm::Split).explored >= options.first_calls;
        let contradicted = self.split_gain().is_some_and(|gain| gain.high < margin);
        match self.beliefs.basis {
            Basis::Default | Basis::OtherEngine
                if low > margin
                    && options.arms.has(Arm::Split)
                    && untried
                    && !contradicted
                    && !spent
                    && !self.pressed()
                    && (referenced || (prediction.fresh && !self.stock_first)) =>
            {
                self.beliefs.standing = Arm::Split;
                self.beliefs.basis = Basis::Predicted;
                self.watched = WATCHED_CALLS;
                self.forget_drift();
            }
            Basis::Predicted if high < margin || self.pressed() => {
                self.beliefs.standing = self.beliefs.stock;
                self.beliefs.basis = if self.pressed() { Basis::Pressure } else { Basis::Default };
                self.phase = Phase::Standing;
                self.forget_drift();
            }
            Basis::Pressure if !self.pressed() => self.beliefs.basis = Basis::Default,
            _ => {}
        }
    }

    /// Decides what the next call does.
    pub(crate) fn replan(&mut self, now_ms: f64, options: &GateOptions) {
        self.follow_prediction(options);
        let stock = self.beliefs.stock;
        let arm = match (self.lock, self.phase) {
            (Some(locked), _) => locked,
            (None, Phase::Referencing) => stock,
            (None, _) => self.beliefs.standing,
        };
        let explore = self.explores(now_ms, options);
        self.plan = Plan { arm, explore, expected_ms_per_row: 0.0, free: false };
        if let (Some(tried), Some(reference)) = (explore, self.reference()) {
            let belief = *self.arm(tried);
            let per_row =
                belief.level.map_or(0.0, |level| level.value.exp() - reference.value.exp()).max(0.0);
            let calls = if self.last_arm == Some(tried) { 1.0 } else { CALLS_TO_RESUME };
            self.plan.expected_ms_per_row = calls * per_row;
            self.plan.free = belief.explored < options.first_calls;
        }
    }

    fn explores(&mut self, now_ms: f64, options: &GateOptions) -> Option<Arm> {
        let held = self.pressed() && !self.reopened;
        if self.lock.is_some() || held || self.surroundings.contended {
            return None;
        }
        match self.phase {
            Phase::Trial { arm, .. } => Some(arm),
            Phase::Referencing => None,
            Phase::Standing => {
                let arm = self.candidate(now_ms, options)?;
                self.account = Account::default();
                self.arm_mut(arm).window.clear();
                self.phase = Phase::Trial { arm, calls: 0, since_ms: None };
                Some(arm)
            }
        }
    }

    /// Whom to try next: the split first, then the other stock arm; only against a settled stock.
    fn candidate(&self, now_ms: f64, options: &GateOptions) -> Option<Arm> {
        let standing = self.beliefs.standing;
        if !standing.is_stock() || self.arm(standing).reference().is_none() {
            return None;
        }
        // Not into the heat of the last split, and not while stock still moves.
        let hot = now_ms - self.split_ended_ms < self.memory_ms(options);
        if hot || !self.arm(standing).at_reference() {
            return None;
        }
        let hopeless = self
            .prediction
            .is_some_and(|prediction| prediction.gain.high.ln() < options.log_margin(Arm::Split));
        Arm::ALL.into_iter().find(|arm| {
            options.arms.has(*arm)
                && *arm != standing
                && self.arm(*arm).retry_at_ms <= now_ms
                && !(*arm == Arm::Split && hopeless)
                && !(arm.is_stock() && self.settled_stock(*arm))
        })
    }

    /// A stock arm that was compared and not refuted needs no second look.
    fn settled_stock(&self, arm: Arm) -> bool {
        self.arm(arm).reference().is_some() && self.arm(arm).failures == 0
    }

    pub(crate) fn predict(&mut self, prediction: Option<Prediction>, now_ms: f64, options: &GateOptions) {
        let moved = match (self.prediction, prediction) {
            (Some(old), Some(new)) => (new.gain.value / old.gain.value).ln().abs() > NEW_PREDICTION,
            _ => false,
        };
        self.prediction = prediction;
        if moved {
            let split = self.arm_mut(Arm::Split);
            split.failures = 0;
            split.retry_at_ms = f64::NEG_INFINITY;
        }
        self.replan(now_ms, options);
    }

    pub(crate) fn set_lock(&mut self, lock: Option<Arm>, now_ms: f64, options: &GateOptions) {
        self.lock = lock;
        self.phase = Phase::Standing;
        self.replan(now_ms, options);
    }

    /// The machine's state, as it is now.
    pub(crate) fn surround(&mut self, surroundings: Surroundings, now_ms: f64, options: &GateOptions) {
        let before = std::mem::replace(&mut self.surroundings, surroundings);
        if before.presses() != surroundings.presses() {
            // A trial in progress would be a change of arm under pressure.
            self.reopened = false;
            self.phase = Phase::Standing;
        }
        if before.conditions != surroundings.conditions {
            self.change_conditions(before.conditions, surroundings.conditions);
        }
        self.replan(now_ms, options);
    }

    /// Each set of conditions has its own beliefs. Conditions never met start from what is believed now.
    fn change_conditions(&mut self, before: Conditions, after: Conditions) {
        let leaving = self.beliefs.clone();
        match self.parked.iter().position(|(conditions, _)| *conditions == after) {
            Some(at) => {
                self.beliefs = self.parked.swap_remove(at).1;
                self.phase = Phase::Standing;
                self.forget_drift();
            }
            None => {
                for belief in &mut self.beliefs.arms {
                    belief.explored = belief.explored.max(1);
                }
            }
        }
        self.parked.push((before, leaving));
    }

    /// Every set of beliefs with its conditions; the current one first.
    pub(crate) fn all_beliefs(&self) -> impl Iterator<Item = (Conditions, &Beliefs)> {
        std::iter::once((self.surroundings.conditions, &self.beliefs))
            .chain(self.parked.iter().map(|(conditions, beliefs)| (*conditions, beliefs)))
    }

    /// Takes in a merged state for `conditions`.
    pub(crate) fn import(
        &mut self,
        conditions: Conditions,
        arms: &[ArmState; 3],
        standing: Standing,
        now_ms: f64,
        options: &GateOptions,
    ) {
        if conditions != self.surroundings.conditions {
            match self.parked.iter_mut().find(|(parked, _)| *parked == conditions) {
                Some((_, beliefs)) => {
                    beliefs.import(arms, standing, options);
                }
                None => {
                    let mut beliefs = Self::new(options, self.surroundings).beliefs;
                    beliefs.import(arms, standing, options);
                    self.parked.push((conditions, beliefs));
                }
            }
            return;
        }
        if self.beliefs.import(arms, standing, options) {
            self.phase = Phase::Standing;
            self.watched = WATCHED_CALLS;
            self.forget_drift();
        }
        self.replan(now_ms, options);
    }

    /// What is known is of another engine: stock runs first.
    pub(crate) fn import_stale(&mut self, now_ms: f64, options: &GateOptions) {
        self.stock_first = true;
        if self.beliefs.basis == Basis::Default || self.beliefs.basis == Basis::Predicted {
            self.beliefs.standing = self.beliefs.stock;
            self.beliefs.basis = Basis::OtherEngine;
        }
        self.replan(now_ms, options);
    }
}

impl Surroundings {
    /// Memory is short, or the working set doesn't fit: the arm is locked.
    pub(crate) fn presses(&self) -> bool {
        !self.fits || self.conditions.memory >= Memory::Warn
    }
}
