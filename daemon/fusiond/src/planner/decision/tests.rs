use std::time::Duration;

use super::*;
use crate::planner::examples::LINES;
use crate::planner::inputs::Load;
use crate::planner::policy::Share;
use crate::planner::staleness::Known;
use crate::planner::{BudgetState, Planner, PlannerState};
use fusion_calibrations::lines::Lines;
use fusion_calibrations::shape::{Layout, WeightFormat};
use proptest::prelude::*;

const AC: Conditions = Conditions {
    thermal: Thermal::Nominal,
    memory: Memory::Normal,
    power: Power::Ac,
    low_power_mode: LowPowerMode::Off,
};

fn shape(rows: u32) -> Shape {
    Shape::parse(&format!("{rows}x4096x4096"), WeightFormat::F16, Layout::default()).unwrap()
}

fn want(rows: u32) -> Want {
    Want { shape: shape(rows), interest: Interest::Attached, known: Known::Prior(LINES) }
}

fn at(seconds: u64) -> Moment {
    Moment::from_unix_ms(1_782_914_600_000 + 1000 * seconds)
}

/// Conditions that held for a minute at second 60.
fn planner(credit_ms: f64, conditions: Conditions) -> Planner {
    let state = PlannerState { budget: BudgetState { credit_ms } };
    Planner::new(Policy::default(), Some(state), at(0), conditions)
}

fn inputs(wants: &[Want]) -> Inputs<'_> {
    Inputs {
        now: at(60),
        clients: ClientActivity::Idle { since: None },
        load: Load::default(),
        available_memory_bytes: None,
        lock: Lock::Held,
        worker: WorkerState::Free,
        hold: Hold::Released,
        wants,
    }
}

fn refusal(planner: &Planner, inputs: &Inputs<'_>) -> (String, Option<Moment>) {
    match planner.decide(inputs) {
        Decision::NotNow { because, until } => (because.to_string(), until),
        Decision::Run(job) => panic!("runs {job}"),
    }
}

#[test]
fn an_idle_machine_measures_what_is_wanted() {
    let wants = [want(2000)];
    let Decision::Run(job) = planner(5000.0, AC).decide(&inputs(&wants)) else { panic!() };
    assert_eq!((job.shape, job.conditions), (shape(2000), AC));
    // 12 calls of 20 ms, each a quarter longer than predicted, twice.
    assert!((job.allowance_ms - 600.0).abs() < 1e-9);
    assert_eq!(
        job.to_string(),
        "2000x4096x4096 f16 nk: only the chip's prior is known, and an attached client runs it"
    );
    let nothing_known = [Want { known: Known::Nothing, ..want(2000) }];
    let Decision::Run(job) = planner(5000.0, AC).decide(&inputs(&nothing_known)) else { panic!() };
    assert!((job.allowance_ms - 5600.0).abs() < 1e-6, "{}", job.allowance_ms);
}

