//! The planners' answers, one for each engine, and which of them is followed.

use std::fmt;

use fusion_calibrations::engine::Engine;
use fusion_calibrations::lines::Lines;
use fusion_calibrations::shape::Shape;

use crate::jobs::Measurer;
use crate::planner::{Decision, Want};
use crate::table::Identity;

/// An answer of the planner, for one engine.
pub(super) struct Asked {
    pub(super) by: Measurer,
    pub(super) decision: Decision,
    pub(super) wants: Vec<Want>,
}

impl Asked {
    /// The lines that are served for what is wanted.
    pub(super) fn served(&self, own: Option<&Identity>) -> Vec<((Engine, Shape), Lines)> {
        let Some(own) = own else { return Vec::new() };
        let engine = self.by.engine(&own.engine);
        let lines = |want: &Want| Some(((engine.clone(), want.shape), want.known.lines()?));
        self.wants.iter().filter_map(lines).collect()
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.by, &self.decision) {
            (Measurer::Client { worker, .. }, Decision::Run(_)) => {
                write!(f, "{} with '{worker}'", self.decision)
            }
            _ => self.decision.fmt(f),
        }
    }
}

/// The place of the first that may run; else of the one that may soonest: who waits for no moment comes last.
pub(super) fn chosen(all: &[Asked]) -> usize {
    let until = |place: &usize| match &all[*place].decision {
        Decision::Run(_) => None,
        Decision::NotNow { until, .. } => Some((until.is_none(), *until)),
    };
    (0..all.len()).min_by_key(until).expect("the own worker is always asked")
}
