//! Why this arm: the numbers behind a decision.

use std::fmt;

use super::arm::Arm;
use super::bucket::Bucket;
use super::predict::Prediction;

/// What the standing arm rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Basis {
    /// Nothing is known: stock.
    Default,
    /// The lines predict a gain, and nothing speaks against it yet.
    Predicted,
    /// Kept from earlier processes.
    Kept,
    /// A block of calls showed a gain over stock's reference, its interval included.
    Proven,
    /// Tried, and no gain above the margin was shown.
    NotBetter,
    /// It stood, and its calls lost the gain: stock again.
    LossProven,
    /// Kept from earlier processes, but a call took longer than stock ever does: stock until shown again.
    BeyondStock,
    /// The kept state is of another engine: stock first.
    OtherEngine,
    /// Memory is short, or the working set doesn't fit, and nothing was proven before: stock.
    Pressure,
    /// The user locked it.
    Locked,
    /// Too few rows: stock, without a thought.
    Bypass,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "nothing is known",
            Self::Predicted => "the lines predict it",
            Self::Kept => "kept from earlier processes",
            Self::Proven => "measured: it wins by more than the margin and its uncertainty",
            Self::NotBetter => "measured: splitting does not win by more than the margin",
            Self::LossProven => "measured: splitting lost its gain",
            Self::BeyondStock => "a split call took longer than stock ever does",
            Self::OtherEngine => "what is known is of another engine",
            Self::Pressure => "memory is short, and a gain was not proven before",
            Self::Locked => "locked by the user",
            Self::Bypass => "so few rows are never split",
        })
    }
}

/// What the gate is doing in a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Running the standing arm.
    Standing,
    /// Trying another arm, as far as the ledger and the lease permit.
    Trying(Arm),
    /// Running stock for its reference, although a split stands.
    Referencing,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standing => f.write_str("runs the standing arm"),
            Self::Trying(arm) => write!(f, "tries {arm}"),
            Self::Referencing => f.write_str("runs stock to see what it takes now"),
        }
    }
}

/// One arm's numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArmExplanation {
    /// The arm.
    pub arm: Arm,
    /// Its level, in ms for the first row count of the bucket; `None` if unknown.
    pub ms: Option<f64>,
    /// Relative standard deviation of one call.
    pub deviation: Option<f64>,
    /// Calls observed, in all processes.
    pub observations: u64,
    /// Exploring calls, in all processes.
    pub explored: u32,
    /// Refutations in a row.
    pub failures: u32,
}

/// Why this arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The workload.
    pub workload: String,
    /// The rows.
    pub bucket: Bucket,
    /// The arm that stands.
    pub standing: Arm,
    /// What that rests on.
    pub basis: Basis,
    /// What happens now.
    pub activity: Activity,
    /// Whether the arm is locked by memory pressure.
    pub pressed: bool,
    /// What was predicted.
    pub prediction: Option<Prediction>,
    /// What stock running alone takes, in ms for the first row count of the bucket.
    pub reference_ms: Option<f64>,
    /// Stock's reference over the split's level, with its 99 % interval: low, value, high.
    pub gain: Option<[f64; 3]>,
    /// How near the standing split is to being sent back, as a share of the alarm threshold.
    pub loss_alarm: f64,
    /// Every arm that the client can run.
    pub arms: Vec<ArmExplanation>,
    /// What exploration may still cost this process, in ms.
    pub balance_ms: f64,
    /// What is left of the lease, in ms.
    pub lease_ms: f64,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} at {}: {} ({}); {}",
            self.workload, self.bucket, self.standing, self.basis, self.activity
        )?;
        if let Some([low, value, high]) = self.gain {
            writeln!(f, "  split against stock alone: {value:.3} times as fast [{low:.3}, {high:.3}], 99 %")?;
        }
        if let Some(Prediction { gain, fresh }) = self.prediction {
            let stale = if fresh { "" } else { ", by lines of another engine" };
            writeln!(f, "  predicted: {:.3} [{:.3}, {:.3}]{stale}", gain.value, gain.low, gain.high)?;
        }
        let rows = self.bucket.first_rows();
        if let Some(ms) = self.reference_ms {
            writeln!(f, "  stock alone: {ms:.3} ms for {rows} rows")?;
        }
        for arm in &self.arms {
            write!(f, "  {}: {} calls, {} exploring", arm.arm, arm.observations, arm.explored)?;
            if let (Some(ms), Some(deviation)) = (arm.ms, arm.deviation) {
                write!(f, ", {ms:.3} ms for {rows} rows, spread {:.1} %", 100.0 * deviation)?;
            }
            if arm.failures > 0 {
                write!(f, ", refuted {} times in a row", arm.failures)?;
            }
            writeln!(f)?;
        }
        if self.pressed {
            writeln!(f, "  locked: memory is short")?;
        }
        write!(f, "  may still lose {:.1} ms to exploration; lease {:.1} ms", self.balance_ms, self.lease_ms)
    }
}
