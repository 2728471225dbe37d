//! Timed calls of the block example, and which of them are compared: pure.

use fusion_calibrations::stats::median;
use serde::Deserialize;

/// What the example prints; fields that nobody here reads are left out. Times in ms.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Document {
    pub(crate) attached: Option<Attached>,
    #[serde(default)]
    pub(crate) calibrated: Vec<Calibrated>,
    #[serde(default)]
    pub(crate) layers: Vec<Layer>,
    #[serde(default)]
    pub(crate) sampled: usize,
    pub(crate) calls: Vec<Call>,
}

/// What the daemon and the gate said at the end.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Attached {
    pub(crate) basis: String,
    pub(crate) standing: String,
    pub(crate) because: String,
}

/// A layer whose rows the example found by itself.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Calibrated {
    pub(crate) shape: String,
    pub(crate) ms: f64,
}

/// A layer of a block.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Layer {
    pub(crate) times: f64,
    pub(crate) secondary_rows: u32,
    pub(crate) stock_ms: Option<f64>,
    pub(crate) ideal_ms: Option<f64>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Call {
    pub(crate) round: usize,
    /// Who decided: an arm, or "gate".
    pub(crate) turn: String,
    /// What ran.
    pub(crate) arm: String,
    pub(crate) settles: bool,
    pub(crate) explored: bool,
    pub(crate) ms: f64,
    pub(crate) disturbed: bool,
}

impl Call {
    fn is_gates(&self) -> bool {
        self.turn == "gate"
    }

    fn time(&self, counted: Counted) -> Option<f64> {
        (counted == Counted::All || !self.disturbed).then_some(self.ms)
    }
}

/// Which calls are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Those that no other program disturbed.
    Quiet,
    /// Every one: where few are quiet, the middle of many pairs tells more than the few. It is charged to a split, which is disturbed on two cores and not on one.
    All,
}

/// Times of the fixed arm `turn` and of the gate's calls that were made beside it, (fixed, gate).
///
/// A fixed arm's first call after another arm doesn't count. The gate's always do: if it changes the arm, what that costs is its own. Then the fixed arm's
/// neighbour doesn't count, and its last call before takes its place.
pub(crate) fn beside(calls: &[Call], turn: &str, counted: Counted) -> Vec<(f64, f64)> {
    let mut pairs = Vec::new();
    let (mut last_arm, mut in_visit, mut fixed_ms) = ("", false, None);
    let (mut fixed_now, mut gate_now): (Option<Option<f64>>, Option<Option<f64>>) = (None, None);
    for call in calls {
        let follows_its_own = call.arm == last_arm;
        last_arm = &call.arm;
        if call.settles {
            (in_visit, fixed_ms, fixed_now, gate_now) = (call.turn == turn, None, None, None);
            continue;
        }
        if !in_visit {
            continue;
        }
        if call.is_gates() {
            gate_now = Some(call.time(counted));
        } else {
            if follows_its_own && call.time(counted).is_some() {
                fixed_ms = call.time(counted);
            }
            // A disturbed call has no time, and so has its pair; one that follows another arm is replaced.
            fixed_now = Some(if follows_its_own { call.time(counted) } else { fixed_ms });
        }
        if let (Some(fixed), Some(gate)) = (fixed_now, gate_now) {
            pairs.extend(fixed.zip(gate));
            (fixed_now, gate_now) = (None, None);
        }
    }
    pairs
}

/// The middle times of the fixed arm `turn` and of the gate in each round in which the gate ran beside another arm, (fixed, gate).
pub(crate) fn by_round(calls: &[Call], turn: &str, counted: Counted) -> Vec<(f64, f64)> {
    let rounds = calls.iter().map(|call| call.round + 1).max().unwrap_or(0);
    let of_round = |round| {
        let calls: Vec<&Call> = calls.iter().filter(|call| call.round == round).collect();
        let companion = calls.iter().position(|call| call.is_gates()).and_then(|first| {
            calls[..first].iter().rev().find(|call| call.settles).map(|call| call.turn.clone())
        });
        if companion.as_deref() == Some(turn) {
            return None;
        }
        let middle = |turn: &str| {
            let own = calls.iter().filter(|call| call.turn == turn && !call.settles);
            median(&own.filter_map(|call| call.time(counted)).collect::<Vec<_>>())
        };
        middle(turn).zip(middle("gate"))
    };
    (0..rounds).filter_map(of_round).collect()
}

