use super::*;
use crate::sample::FinishTimes;
use crate::shape::{Layer, Layout, WeightFormat};

/// A generator of noise for tests: 64-bit LCG, Box-Muller.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn factor(&mut self, deviation: f64) -> f64 {
        let normal = (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos();
        (deviation * normal).exp()
    }
}

fn shape(rows: u32, inputs: u32) -> Shape {
    Layer::new(inputs, 2048, WeightFormat::F32, Layout::default()).unwrap().with_rows(rows).unwrap()
}

/// A machine that tells finish times: secondary rows cost `f` times a primary row.
fn two_units(shape: Shape, f: f64, noise: &mut Noise, ask: Ask) -> Sample {
    let row = 0.01;
    let secondary_rows = ask.secondary_rows();
    let primary_part = row * f64::from(shape.rows() - secondary_rows) * noise.factor(0.01);
    let Ask::Split { first_waited, .. } = ask else {
        return Sample { secondary_rows: 0, total_ms: primary_part, finish_times: None, dropped: None };
    };
    let secondary_part = row * f * f64::from(secondary_rows) * noise.factor(0.01);
    let later = primary_part.max(secondary_part);
    let (primary_ms, secondary_ms) = match first_waited {
        Unit::Primary => (primary_part, later),
        Unit::Secondary => (later, secondary_part),
    };
    Sample {
        secondary_rows,
        total_ms: later + 0.02,
        finish_times: Some(FinishTimes { primary_ms, secondary_ms, first_waited }),
        dropped: None,
    }
}

fn drive(search: &mut Search, mut machine: impl FnMut(Ask) -> Sample) -> Outcome {
    loop {
        match search.next() {
            Step::Measure(ask) => search.tell(machine(ask)).unwrap(),
            Step::Done(outcome) => return *outcome,
        }
    }
}

#[test]
fn finish_times_find_the_balance_in_four_split_calls_and_twelve_in_all() {
    for seed in 0..50 {
        for f in [1.0, 1.3, 1.7, 2.6, 3.5, 4.0] {
            for start in [0.1, 0.3, 0.5] {
                let shape = shape(1024, 2048);
                let options =
                    Options { first_ratio: Some(Ratio::new(start).unwrap()), seed, ..Options::default() };
                let (mut search, mut noise) = (Search::new(shape, options), Noise(seed));
                let outcome = drive(&mut search, |ask| two_units(shape, f, &mut noise, ask));
                let found = outcome.ratio.get();
                assert!((found - 1.0 / (1.0 + f)).abs() <= 0.02, "f {f} from {start}: {found}, {outcome:?}");
                assert!(search.calls() <= 12);
                assert!(outcome.confirmed());
            }
        }
    }
}

/// A part costs something beyond its rows, as where a kernel packs the whole weight first: lines through calls of other sizes would put the
/// balance elsewhere.
#[test]
fn what_a_part_costs_beyond_its_rows_does_not_move_the_balance() {
    let (mut sum, mut worst, mut count) = (0.0, 0.0_f64, 0.0);
    for seed in 0..50 {
        for packing_ms in [0.0, 0.1, 0.2] {
            let shape = shape(512, 2048);
            let options = Options { seed, ..Options::default() };
            let (mut search, mut noise) = (Search::new(shape, options), Noise(seed));
            let outcome = drive(&mut search, |ask| {
                let mut sample = two_units(shape, 1.0, &mut noise, ask);
                sample.total_ms += packing_ms;
                if let Some(times) = &mut sample.finish_times {
                    times.primary_ms += packing_ms;
                    times.secondary_ms += packing_ms;
                }
                sample
            });
            let off = (outcome.ratio.get() - 0.5).abs();
            (sum, worst, count) = (sum + off, worst.max(off), count + 1.0);
        }
    }
    assert!(worst <= 0.015 && sum / count <= 0.003, "mean {}, worst {worst}", sum / count);
}

#[test]
fn an_earlier_choice_off_the_balance_is_corrected() {
    for seed in 0..20 {
        let shape = shape(1024, 2048);
        let known = Known { secondary_rows: 560, lines: None, stock_ms: 10.24, split_ms: 5.8 };
        let options = Options { start: Start::Warm(known), seed, ..Options::default() };
        let (mut search, mut noise) = (Search::new(shape, options), Noise(seed));
        let outcome = drive(&mut search, |ask| two_units(shape, 1.0, &mut noise, ask));
        assert!((outcome.ratio.get() - 0.5).abs() <= 0.02, "{outcome:?}");
    }
}

