//! Arms: how a region can be executed.

use std::fmt;

/// How a region is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arm {
    /// Rows split between both units.
    Split,
    /// Stock, through the framework's compiler.
    Compiled,
    /// Stock, as written.
    Eager,
}

impl Arm {
    /// Every arm, in the order of the codes.
    pub const ALL: [Self; 3] = [Self::Split, Self::Compiled, Self::Eager];

    /// The stable number in states and on the wire.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The arm of a stable number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Whether this is what the framework does without us.
    pub fn is_stock(self) -> bool {
        self != Self::Split
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.code())
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Split => "split",
            Self::Compiled => "compiled",
            Self::Eager => "eager",
        })
    }
}

/// A set of arms without its stock arm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} can't be the stock arm: it is what runs when nothing is known, so it must be compiled or eager")]
pub struct ArmSetError(pub Arm);

/// The arms that a client can run, and which of them it runs without us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArmSet {
    stock: Arm,
    available: [bool; 3],
}

impl ArmSet {
    /// `stock` is what the client would run without us; `others` what it can run besides.
    ///
    /// # Errors
    /// [`ArmSetError`] if `stock` is the split.
    pub fn new(stock: Arm, others: &[Arm]) -> Result<Self, ArmSetError> {
        if !stock.is_stock() {
            return Err(ArmSetError(stock));
        }
        let mut available = [false; 3];
        for arm in others.iter().chain([&stock]) {
            available[arm.index()] = true;
        }
        Ok(Self { stock, available })
    }

    /// Eager and split: MLX-LM, which compiles nothing around its layers.
    pub fn mlx_lm() -> Self {
        Self { stock: Arm::Eager, available: [true, false, true] }
    }

    /// All three, eager by default: the paper's blocks.
    pub fn all() -> Self {
        Self { stock: Arm::Eager, available: [true; 3] }
    }

    /// What runs when nothing is known.
    pub fn stock(self) -> Arm {
        self.stock
    }

    /// Whether the client can run `arm`.
    pub fn has(self, arm: Arm) -> bool {
        self.available[arm.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_stable_and_the_split_is_no_stock() {
        for arm in Arm::ALL {
            assert_eq!(Arm::from_code(arm.code()), Some(arm));
        }
        assert_eq!(Arm::from_code(3), None);
        assert_eq!(ArmSet::new(Arm::Split, &[]), Err(ArmSetError(Arm::Split)));
        let set = ArmSet::new(Arm::Eager, &[Arm::Split]).unwrap();
        assert_eq!(set, ArmSet::mlx_lm());
        assert!(!set.has(Arm::Compiled));
    }
}
