//! The rules of design section 8, one by one.

use super::super::{Activity, Arm, ArmSet, Basis, Gate, Lease, Surroundings};
use super::{Bench, gain, options};
use crate::conditions::{Conditions, Memory, Thermal};

fn winning(arm: Arm) -> f64 {
    if arm == Arm::Split { 80.0 } else { 100.0 }
}

fn proven() -> Bench {
    let mut bench = Bench::new(ArmSet::mlx_lm(), 1e9);
    bench.run(400, winning);
    assert_eq!(bench.standing(), Arm::Split);
    bench
}

fn basis(bench: &Bench) -> Basis {
    bench.gate.explain(bench.workload, bench.rows).unwrap().basis
}

#[test]
fn the_first_decision_comes_from_the_prediction() {
    let mut bench = Bench::new(ArmSet::mlx_lm(), 0.0);
    assert_eq!(bench.decide().arm, Arm::Eager);
    bench.gate.predict(bench.workload, bench.rows, gain(1.02, 1.2, 1.4));
    assert_eq!(bench.decide().arm, Arm::Eager, "its interval reaches below the margin");
    bench.gate.predict(bench.workload, bench.rows, gain(1.1, 1.2, 1.3));
    assert_eq!(bench.decide().arm, Arm::Split);
    assert!(!bench.decide().explore);
    // Three calls without a reference, then stock is looked at, then the split goes on.
    let by_arm = bench.run(600, winning);
    assert_eq!(bench.decide().arm, Arm::Split);
    assert!(by_arm[0] > 300, "{by_arm:?}");
}

#[test]
fn a_prediction_that_is_wrong_is_left_without_a_lease_too() {
    let mut bench = Bench::new(ArmSet::mlx_lm(), 0.0);
    bench.gate.predict(bench.workload, bench.rows, gain(1.1, 1.2, 1.3));
    let by_arm = bench.run(1000, |arm| if arm == Arm::Split { 110.0 } else { 100.0 });
    assert!(by_arm[0] <= 12, "{by_arm:?}");
    assert_eq!(bench.standing(), Arm::Eager);
}

#[test]
fn leaving_stock_takes_three_percent_and_an_interval_and_returning_any_loss() {
    let mut bench = Bench::new(ArmSet::mlx_lm(), 1e9);
    bench.run(2000, |arm| if arm == Arm::Split { 98.5 } else { 100.0 });
    assert_eq!(bench.standing(), Arm::Eager, "1.5 % is too little to leave stock");
    let mut bench = proven();
    let by_arm = bench.run(12, |arm| if arm == Arm::Split { 100.5 } else { 100.0 });
    assert_eq!(bench.standing(), Arm::Eager, "half a per cent of loss is enough to return");
    assert!(by_arm[0] <= 10, "{by_arm:?}");
    assert_eq!(basis(&bench), Basis::LossProven);
}

#[test]
fn one_or_two_accidents_do_not_send_a_split_back() {
    let mut bench = proven();
    let mut calls = 0;
    bench.run(300, |arm| {
        calls += 1;
        if calls % 50 < 2 { 3.0 * winning(arm) } else { winning(arm) }
    });
    assert_eq!(bench.standing(), Arm::Split);
}

#[test]
fn a_split_is_not_blessed_before_its_heat_is_felt() {
    // It wins by 20 % for 15 s, then loses.
    let mut bench = Bench::new(ArmSet::mlx_lm(), 1e9);
    let mut split_calls = 0;
    bench.run(1500, |arm| {
        split_calls = if arm == Arm::Split { split_calls + 1 } else { 0 };
        if arm == Arm::Split && split_calls < 150 {
            80.0
        } else if arm == Arm::Split {
            120.0
        } else {
            100.0
        }
    });
    assert_eq!(bench.standing(), Arm::Eager);
    assert_eq!(bench.gate.export().regions[0].standing.changes, 0, "it never stood");
}