#[test]
fn a_clear_gain_is_taken_though_the_budget_ends_early() {
    let clear = |speed_up: f64| {
        let budget = Budget { calls: 4, ..Budget::totals() };
        let rows = [100, 200, 300, 400];
        let mut search = Search::new(shape(1024, 2048), Options { budget, ..totals(&rows) });
        drive(&mut search, |ask| {
            told(ask.secondary_rows(), if ask == Ask::Stock { 10.0 * speed_up } else { 10.0 })
        })
    };
    let outcome = clear(1.5);
    assert_eq!((outcome.verdict, outcome.pairs), (Verdict::Confirmed, 1));
    // One pair decides no gain below the noise that it may hold.
    assert_eq!(clear(1.08).verdict, Verdict::Unresolved);
}

#[test]
fn a_sure_gain_below_what_sessions_differ_by_is_not_taken() {
    let gain = |speed_up: f64| {
        let mut search = Search::new(shape(1024, 2048), totals(&[100, 200, 300, 400]));
        let outcome = drive(&mut search, |ask| match ask.secondary_rows() {
            0 => told(0, 10.0 * speed_up),
            rows => told(rows, 10.0),
        });
        assert!(outcome.speed_up.unwrap().low > 1.0, "won beyond doubt in this session");
        outcome.verdict
    };
    assert_eq!(gain(1.04), Verdict::NotBetter);
    assert_eq!(gain(1.06), Verdict::Confirmed);
}

#[test]
fn calls_that_are_made_again_use_up_machine_time_but_no_calls() {
    let budget = Budget { calls: 12, machine_ms: 100.0 };
    let mut search = Search::new(shape(1024, 2048), Options { budget, ..Options::default() });
    let disturbed = Sample { dropped: Some(DropReason::Disturbed), ..told(0, 30.0) };
    let mut charged = 0;
    while let Step::Measure(_) = search.next() {
        search.charge(&disturbed);
        charged += 1;
    }
    assert_eq!((charged, search.calls(), search.machine_ms()), (3, 0, 90.0));
    assert_eq!(search.tell(told(0, 1.0)), Err(SearchError::Done));
}

#[test]
fn what_was_not_asked_is_refused() {
    let mut search = Search::new(shape(1024, 2048), Options::default());
    let sample = Sample { secondary_rows: 7, total_ms: 1.0, finish_times: None, dropped: None };
    assert_eq!(search.tell(sample), Err(SearchError::NotAsked { asked: 0, answered: 7 }));
    assert_eq!(search.calls(), 0);
}

/// A machine that only tells totals, noisy.
fn told(secondary_rows: u32, total_ms: f64) -> Sample {
    Sample { secondary_rows, total_ms, finish_times: None, dropped: None }
}

fn totals(rows: &[u32]) -> Options {
    Options {
        evidence: Evidence::Totals,
        candidates: Candidates::Rows(rows.to_vec()),
        rule: RowRule::apple(),
        budget: Budget::totals(),
        ..Options::default()
    }
}

#[test]
fn a_machine_where_splitting_changes_nothing_is_left_alone() {
    let shape = shape(2048, 2048);
    let rows: Vec<u32> = (1..=9).map(|step| step * 100).collect();
    for evidence in [Evidence::Totals, Evidence::FinishTimes] {
        let wrong = (0..1000)
            .filter(|&seed| {
                let options = match evidence {
                    Evidence::Totals => totals(&rows),
                    Evidence::FinishTimes => Options::default(),
                };
                let mut noise = crate::noise::Noise::new(seed);
                let mut search = Search::new(shape, Options { seed, ..options });
                let outcome = drive(&mut search, |ask| {
                    let total_ms = 10.0 * noise.call_factor(0.015);
                    let mut sample = told(ask.secondary_rows(), total_ms);
                    if let Ask::Split { first_waited, .. } = ask
                        && evidence == Evidence::FinishTimes
                    {
                        // The units are balanced, and together as fast as stock alone.
                        let early = total_ms * 0.98;
                        let (primary_ms, secondary_ms) = match first_waited {
                            Unit::Primary => (early, total_ms),
                            Unit::Secondary => (total_ms, early),
                        };
                        sample.finish_times = Some(FinishTimes { primary_ms, secondary_ms, first_waited });
                    }
                    sample
                });
                outcome.ratio.splits()
            })
            .count();
        assert!(wrong <= 10, "{evidence:?}: a split was chosen in {wrong} of 1000");
    }
}