#[test]
fn every_obstacle_is_named_with_its_end() {
    let wants = [want(2000)];
    let rich = planner(5000.0, AC);
    let look_again = Some(at(120));
    for (inputs, because, until) in [
        (Inputs { wants: &[], ..inputs(&wants) }, "nobody wants anything measured", None),
        (
            Inputs { clients: ClientActivity::Busy { pid: 4711, others: 0 }, ..inputs(&wants) },
            "a client is busy (pid 4711)",
            None,
        ),
        (
            Inputs { clients: ClientActivity::Busy { pid: 4711, others: 2 }, ..inputs(&wants) },
            "3 clients are busy (pid 4711 and others)",
            None,
        ),
        (
            Inputs { clients: ClientActivity::Idle { since: Some(at(55)) }, ..inputs(&wants) },
            "a client was busy just now",
            Some(at(65)),
        ),
        (
            Inputs { hold: Hold::Paused { until: Some(at(90)) }, ..inputs(&wants) },
            "measuring is paused ('fusionctl resume' ends that)",
            Some(at(90)),
        ),
        (
            Inputs { hold: Hold::Throttled, ..inputs(&wants) },
            "a self-test found the daemon's worker throttled ('fusionctl doctor' tests again)",
            None,
        ),
        (
            Inputs { lock: Lock::Elsewhere(Some("pid 12".to_owned())), ..inputs(&wants) },
            "another fusiond of this machine measures (pid 12)",
            look_again,
        ),
        (Inputs { worker: WorkerState::Measuring, ..inputs(&wants) }, "a job runs", None),
        (
            Inputs { load: Load { gpu: Some(0.4), ..Load::default() }, ..inputs(&wants) },
            "other programs use 40 % of the GPU",
            look_again,
        ),
        (
            Inputs { load: Load { cpu: Some(0.3), ..Load::default() }, ..inputs(&wants) },
            "other programs use 30 % of the CPU",
            look_again,
        ),
        (
            Inputs { available_memory_bytes: Some(1 << 20), ..inputs(&wants) },
            "2000x4096x4096 f16 nk needs 189 MiB to be available, others included, and 1 MiB are",
            look_again,
        ),
    ] {
        assert_eq!(refusal(&rich, &inputs), (because.to_owned(), until));
    }
    let ended = Inputs { hold: Hold::Paused { until: Some(at(60)) }, ..inputs(&wants) };
    assert!(matches!(rich.decide(&ended), Decision::Run(_)));
    for (conditions, because) in [
        (Conditions { low_power_mode: LowPowerMode::On, ..AC }, "low-power mode is on"),
        (Conditions { thermal: Thermal::Heavy, ..AC }, "the machine is hot (thermal pressure heavy)"),
        (Conditions { thermal: Thermal::Trapping, ..AC }, "the machine is hot (thermal pressure trapping)"),
        (Conditions { memory: Memory::Critical, ..AC }, "the machine is out of memory"),
    ] {
        assert_eq!(refusal(&planner(5000.0, conditions), &inputs(&wants)), (because.to_owned(), look_again));
    }
}

#[test]
fn conditions_must_dwell_and_flapping_ones_never_do() {
    let wants = [want(2000)];
    let mut planner = planner(5000.0, AC);
    let battery = Conditions { power: Power::Battery, ..AC };
    for second in (60..600).step_by(20) {
        planner.see(at(second), if second % 40 == 20 { battery } else { AC });
        let (because, until) = refusal(&planner, &Inputs { now: at(second + 19), ..inputs(&wants) });
        assert!(because.starts_with("the machine's state just changed"), "{because}");
        assert_eq!(until, Some(at(second + 30)));
    }
    assert!(matches!(planner.decide(&Inputs { now: at(700), ..inputs(&wants) }), Decision::Run(_)));
    planner.clock_jumped(at(700));
    assert_eq!(refusal(&planner, &Inputs { now: at(701), ..inputs(&wants) }).1, Some(at(730)));
}

#[test]
fn the_budget_is_waited_for_and_a_cheaper_shape_does_not_jump_the_queue() {
    // Up to 300 ms and 150 ms.
    let wants = [want(2000), Want { interest: Interest::Recent, ..want(1000) }];
    let planner = planner(-400.0, AC);
    let (because, until) = refusal(&planner, &inputs(&wants));
    assert_eq!(because, "the duty budget has 0.2 s, and 2000x4096x4096 f16 nk takes up to 0.3 s");
    // 10 ms a second: from -400 to 300 ms in 70 s, and a ms for the rounding.
    let until = until.unwrap();
    assert!(until.since(at(70)) <= Duration::from_millis(2), "{until}");
    let ran = planner.decide(&Inputs { now: until, ..inputs(&wants) });
    assert!(matches!(ran, Decision::Run(job) if job.shape == shape(2000)), "{ran}");
}