#[test]
fn pressure_locks_the_arm_and_only_its_drift_reopens_it() {
    let mut bench = Bench::new(ArmSet::mlx_lm(), 1e9);
    let warn = Conditions { memory: Memory::Warn, ..Conditions::default() };
    bench.gate.surround(Surroundings { conditions: warn, ..Surroundings::default() });
    bench.gate.predict(bench.workload, bench.rows, gain(1.2, 1.3, 1.4));
    assert_eq!(bench.run(500, winning), [0, 0, 500], "locked to stock, whatever is predicted");
    let by_arm = bench.run(1500, |arm| 1.3 * winning(arm));
    assert!(by_arm[0] > 0, "stock drifted: {by_arm:?}");

    let mut bench = proven();
    bench.gate.surround(Surroundings { fits: false, ..Surroundings::default() });
    assert_eq!(bench.run(500, winning)[0], 500, "proven before: it stays");
    bench.run(20, |arm| if arm == Arm::Split { 120.0 } else { 100.0 });
    assert_eq!(bench.standing(), Arm::Eager, "and a loss still returns");
}

#[test]
fn of_another_engine_stock_comes_first() {
    let state = proven().gate.export();
    let mut gate = Gate::new(options(ArmSet::mlx_lm()), "newer engine");
    gate.import(&state);
    let workload = gate.workload("prefill");
    gate.predict(workload, 2048, gain(1.2, 1.3, 1.4));
    assert_eq!(gate.decide(workload, 2048).arm, Arm::Eager);
    assert_eq!(gate.explain(workload, 2048).unwrap().basis, Basis::OtherEngine);
}

#[test]
fn a_kept_split_beyond_stocks_bound_is_stock_after_one_call() {
    let state = proven().gate.export();
    let mut bench = Bench::new(ArmSet::mlx_lm(), 0.0);
    bench.gate.import(&state);
    // The first call of a process is never trusted.
    bench.run(1, |_| 120.0);
    assert_eq!(bench.decide().arm, Arm::Split);
    bench.run(1, |_| 120.0);
    assert_eq!(bench.decide().arm, Arm::Eager);
    assert_eq!(basis(&bench), Basis::BeyondStock);
    // It isn't the machine's verdict, but the next process starts from what was seen.
    let mut next = Bench::new(ArmSet::mlx_lm(), 1e9);
    next.gate.import(&bench.gate.export());
    assert_eq!(next.decide().arm, Arm::Eager);
    next.run(600, winning);
    assert_eq!(next.standing(), Arm::Split);
}

#[test]
fn contended_calls_never_touch_the_state() {
    let mut bench = proven();
    let before = bench.gate.export();
    for _ in 0..200 {
        let decision = bench.decide();
        bench.record(decision, 900.0, true);
    }
    assert_eq!(bench.gate.export(), before);
    assert_eq!(bench.decide().arm, Arm::Split);

    let mut bench = Bench::new(ArmSet::all(), 1e9);
    bench.gate.surround(Surroundings { contended: true, ..Surroundings::default() });
    assert_eq!(bench.run(400, winning), [0, 0, 400], "nothing is tried while another process is busy");
}

#[test]
fn few_rows_bypass_everything() {
    let mut bench = proven();
    bench.gate.break_even(bench.workload, 300);
    let before = bench.gate.export();
    for rows in [0, 1, 32, 299] {
        bench.rows = rows;
        let decision = bench.decide();
        assert_eq!((decision.arm, decision.explore), (Arm::Eager, false));
        bench.record(decision, 5.0, false);
    }
    assert_eq!(bench.gate.export(), before);
}

#[test]
fn one_exploring_call_at_a_time() {
    let mut bench = Bench::new(ArmSet::mlx_lm(), 1e9);
    bench.run(6, winning);
    let one = bench.decide();
    assert!(one.explore);
    assert!(!bench.decide().explore, "one is in the air");
    bench.gate.abandon(one);
    assert!(bench.decide().explore);
}

#[test]
fn a_change_of_the_machine_reopens_what_was_refuted() {
    let mut bench = Bench::new(ArmSet::mlx_lm(), 1e9);
    bench.run(3000, |arm| if arm == Arm::Split { 120.0 } else { 100.0 });
    assert_eq!(bench.standing(), Arm::Eager);
    let by_arm = bench.run(2500, |arm| if arm == Arm::Split { 120.0 } else { 150.0 });
    assert_eq!(bench.standing(), Arm::Split, "{by_arm:?}");
    assert!(by_arm[0] > 1500, "{by_arm:?}");
}