/// Neighbouring calls of one fixed arm: a thing compared with itself.
pub(crate) fn neighbours(calls: &[Call], counted: Counted) -> Vec<(f64, f64)> {
    let mut pairs = Vec::new();
    let mut before: Option<&Call> = None;
    for call in calls {
        let usable = !call.settles && !call.is_gates() && call.time(counted).is_some();
        match before.take() {
            Some(before) if usable && before.turn == call.turn => pairs.push((before.ms, call.ms)),
            _ if usable => before = Some(call),
            _ => {}
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "e-10 e11 g12 G13!": turn (e, c, s: fixed; g, G: the gate running split, eager), '-' settles, '!' disturbed.
    fn calls(text: &str) -> Vec<Call> {
        let of_round = |(round, text): (usize, &str)| {
            let one = move |word: &str| {
                let (turn, arm) = match &word[..1] {
                    "e" => ("eager", "eager"),
                    "c" => ("compiled", "compiled"),
                    "s" => ("split", "split"),
                    "g" => ("gate", "split"),
                    _ => ("gate", "eager"),
                };
                Call {
                    round,
                    turn: turn.to_owned(),
                    arm: arm.to_owned(),
                    settles: word.contains('-'),
                    explored: false,
                    ms: word[1..].trim_matches(['-', '!']).parse().unwrap(),
                    disturbed: word.contains('!'),
                }
            };
            text.split_whitespace().map(one).collect::<Vec<_>>()
        };
        text.split('|').enumerate().flat_map(of_round).collect()
    }

    #[test]
    fn the_gate_is_paired_with_its_neighbour() {
        let calls = calls("e-50 e40 s-30 s20 g21 g22 s23 s24! g25");
        assert_eq!(beside(&calls, "split", Counted::Quiet), [(20.0, 21.0), (23.0, 22.0)]);
        assert_eq!(beside(&calls, "eager", Counted::Quiet), []);
    }

    #[test]
    fn disturbed_calls_count_if_all_do() {
        let calls = calls("e-50 e40! e42 s-30 s20 g21 g22! s23 | s-30 s20! g25");
        assert_eq!(beside(&calls, "split", Counted::Quiet), [(20.0, 21.0)]);
        assert_eq!(beside(&calls, "split", Counted::All), [(20.0, 21.0), (23.0, 22.0), (20.0, 25.0)]);
        assert_eq!(by_round(&calls, "eager", Counted::All), [(41.0, 21.5)]);
        assert_eq!(neighbours(&calls, Counted::Quiet), []);
        assert_eq!(neighbours(&calls, Counted::All), [(40.0, 42.0)]);
    }

    #[test]
    fn a_gate_that_changes_the_arm_pays_for_it() {
        // The second call of the gate is eager; the split after it follows another arm.
        let calls = calls("s-30 s20 g21 G90 s35 s22 g23");
        assert_eq!(beside(&calls, "split", Counted::Quiet), [(20.0, 21.0), (20.0, 90.0), (22.0, 23.0)]);
    }

    #[test]
    fn other_arms_are_compared_by_rounds() {
        let calls = calls("e-50 e40 e42 s-30 s20 g21 g23 s20 | s-30 s20 g22 e-60 e44! e46");
        assert_eq!(by_round(&calls, "eager", Counted::Quiet), [(41.0, 22.0), (46.0, 22.0)]);
        assert_eq!(by_round(&calls, "split", Counted::Quiet), []);
    }

    #[test]
    fn neighbours_are_of_one_arm_and_counted_once() {
        let calls = calls("e-50 e40 e41 e42 s-30 s20 g21 g23 s20 s25 g26 s27! s28");
        assert_eq!(neighbours(&calls, Counted::Quiet), [(40.0, 41.0), (20.0, 25.0)]);
    }

    #[test]
    fn a_document_of_the_example_is_read() {
        let text = r#"{"model": "m", "attached": {"basis": "attached", "ms": 1.0, "standing": "split", "because": "b",
            "activity": "a"}, "layers": [{"layer": "l", "times": 2, "secondary_rows": 9, "stock_ms": null,
            "ideal_ms": 1.5}], "calls": [{"round": 0, "turn": "gate", "arm": "split", "settles": false, "explored": true,
            "rows": 5, "ms": 2.5, "waited_ms": null, "disturbed": false}]}"#;
        let document: Document = serde_json::from_str(text).unwrap();
        assert_eq!(document.attached.unwrap().standing, "split");
        assert_eq!((document.layers[0].ideal_ms, document.layers[0].stock_ms), (Some(1.5), None));
        assert!(document.calls[0].explored && document.calls[0].is_gates());
    }
}
