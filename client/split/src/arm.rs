//! Arms: how a region is executed.

use std::fmt;

/// How a region is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arm {
    /// Rows split between both units, each input materialised first.
    Split,
    /// Stock on the primary unit, through MLX's compiler.
    Compiled,
    /// Stock on the primary unit, one lazy graph.
    Eager,
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
