//! What a region believes under one set of conditions: of each arm, and which one stands.

use super::arm::Arm;
use super::belief::ArmBelief;
use super::explain::Basis;
use super::level::Level;
use super::options::GateOptions;
use super::state::{ArmState, Standing};

/// What is known under one set of conditions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Beliefs {
    pub(crate) arms: [ArmBelief; 3],
    pub(crate) standing: Arm,
    /// The stock arm that is the comparator, and what is returned to: the default, unless another one was proven faster.
    pub(crate) stock: Arm,
    pub(crate) basis: Basis,
    pub(crate) changes: u32,
}

impl Beliefs {
    /// Takes in a merged state; true if another arm stands now.
    pub(super) fn import(&mut self, arms: &[ArmState; 3], standing: Standing, options: &GateOptions) -> bool {
        for (belief, state) in self.arms.iter_mut().zip(arms) {
            belief.explored = belief.explored.max(state.explored);
            if (state.epoch, state.observations) > (belief.epoch, belief.observations) {
                *belief = ArmBelief { window: Default::default(), ..ArmBelief::from(state) };
            }
        }
        let usable = options.arms.has(standing.arm);
        if standing.changes <= self.changes || !usable {
            return false;
        }
        self.changes = standing.changes;
        if standing.arm.is_stock() {
            self.stock = standing.arm;
        }
        let split = self.arms[Arm::Split.index()].level;
        let slower = match (split, self.arms[self.stock.index()].reference()) {
            (Some(split), Some(stock)) => split.value > stock.value,
            _ => false,
        };
        // It stood, but the last calls that anyone saw were slower than stock.
        let doubted = standing.arm == Arm::Split && slower;
        self.basis = if doubted { Basis::BeyondStock } else { Basis::Kept };
        let arm = if doubted { self.stock } else { standing.arm };
        std::mem::replace(&mut self.standing, arm) != arm
    }

    /// The state of the arms and what stands, as plain data. A standing that wasn't measured isn't passed on.
    pub(crate) fn export(&self, stock: Arm) -> ([ArmState; 3], Standing) {
        let arm = match self.basis {
            Basis::Proven | Basis::Kept | Basis::LossProven | Basis::NotBetter => self.standing,
            // One call's doubt is this process' own.
            Basis::BeyondStock if self.changes > 0 => Arm::Split,
            _ => stock,
        };
        (self.arms.map(|belief| ArmState::from(&belief)), Standing { arm, changes: self.changes })
    }
}

impl From<&ArmBelief> for ArmState {
    fn from(belief: &ArmBelief) -> Self {
        Self {
            epoch: belief.epoch,
            observations: belief.observations,
            explored: belief.explored,
            failures: belief.failures,
            retry_at_ms: belief.retry_at_ms,
            updated_at_ms: belief.updated_at_ms,
            level: belief.level,
        }
    }
}

impl From<&ArmState> for ArmBelief {
    fn from(state: &ArmState) -> Self {
        Self {
            window: Default::default(),
            level: state.level.filter(Level::is_sound),
            epoch: state.epoch,
            observations: state.observations,
            explored: state.explored,
            failures: state.failures,
            retry_at_ms: state.retry_at_ms,
            updated_at_ms: state.updated_at_ms,
        }
    }
}