#[test]
fn stock_that_got_faster_is_noticed() {
    // Both get faster, stock more: only running stock shows that.
    let mut bench = proven();
    let by_arm = bench.run(40_000, |arm| if arm == Arm::Split { 74.0 } else { 70.0 });
    assert_eq!(bench.standing(), Arm::Eager);
    assert!(by_arm[0] < 20_000, "{by_arm:?}");
}

#[test]
fn conditions_have_beliefs_of_their_own() {
    let mut bench = proven();
    let hot = Conditions { thermal: Thermal::Heavy, ..Conditions::default() };
    bench.gate.surround(Surroundings { conditions: hot, ..Surroundings::default() });
    assert_eq!(bench.decide().arm, Arm::Split, "never met: what is believed now");
    bench.run(50, |arm| if arm == Arm::Split { 130.0 } else { 100.0 });
    assert_eq!(bench.standing(), Arm::Eager);
    bench.gate.surround(Surroundings::default());
    assert_eq!(bench.decide().arm, Arm::Split, "cool again: as before");
    assert_eq!(bench.gate.export().regions.len(), 2);
}

#[test]
fn the_compiled_arm_is_taken_if_it_is_there_and_faster() {
    let ms = |arm| match arm {
        Arm::Split => 120.0,
        Arm::Compiled => 95.0,
        Arm::Eager => 100.0,
    };
    let mut bench = Bench::new(ArmSet::all(), 1e9);
    bench.run(2000, ms);
    assert_eq!(bench.standing(), Arm::Compiled);
    let mut bench = Bench::new(ArmSet::mlx_lm(), 1e9);
    assert_eq!(bench.run(2000, ms)[1], 0);
}

#[test]
fn locks_and_resets_of_the_user() {
    let mut bench = proven();
    bench.gate.lock(bench.workload, bench.rows, Some(Arm::Eager));
    assert_eq!(bench.run(200, winning), [0, 0, 200]);
    assert_eq!(basis(&bench), Basis::Locked);
    bench.gate.lock(bench.workload, bench.rows, Some(Arm::Compiled));
    assert_eq!(bench.decide().arm, Arm::Split, "can't be run, so it isn't locked");
    bench.gate.reset(bench.workload, bench.rows);
    assert_eq!(bench.decide().arm, Arm::Eager);
}

#[test]
fn nonsense_is_ignored() {
    let mut bench = proven();
    let before = bench.gate.export();
    for ms in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        let decision = bench.decide();
        let now = bench.now_ms;
        bench.record(decision, ms, false);
        bench.now_ms = now;
    }
    assert_eq!(bench.gate.export(), before);
    bench.gate.grant(Lease { ms: f64::NAN });
    let elsewhere = Gate::new(options(ArmSet::mlx_lm()), "engine").decide(bench.workload, 2048);
    assert_eq!(elsewhere.arm, Arm::Eager);
}

#[test]
fn explaining_gives_the_numbers() {
    let bench = proven();
    let why = bench.gate.explain(bench.workload, bench.rows).unwrap();
    assert_eq!((why.standing, why.basis, why.activity), (Arm::Split, Basis::Proven, Activity::Standing));
    let [low, value, high] = why.gain.unwrap();
    assert!(low > 1.03 && (value - 1.25).abs() < 0.01 && high < 1.35);
    let text = why.to_string();
    println!("{text}");
    for part in
        ["split (measured: it wins", "1.250 times as fast", "stock alone: 100.000 ms for 2048 rows", "lease"]
    {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn deciding_takes_nanoseconds() {
    let bench = proven();
    let start = std::time::Instant::now();
    let splits = (0..1_000_000u32)
        .filter(|call| {
            bench.gate.decide(std::hint::black_box(bench.workload), 2048 + call % 512).arm == Arm::Split
        })
        .count();
    let each = start.elapsed().as_secs_f64() * 1e9 / 1e6;
    println!("{each:.1} ns a decision");
    assert_eq!(splits, 1_000_000);
    assert!(each < 2_000.0, "{each} ns");
}
