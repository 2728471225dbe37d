//! Merging states: commutative, associative, idempotent.

use proptest::prelude::*;

use super::super::{
    Arm, ArmSet, ArmState, Bucket, Gate, GateState, Level, MergeError, RegionKey, RegionState, Standing,
};
use super::{Bench, options};
use crate::conditions::{Conditions, Thermal};

fn arm_state() -> impl Strategy<Value = ArmState> {
    let level = prop::option::of((-3.0f64..3.0, 0.001f64..0.1, 1u32..17))
        .prop_map(|level| level.map(|(value, deviation, count)| Level { value, deviation, count }));
    (0u32..3, 0u64..4, 0u32..5, 0u32..3, prop_oneof![Just(f64::NEG_INFINITY), 0.0f64..10.0], 0u32..3, level)
        .prop_map(|(epoch, observations, explored, failures, retry_at_ms, updated, level)| ArmState {
            epoch,
            observations,
            explored,
            failures,
            retry_at_ms,
            updated_at_ms: f64::from(updated),
            level,
        })
}

fn state() -> impl Strategy<Value = GateState> {
    let region = (0u32..3, any::<bool>(), prop::array::uniform3(arm_state()), 0u8..3, 0u32..3);
    prop::collection::vec(region, 0..6).prop_map(|regions| {
        let mut state = GateState { engine: "engine".to_owned(), regions: Vec::new() };
        for (rows, hot, arms, arm, changes) in regions {
            let thermal = if hot { Thermal::Heavy } else { Thermal::Nominal };
            let conditions = Conditions { thermal, ..Conditions::default() };
            let key = RegionKey { workload: "w".to_owned(), bucket: Bucket::of(1024 << rows), conditions };
            let standing = Standing { arm: Arm::from_code(arm).unwrap(), changes };
            let one =
                GateState { engine: "engine".to_owned(), regions: vec![RegionState { key, arms, standing }] };
            state.merge(&one).unwrap();
        }
        state
    })
}

fn merged(a: &GateState, b: &GateState) -> GateState {
    let mut all = a.clone();
    all.merge(b).unwrap();
    all
}

proptest! {
    #[test]
    fn merging_is_a_join(a in state(), b in state(), c in state()) {
        prop_assert_eq!(merged(&a, &b), merged(&b, &a));
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
        prop_assert_eq!(merged(&a, &a), a.clone());
        prop_assert_eq!(merged(&merged(&a, &b), &b), merged(&a, &b));
    }

    #[test]
    fn first_calls_are_never_given_back(a in state(), b in state()) {
        let all = merged(&a, &b);
        for region in a.regions.iter().chain(&b.regions) {
            let kept = all.regions.iter().find(|kept| kept.key == region.key).unwrap();
            for (kept, one) in kept.arms.iter().zip(&region.arms) {
                prop_assert!(kept.explored >= one.explored && kept.epoch >= one.epoch);
            }
        }
    }

    #[test]
    fn any_state_can_be_imported(state in state()) {
        let mut gate = Gate::new(options(ArmSet::mlx_lm()), "engine");
        gate.import(&state);
        let workload = gate.workload("w");
        for rows in [1024, 2048, 4096] {
            prop_assert!(gate.decide(workload, rows).arm != Arm::Compiled);
        }
    }
}

#[test]
fn on_a_tie_stock_stands() {
    let standing = |arm| Standing { arm, changes: 2 };
    let region = |arm| RegionState {
        key: RegionKey {
            workload: "w".to_owned(),
            bucket: Bucket::of(2048),
            conditions: Conditions::default(),
        },
        arms: [ArmState::default(); 3],
        standing: standing(arm),
    };
    let mut a = region(Arm::Split);
    a.merge(&region(Arm::Eager));
    assert_eq!(a.standing.arm, Arm::Eager);
}

#[test]
fn engines_do_not_mix() {
    let mut a = GateState { engine: "a".to_owned(), ..GateState::default() };
    let b = GateState { engine: "b".to_owned(), ..GateState::default() };
    assert_eq!(a.merge(&b), Err(MergeError { ours: "a".to_owned(), theirs: "b".to_owned() }));
}

#[test]
fn what_is_exported_is_imported() {
    let mut first = Bench::new(ArmSet::mlx_lm(), 1e9);
    first.run(400, |arm| if arm == Arm::Split { 80.0 } else { 100.0 });
    assert_eq!(first.standing(), Arm::Split);
    let state = first.gate.export();
    let mut second = Bench::new(ArmSet::mlx_lm(), 0.0);
    second.gate.import(&state);
    assert_eq!(second.decide().arm, Arm::Split);
    assert_eq!(second.gate.export(), state);
}
