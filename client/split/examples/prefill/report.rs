//! What is printed: text for people, or one JSON document for programs.

use anyhow::Result;
use fusion_calibrations::{
    sample::{FinishTimes, Unit},
    stats::{self, CONFIDENCE},
};
use fusion_split::Sampled;
use serde::Serialize;

use crate::{calibrate::Calibrated, log::Entry};

/// Everything of one run. Times in ms.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) model: String,
    pub(crate) region: String,
    pub(crate) blocks: usize,
    pub(crate) rows: u32,
    pub(crate) context: u32,
    /// The two units, for people.
    pub(crate) units: String,
    pub(crate) engine: String,
    /// Another arm's result against the first's, the largest; and what it may be at most.
    pub(crate) relative_error: f64,
    pub(crate) relative_error_bound: f64,
    pub(crate) attached: Option<Attached>,
    pub(crate) calibrated: Vec<Calibrated>,
    pub(crate) layers: Vec<LayerReport>,
    /// How many splits were sampled.
    pub(crate) sampled: usize,
    pub(crate) calls: Vec<Entry>,
}

/// What the daemon and the gate said.
#[derive(Debug, Serialize)]
pub(crate) struct Attached {
    /// What the answers rest on.
    pub(crate) basis: String,
    /// Wall time of attaching.
    pub(crate) ms: f64,
    /// Why the gate does what it does, at the end.
    pub(crate) standing: String,
    pub(crate) because: String,
    pub(crate) activity: String,
}

/// A layer of a block, at the rows of this run.
#[derive(Debug, Serialize)]
pub(crate) struct LayerReport {
    pub(crate) layer: String,
    /// How often it runs in a call.
    pub(crate) times: usize,
    pub(crate) secondary_rows: u32,
    /// By its lines, where there are any: stock alone.
    pub(crate) stock_ms: Option<f64>,
    /// And both units at once, balanced, with nothing lost on splitting.
    pub(crate) ideal_ms: Option<f64>,
}

impl Report {
    pub(crate) fn print_json(&self) -> Result<()> {
        println!("{}", serde_json::to_string(self)?);
        Ok(())
    }

    pub(crate) fn print(&self, sampled: &[Sampled]) {
        println!("{}. {}", self.units, self.engine);
        println!(
            "{}: {} rows after {}; arms agree to {:.1e}, at most {:.1e}",
            self.region, self.rows, self.context, self.relative_error, self.relative_error_bound
        );
        for layer in &self.layers {
            println!(
                "  {} x {}: {} rows on the secondary unit",
                layer.times, layer.layer, layer.secondary_rows
            );
        }
        for calibrated in &self.calibrated {
            println!("  {}", calibrated.line());
        }
        if let Some(attached) = &self.attached {
            println!("attached in {:.2} ms: {}", attached.ms, attached.basis);
        }
        let mut turns: Vec<&str> = self.calls.iter().map(|call| call.turn.as_str()).collect();
        turns.sort_unstable();
        turns.dedup();
        println!();
        for turn in turns {
            self.print_turn(turn);
        }
        if let Some(attached) = &self.attached {
            println!("the gate {}; {} stands: {}", attached.activity, attached.standing, attached.because);
        }
        print_samples(sampled);
    }

    fn counted<'a>(&'a self, turn: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.calls.iter().filter(move |call| call.turn == turn && !call.settles)
    }

    fn print_turn(&self, turn: &str) {
        let times: Vec<f64> = self.counted(turn).map(|call| call.ms).collect();
        let disturbed = self.counted(turn).filter(|call| call.disturbed).count();
        // Each round's middle against eager's of the same round.
        let rounds = self.calls.last().map_or(0, |call| call.round + 1);
        let middle = |turn: &str, round| {
            let of_round = self.counted(turn).filter(|call| call.round == round);
            stats::median(&of_round.map(|call| call.ms).collect::<Vec<_>>())
        };
        let pairs: Vec<(f64, f64)> =
            (0..rounds).filter_map(|round| middle("eager", round).zip(middle(turn, round))).collect();
        let speed = stats::ratio_of_pairs(&pairs, CONFIDENCE).map_or_else(String::new, |speed| {
            format!(", {:.3} times eager's speed ({:.3} to {:.3})", speed.value, speed.low, speed.high)
        });
        println!(
            "{turn:<9} {:>9.2} ms median of {}, spread {:.2} ms{speed}; {disturbed} disturbed by other programs",
            stats::median(&times).unwrap_or(f64::NAN),
            times.len(),
            stats::scaled_mad(&times).unwrap_or(f64::NAN),
        );
    }
}

fn print_samples(sampled: &[Sampled]) {
    let mut layers: Vec<_> = sampled.iter().map(|sampled| sampled.layer).collect();
    layers.sort_unstable();
    layers.dedup();
    for layer in layers {
        let of = |unit| {
            let per_row = move |sampled: &Sampled| {
                let observation = sampled.observation;
                let share = match unit {
                    Unit::Primary => observation.rows - observation.secondary_rows,
                    Unit::Secondary => observation.secondary_rows,
                };
                Some(FinishTimes::exact_ms(&observation.finish_times, unit)? / f64::from(share))
            };
            let same = sampled.iter().filter(|sampled| sampled.layer == layer);
            let times: Vec<f64> = same.filter_map(per_row).collect();
            (stats::median(&times).unwrap_or(f64::NAN), times.len())
        };
        let ((primary, primaries), (secondary, secondaries)) = (of(Unit::Primary), of(Unit::Secondary));
        println!(
            "sampled {layer}: {primary:.4} ms a row primary ({primaries}), {secondary:.4} secondary ({secondaries}); balanced at {:.3}",
            primary / (primary + secondary)
        );
    }
}