#[test]
fn a_cliff_is_discovered_where_finish_times_are_known() {
    let shape = shape(4096, 2048);
    // Only this count is slow, and it's where the search looks first.
    let cliff = (4096.0 * FIRST_RATIO_TOTALS) as u32;
    let options =
        Options { first_ratio: Some(Ratio::new(FIRST_RATIO_TOTALS).unwrap()), ..Options::default() };
    let (mut search, mut noise) = (Search::new(shape, options), Noise(3));
    let outcome = drive(&mut search, |ask| {
        let factor = if ask.secondary_rows().abs_diff(cliff) <= 1 { 6.0 } else { 2.6 };
        two_units(shape, factor, &mut noise, ask)
    });
    assert!((outcome.ratio.get() - 1.0 / 3.6).abs() < 0.02, "{outcome:?}");
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    fn any_time() -> impl Strategy<Value = f64> {
        prop_oneof![
            8 => 1e-3f64..1e4,
            1 => prop::sample::select(vec![f64::NAN, 0.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, 1e300, 1e-300]),
        ]
    }

    fn any_start() -> impl Strategy<Value = Start> {
        let lines = || {
            (any_time(), any_time(), any_time(), any_time()).prop_map(|(a, b, c, d)| Lines {
                primary_ms_per_row: a,
                secondary_ms_per_row: b,
                overhead_ms: c,
                stock_ms_per_row: d,
            })
        };
        prop_oneof![
            Just(Start::Cold),
            lines().prop_map(Start::Prior),
            (lines(), 0u32..6000, any_time(), any_time()).prop_map(
                |(lines, secondary_rows, stock_ms, split_ms)| {
                    Start::Warm(Known { secondary_rows, lines: Some(lines), stock_ms, split_ms })
                }
            ),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_latencies_end_within_the_budget_and_never_on_a_cliff(
            times in prop::collection::vec((any_time(), any_time(), any_time()), 64),
            start in any_start(),
            calls in 0u32..30,
            knows_finish_times: bool,
            restricted: bool,
            rows in 1u32..9000,
            seed: u64,
        ) {
            let shape = shape(rows, 14336);
            let candidates = if restricted {
                Candidates::Rows((1..10).map(|step| rows * step / 20).filter(|rows| *rows > 0).collect())
            } else {
                Candidates::Any
            };
            let options = Options {
                start,
                evidence: if knows_finish_times { Evidence::FinishTimes } else { Evidence::Totals },
                candidates,
                rule: RowRule::apple(),
                budget: Budget { calls, machine_ms: f64::INFINITY },
                first_ratio: None,
                seed,
            };
            let run = || {
                let mut search = Search::new(shape, options.clone());
                let mut asked = Vec::new();
                let mut times = times.iter();
                let outcome = drive(&mut search, |ask| {
                    asked.push(ask);
                    let &(total_ms, primary_ms, secondary_ms) = times.next().unwrap();
                    let finish_times = match ask {
                        Ask::Split { first_waited, .. } if knows_finish_times => {
                            Some(FinishTimes { primary_ms, secondary_ms, first_waited })
                        }
                        _ => None,
                    };
                    Sample { secondary_rows: ask.secondary_rows(), total_ms, finish_times, dropped: None }
                });
                (asked, outcome, search.calls())
            };
            let (asked, outcome, made) = run();
            prop_assert!(made <= calls);
            for ask in &asked {
                prop_assert!(!RowRule::apple().is_cliff(ask.secondary_rows(), 14336));
                prop_assert!(ask.secondary_rows() <= rows);
            }
            prop_assert!(!RowRule::apple().is_cliff(outcome.secondary_rows, 14336));
            prop_assert!(outcome.ratio.splits() == (outcome.secondary_rows > 0));
            // The same seed and samples: the same search.
            prop_assert_eq!(format!("{asked:?} {outcome:?}"), { let (asked, outcome, _) = run(); format!("{asked:?} {outcome:?}") });
        }

        #[test]
        fn scaling_all_times_changes_no_question_and_no_choice(seed: u64, f in 1.0f64..6.0, exponent in -8i32..8) {
            let shape = shape(2048, 2048);
            let rows: Vec<u32> = (1..=9).map(|step| step * 100).collect();
            for options in [totals(&rows), Options { seed, ..Options::default() }] {
                // A power of two scales without rounding.
                let run = |scale: f64| {
                    let (mut search, mut noise) = (Search::new(shape, options.clone()), Noise(seed));
                    let mut asked = Vec::new();
                    let outcome = drive(&mut search, |ask| {
                        asked.push(ask);
                        let mut sample = two_units(shape, f, &mut noise, ask);
                        sample.total_ms *= scale;
                        if let Some(times) = &mut sample.finish_times {
                            times.primary_ms *= scale;
                            times.secondary_ms *= scale;
                        }
                        sample
                    });
                    (asked, outcome.secondary_rows)
                };
                prop_assert_eq!(run(1.0), run(2f64.powi(exponent)));
            }
        }

        #[test]
        fn more_of_the_same_evidence_never_widens_the_interval(gain in 1.02f64..3.0, pairs in 1usize..8) {
            let width = |count: usize| {
                let interval = ratio_of_pairs(&vec![(gain, 1.0); count], DECISION_CONFIDENCE).unwrap();
                (interval.high / interval.low).ln()
            };
            // From two to three pairs the median replaces the mean, which is a little less efficient.
            let allowance = if pairs == 2 { 1.1 } else { 1.0 + 1e-9 };
            prop_assert!(width(pairs + 1) <= width(pairs) * allowance);
        }
    }

    #[test]
    fn the_machine_time_limit_is_kept() {
        let options = Options { budget: Budget { calls: 100, machine_ms: 55.0 }, ..Options::default() };
        let mut search = Search::new(shape(1024, 2048), options);
        drive(&mut search, |ask| told(ask.secondary_rows(), 10.0));
        assert!(search.machine_ms() <= 55.0 && search.calls() <= 5);
    }
}

#[test]
fn what_is_known_does_not_hold_where_another_balance_is_better() {
    let shape = shape(1024, 2048);
    for seed in 0..50 {
        let mut noise = Noise(seed);
        // Found when a secondary row cost three primary ones; now it costs one and a half, but 256 rows gain what they gained.
        let known = Known { secondary_rows: 256, lines: None, stock_ms: 10.24, split_ms: 7.7 };
        let mut search =
            Search::new(shape, Options { start: Start::Warm(known), seed, ..Options::default() });
        let outcome = drive(&mut search, |ask| two_units(shape, 1.5, &mut noise, ask));
        assert!(outcome.secondary_rows.abs_diff(410) < 20, "seed {seed}: {}", outcome.secondary_rows);
    }
}

#[test]
fn two_accidents_in_a_row_at_the_rows_to_confirm_are_no_loss() {
    let shape = shape(1024, 2048);
    let prior = Lines {
        primary_ms_per_row: 0.01,
        secondary_ms_per_row: 0.028,
        overhead_ms: 0.02,
        stock_ms_per_row: 0.01,
    };
    for seed in 0..20 {
        let mut noise = Noise(seed);
        let options = Options { start: Start::Prior(prior), seed, ..Options::default() };
        let mut search = Search::new(shape, options);
        let (mut first_rows, mut accidents) = (0, 0);
        let outcome = drive(&mut search, |ask| {
            let mut sample = two_units(shape, 3.4, &mut noise, ask);
            let rows = ask.secondary_rows();
            if first_rows == 0 {
                first_rows = rows;
            }
            if rows > 0 && rows.abs_diff(first_rows) > 25 && accidents < 2 {
                accidents += 1;
                sample.total_ms *= 1.45;
                let times = sample.finish_times.as_mut().unwrap();
                (times.primary_ms, times.secondary_ms) = (times.primary_ms * 1.45, times.secondary_ms * 1.45);
            }
            sample
        });
        assert_eq!(accidents, 2, "seed {seed}");
        assert!(outcome.confirmed(), "seed {seed}: {outcome:?} {:?}", search.samples());
    }
}

#[test]
fn accidents_are_no_loss_where_the_first_calls_after_a_change_were_faster_than_stock() {
    let shape = shape(1024, 2048);
    // By the split calls that count: whether it is an accident.
    for (seed, accidents) in
        (0..10).flat_map(|seed| ["111", "011", "0111"].map(|accidents| (seed, accidents)))
    {
        let mut noise = Noise(seed);
        let known = Known { secondary_rows: 292, lines: None, stock_ms: 10.24, split_ms: 8.2 };
        let mut search =
            Search::new(shape, Options { start: Start::Warm(known), seed, ..Options::default() });
        let (mut last_split, mut calls) = (false, accidents.chars());
        let outcome = drive(&mut search, |ask| {
            let mut sample = two_units(shape, 3.4, &mut noise, ask);
            let first = !std::mem::replace(&mut last_split, ask.secondary_rows() > 0);
            let Some(times) = &mut sample.finish_times else { return sample };
            let is_accident = !first && calls.next() == Some('1');
            let slower = if is_accident { 1.45 } else { [1.0, 1.14][usize::from(first)] };
            sample.total_ms *= slower;
            (times.primary_ms, times.secondary_ms) = (times.primary_ms * slower, times.secondary_ms * slower);
            sample
        });
        assert!(outcome.confirmed(), "seed {seed}, {accidents}: {outcome:?} {:?}", search.samples());
    }
}
