//! A figure, its limit, and whether it is met.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use fusion_calibrations::stats::Interval;
use serde::Serialize;

use crate::environment::Environment;

/// Everything of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) environment: Environment,
    pub(crate) figures: Vec<Figure>,
}

/// What a figure must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
    /// Only reported.
    None,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(limit) => write!(f, ">= {limit}"),
            Self::AtMost(limit) => write!(f, "<= {limit}"),
            Self::None => f.write_str("none"),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Whether a figure is what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Met,
    Missed,
    /// The interval straddles the limit, or the machine isn't quiet.
    Unresolved,
    /// There is no limit.
    Reported,
}

/// One number.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) unit: &'static str,
    pub(crate) limit: Limit,
    pub(crate) verdict: Verdict,
    pub(crate) samples: usize,
    /// What a reader should know.
    pub(crate) note: String,
    /// The raw values, in the order they were measured.
    pub(crate) raw: Vec<f64>,
}

/// The whole interval of comparing a thing with itself must lie this near 1.
const QUIET: f64 = 0.05;

impl Figure {
    /// A figure with an interval. `self_comparison` is the same measured against itself: without a quiet machine nothing is decided.
    pub(crate) fn new(
        name: impl Into<String>,
        interval: Interval,
        unit: &'static str,
        limit: Limit,
        samples: usize,
        self_comparison: Option<Interval>,
    ) -> Self {
        let quiet = self_comparison.is_none_or(|own| own.low >= 1.0 - QUIET && own.high <= 1.0 + QUIET);
        let verdict = match judge(interval, limit) {
            Verdict::Reported => Verdict::Reported,
            _ if !quiet => Verdict::Unresolved,
            verdict => verdict,
        };
        let note = self_comparison.map_or_else(String::new, |own| {
            format!("A/A {:.3} [{:.3}, {:.3}]", own.value, own.low, own.high)
        });
        let Interval { low, value, high } = interval;
        Self { name: name.into(), value, low, high, unit, limit, verdict, samples, note, raw: Vec::new() }
    }

    /// A figure that couldn't be measured.
    pub(crate) fn unknown(name: impl Into<String>, unit: &'static str, limit: Limit) -> Self {
        let anything = Interval { low: f64::NEG_INFINITY, value: f64::NAN, high: f64::INFINITY };
        Self::new(name, anything, unit, limit, 0, None)
    }

    /// Adds what a reader should know.
    pub(crate) fn note(mut self, note: impl fmt::Display) -> Self {
        if !self.note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(&note.to_string());
        self
    }

    /// Adds the raw values.
    pub(crate) fn raw(mut self, raw: Vec<f64>) -> Self {
        self.raw = raw;
        self
    }
}

fn judge(interval: Interval, limit: Limit) -> Verdict {
    let (good, bad) = match limit {
        Limit::AtLeast(limit) => (interval.low >= limit, interval.high < limit),
        Limit::AtMost(limit) => (interval.high <= limit, interval.low > limit),
        Limit::None => return Verdict::Reported,
    };
    match (good, bad) {
        (true, _) => Verdict::Met,
        (_, true) => Verdict::Missed,
        _ => Verdict::Unresolved,
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = format!("{:?}", self.verdict).to_lowercase();
        write!(f, "{verdict:<10} {:<52} {:>9.4} {}", self.name, self.value, self.unit)?;
        if self.low < self.high {
            write!(f, " [{:.4}, {:.4}]", self.low, self.high)?;
        }
        write!(f, "  limit {}  n={}", self.limit, self.samples)?;
        if !self.note.is_empty() {
            write!(f, "  ({})", self.note)?;
        }
        Ok(())
    }
}

/// Writes the summary, its folder too.
pub(crate) fn write(path: &Path, summary: &Summary) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let text = format!("{}\n", serde_json::to_string_pretty(summary)?);
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(low: f64, high: f64, limit: Limit, own: Option<f64>) -> Verdict {
        let interval = Interval { low, value: low.midpoint(high), high };
        Figure::new("x", interval, "times", limit, 3, own.map(Interval::exact)).verdict
    }

    #[test]
    fn a_straddled_limit_and_a_noisy_machine_decide_nothing() {
        assert_eq!(verdict(1.9, 2.0, Limit::AtLeast(1.8), None), Verdict::Met);
        assert_eq!(verdict(1.7, 2.0, Limit::AtLeast(1.8), None), Verdict::Unresolved);
        assert_eq!(verdict(1.5, 1.7, Limit::AtLeast(1.8), None), Verdict::Missed);
        assert_eq!(verdict(1.9, 2.0, Limit::AtMost(1.8), None), Verdict::Missed);
        assert_eq!(verdict(1.9, 2.0, Limit::AtLeast(1.8), Some(1.2)), Verdict::Unresolved);
        assert_eq!(verdict(1.9, 2.0, Limit::None, Some(1.2)), Verdict::Reported);
        assert_eq!(Figure::unknown("x", "", Limit::AtMost(1.0)).verdict, Verdict::Unresolved);
    }
}
