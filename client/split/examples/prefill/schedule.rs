//! Whose turn it is: pure.
//!
//! A round visits every fixed arm. The first call of a visit *settles*: it follows another arm and counts for nothing. At the arm that the gate would
//! choose, calls of the gate and of the arm alternate, so that both are compared side by side under one state of the machine.

use std::fmt;

use fusion_split::Arm;

/// Who decides a call's arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nobody: always this one.
    Fixed(Arm),
    /// The gate.
    Gate,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(arm) => arm.fmt(f),
            Self::Gate => f.write_str("gate"),
        }
    }
}

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) turn: Turn,
    /// It only warms up what follows.
    pub(crate) settles: bool,
}

impl Step {
    fn of(turn: Turn, settles: bool) -> Self {
        Self { turn, settles }
    }
}

/// How many calls a round has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Of a fixed arm alone.
    pub(crate) calls: usize,
    /// Of the gate beside the arm that it would choose.
    pub(crate) pairs: usize,
}

/// The calls of round `number`. `chosen` is what the gate would run now; whether it does is its own decision at each call.
pub(crate) fn round(number: usize, turns: &[Turn], chosen: Option<Arm>, counts: Counts) -> Vec<Step> {
    let fixed: Vec<Turn> = turns.iter().copied().filter(|turn| *turn != Turn::Gate).collect();
    let companion = chosen.filter(|_| turns.contains(&Turn::Gate)).map(Turn::Fixed);
    let mut steps = Vec::new();
    // Each arm comes first, second ... equally often.
    for at in 0..fixed.len() {
        let turn = fixed[(number + at) % fixed.len()];
        steps.push(Step::of(turn, true));
        if companion == Some(turn) {
            steps.extend(pairs(number, turn, counts.pairs));
        } else {
            steps.extend(vec![Step::of(turn, false); counts.calls]);
        }
    }
    if companion.is_some_and(|companion| !fixed.contains(&companion)) {
        steps.extend(vec![Step::of(Turn::Gate, false); counts.pairs]);
    }
    steps
}

/// First the one, then the other first.
fn pairs(number: usize, turn: Turn, count: usize) -> impl Iterator<Item = Step> {
    (number..number + count).flat_map(move |pair| {
        let steps = [Step::of(turn, false), Step::of(Turn::Gate, false)];
        if pair % 2 == 0 { steps } else { [steps[1], steps[0]] }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURNS: [Turn; 4] =
        [Turn::Fixed(Arm::Eager), Turn::Fixed(Arm::Compiled), Turn::Fixed(Arm::Split), Turn::Gate];
    const COUNTS: Counts = Counts { calls: 1, pairs: 2 };

    fn text(steps: &[Step]) -> String {
        let letter = |step: &Step| match step.turn {
            Turn::Fixed(Arm::Eager) => 'e',
            Turn::Fixed(Arm::Compiled) => 'c',
            Turn::Fixed(Arm::Split) => 's',
            Turn::Gate => 'g',
        };
        steps.iter().flat_map(|step| [letter(step)].into_iter().chain(step.settles.then_some('-'))).collect()
    }

    #[test]
    fn the_gate_runs_beside_its_choice_in_balanced_order() {
        assert_eq!(text(&round(0, &TURNS, Some(Arm::Split), COUNTS)), "e-ec-cs-sggs");
        assert_eq!(text(&round(1, &TURNS, Some(Arm::Eager), COUNTS)), "c-cs-se-geeg");
    }

    #[test]
    fn every_arm_is_first_equally_often() {
        let first = |number| round(number, &TURNS, Some(Arm::Split), COUNTS)[0].turn;
        let firsts: Vec<Turn> = (0..3).map(first).collect();
        assert_eq!(firsts, TURNS[..3]);
    }

    #[test]
    fn without_a_gate_there_are_fixed_arms_and_without_those_the_gate() {
        assert_eq!(text(&round(0, &TURNS[..3], None, COUNTS)), "e-ec-cs-s");
        assert_eq!(text(&round(7, &[Turn::Gate], Some(Arm::Eager), COUNTS)), "gg");
        assert!(round(0, &[], None, COUNTS).is_empty());
    }
}