#[test]
fn what_can_never_be_afforded_is_said_and_blocks_nobody() {
    let battery = Conditions { power: Power::Battery, ..AC };
    let dear = Lines { stock_ms_per_row: 1.0, ..LINES };
    let wants = [Want { known: Known::Prior(dear), ..want(2000) }];
    let (because, until) = refusal(&planner(3600.0, battery), &inputs(&wants));
    assert_eq!(
        (because.as_str(), until),
        (
            "2000x4096x4096 f16 nk takes up to 30.0 s, and no more than 3.6 s are ever saved up under this power",
            None
        )
    );
    let both = [wants[0], Want { interest: Interest::Configured, ..want(1000) }];
    let ran = planner(3600.0, battery).decide(&inputs(&both));
    assert!(matches!(ran, Decision::Run(job) if job.shape == shape(1000)));
    let mut miser = planner(3600.0, battery);
    miser.set_policy(at(1), Policy { duty_on_battery: Share::NONE, ..Policy::default() });
    assert_eq!(refusal(&miser, &inputs(&wants)), ("the configured duty on battery is 0".to_owned(), None));
}

#[test]
fn failures_back_off_are_told_and_end() {
    let wants = [want(2000)];
    let mut planner = planner(5000.0, AC);
    let crash = || Cause::Failed("signal 6".to_owned());
    planner.failed(at(60), Subject::Shape(shape(2000)), crash());
    planner.failed(at(60), Subject::Shape(shape(2000)), crash());
    let (because, until) = refusal(&planner, &inputs(&wants));
    assert_eq!(because, "measuring 2000x4096x4096 f16 nk failed 2 times in a row: signal 6");
    assert_eq!(until, Some(at(660)));
    assert_eq!(planner.troubles().count(), 1);
    let other = [want(2000), want(1000)];
    assert!(matches!(planner.decide(&inputs(&other)), Decision::Run(job) if job.shape == shape(1000)));
    planner.failed(at(60), Subject::Worker, Cause::Failed("there is no program".to_owned()));
    let told = refusal(&planner, &inputs(&other));
    assert_eq!(told, ("the worker failed: there is no program".to_owned(), Some(at(360))));
    planner.engine_changed();
    assert!(matches!(planner.decide(&inputs(&wants)), Decision::Run(_)));
}

#[test]
fn a_daemon_that_dies_in_a_job_has_paid_for_all_of_it() {
    let wants = [want(2000)];
    let planner = planner(1000.0, AC);
    let Decision::Run(job) = planner.decide(&inputs(&wants)) else { panic!() };
    let kept = planner.state_during(at(60), &job);
    assert!((kept.budget.credit_ms - (1600.0 - 600.0)).abs() < 1e-6, "{kept:?}");
    let text = serde_json::to_string(&kept).unwrap();
    assert_eq!(serde_json::from_str::<PlannerState>(&text).unwrap(), kept);
}

/// Any state of the machine, most of them calm.
fn any_conditions() -> impl Strategy<Value = Conditions> {
    let calm = 3u32;
    (
        prop_oneof![calm => Just(Thermal::Nominal), 1 => prop::sample::select(Thermal::ALL)],
        prop_oneof![calm => Just(Memory::Normal), 1 => prop::sample::select(Memory::ALL)],
        prop::sample::select(Power::ALL),
        prop_oneof![calm => Just(LowPowerMode::Off), 1 => Just(LowPowerMode::On)],
    )
        .prop_map(|(thermal, memory, power, low_power_mode)| Conditions {
            thermal,
            memory,
            power,
            low_power_mode,
        })
}

fn any_wants() -> impl Strategy<Value = Vec<Want>> {
    let one = (1u32..4000, 0u8..3, any::<bool>()).prop_map(|(rows, interest, prior)| Want {
        shape: shape(rows),
        interest: [Interest::Configured, Interest::Recent, Interest::Attached][usize::from(interest)],
        known: if prior { Known::Prior(LINES) } else { Known::Nothing },
    });
    prop::collection::vec(one, 0..6)
}

prop_compose! {
    fn any_question()(
        conditions in any_conditions(),
        wants in any_wants(),
        held_s in 0u64..100,
        credit_ms in -500.0f64..3000.0,
        busy in prop::bool::weighted(0.2),
        idle_s in prop::option::of(0u64..100),
        gpu in prop::option::of(0.0f64..0.1),
        available in prop::option::of(0u64..1 << 30),
        held in prop::bool::weighted(0.8),
        free in prop::bool::weighted(0.8),
        paused in prop::bool::weighted(0.2),
    ) -> (Planner, Inputs<'static>, u64) {
        let clients = match busy {
            true => ClientActivity::Busy { pid: 1, others: 0 },
            false => ClientActivity::Idle { since: idle_s.map(|ago| at(200 - ago)) },
        };
        let state = PlannerState { budget: BudgetState { credit_ms } };
        let planner = Planner::new(Policy::default(), Some(state), at(200 - held_s), conditions);
        let inputs = Inputs {
            now: at(200),
            clients,
            load: Load { gpu, cpu: None },
            available_memory_bytes: available,
            lock: if held { Lock::Held } else { Lock::Elsewhere(None) },
            worker: if free { WorkerState::Free } else { WorkerState::Measuring },
            hold: if paused { Hold::Paused { until: None } } else { Hold::Released },
            wants: wants.leak(),
        };
        (planner, inputs, held_s)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_job_runs_only_where_it_may((planner, inputs, held_s) in any_question()) {
        let policy = planner.policy().clone();
        match planner.decide(&inputs) {
            Decision::Run(job) => {
                let conditions = job.conditions;
                match inputs.clients {
                    ClientActivity::Busy { .. } => prop_assert!(false, "a client is busy"),
                    ClientActivity::Idle { since } => {
                        prop_assert!(since.is_none_or(|since| inputs.now.since(since) >= policy.quiet));
                    }
                }
                prop_assert!(conditions.thermal < Thermal::Heavy);
                prop_assert!(conditions.memory != Memory::Critical);
                prop_assert!(conditions.low_power_mode != LowPowerMode::On);
                prop_assert!(held_s >= 30);
                prop_assert!(inputs.lock == Lock::Held && inputs.worker == WorkerState::Free);
                prop_assert!(inputs.hold == Hold::Released);
                prop_assert!(inputs.load.gpu.is_none_or(|share| share <= policy.idle_gpu));
                let fits = |available: u64| job.shape.working_set_bytes() * 2 <= available;
                prop_assert!(inputs.available_memory_bytes.is_none_or(fits));
                prop_assert!(job.allowance_ms > 0.0 && job.allowance_ms <= planner.credit_ms(inputs.now));
                prop_assert!(inputs.wants.iter().any(|want| want.shape == job.shape));
            }
            Decision::NotNow { until, because } => {
                prop_assert!(until.is_none_or(|until| until > inputs.now), "{} {:?}", because, until);
                prop_assert!(!because.to_string().is_empty());
            }
        }
    }

    #[test]
    fn more_credit_never_refuses((planner, inputs, _) in any_question(), more_ms in 0.0f64..50_000.0) {
        let Decision::Run(job) = planner.decide(&inputs) else { return Ok(()) };
        let mut richer = planner.clone();
        let credit_ms = planner.credit_ms(inputs.now) + more_ms;
        richer.budget = Budget::restore(
            Some(BudgetState { credit_ms }),
            inputs.now,
            planner.policy(),
            planner.policy().duty(job.conditions),
        );
        let Decision::Run(other) = richer.decide(&inputs) else { return Err(TestCaseError::fail("refused")) };
        prop_assert_eq!(other.shape, job.shape);
        prop_assert!(other.allowance_ms >= job.allowance_ms);
    }

    /// Whatever an answer waits for that time alone brings is there when it said, or something else is in the way by then.
    #[test]
    fn until_is_honest((planner, inputs, _) in any_question()) {
        let Decision::NotNow { because, until: Some(until) } = planner.decide(&inputs) else { return Ok(()) };
        let then = planner.decide(&Inputs { now: until, ..inputs.clone() });
        if let Decision::NotNow { because: still, .. } = then {
            let passes = matches!(
                because,
                Reason::NoCredit { .. } | Reason::ConditionsSettle(_) | Reason::ClientsPause | Reason::BacksOff { .. }
            );
            let same = std::mem::discriminant(&still) == std::mem::discriminant(&because);
            prop_assert!(!(passes && same), "{} and still {}", because, still);
        }
    }

    /// Whatever the power does, however long calls really take, and though the daemon dies in some of its jobs: what its jobs spend stays
    /// below the full bucket, what the duty earned, and one call.
    #[test]
    fn what_is_decided_keeps_to_the_budget(
        steps in prop::collection::vec((0u64..4000, 0u8..4, 1.0f64..200.0, prop::bool::weighted(0.2)), 1..300),
    ) {
        let policy = Policy::default();
        // It is never fresh, since the calls' results go nowhere.
        let wants = [want(4000), Want { known: Known::Nothing, ..want(1000) }];
        let mut planner = Planner::new(policy.clone(), None, at(0), AC);
        let (mut now, mut duty) = (at(0), policy.duty(AC));
        let (mut allowed_ms, mut spent_ms, mut longest_ms) = (planner.credit_ms(now), 0.0, 0.0f64);
        for (elapsed_s, power, call_ms, dies) in steps {
            let elapsed = Duration::from_secs(elapsed_s);
            now = now.after(elapsed);
            allowed_ms += duty.of_ms(elapsed);
            let conditions = match power {
                0 | 1 => AC,
                2 => Conditions { power: Power::Battery, ..AC },
                _ => Conditions { low_power_mode: LowPowerMode::On, ..AC },
            };
            planner.see(now, conditions);
            duty = policy.duty(conditions);
            let Decision::Run(job) = planner.decide(&Inputs { now, ..inputs(&wants) }) else { continue };
            let kept = planner.state_during(now, &job);
            planner.started(&job);
            let mut job_ms = 0.0;
            // What `calibrations::search` does with its machine time.
            while job_ms + call_ms <= job.allowance_ms || job_ms == 0.0 {
                job_ms += call_ms;
            }
            spent_ms += job_ms;
            longest_ms = longest_ms.max(call_ms);
            if dies {
                planner = Planner::new(policy.clone(), Some(kept), now, conditions);
            } else {
                planner.spent(now, job_ms);
            }
            prop_assert!(planner.credit_ms(now) >= -longest_ms - 1e-6);
            prop_assert!(spent_ms <= allowed_ms + longest_ms + 1e-6, "{} of {}", spent_ms, allowed_ms);
        }
    }

    /// A clock that ran backwards by whatever: once it is told, the planner measures again after one dwell.
    #[test]
    fn a_clock_set_back_is_harmless(back_s in 0u64..1_000_000_000, credit_ms in 1000.0f64..3000.0) {
        let wants = [want(2000)];
        let mut planner = planner(credit_ms, AC);
        let crash = || Cause::Failed(String::new());
        planner.failed(at(60), Subject::Shape(shape(1000)), crash());
        let now = Moment::from_unix_ms(at(60).unix_ms().saturating_sub(1000 * back_s));
        planner.see(now, AC);
        prop_assert!(planner.credit_ms(now) <= credit_ms + 600.0 + 1e-6);
        let later = now.after(Duration::from_secs(300));
        let clients = ClientActivity::Idle { since: Some(now) };
        let asked = Inputs { now: later, clients, ..inputs(&wants) };
        prop_assert!(matches!(planner.decide(&asked), Decision::Run(_)));
        prop_assert!(planner.backoff.waits(later, Subject::Shape(shape(1000))).is_none());
    }
}

#[test]
fn a_planner_beside_shares_the_budget_and_no_trouble() {
    let mut own = planner(5_000.0, Conditions::default());
    own.failed(at(60), Subject::Worker, Cause::Failed("there is no program".to_owned()));
    let mut beside = own.beside();
    assert_eq!((own.troubles().count(), beside.troubles().count()), (1, 0));
    own.spent(at(60), 2_000.0);
    beside.failed(at(60), Subject::Worker, Cause::Failed("another one".to_owned()));
    beside.follow(&own);
    assert_eq!(beside.credit_ms(at(60)), own.credit_ms(at(60)));
    assert_eq!(beside.troubles().count(), 1, "its own trouble stays");
}
