//! The daemon's logic through scripted days, in virtual time, on a model of a machine. Deterministic: a seed is a life.
//!
//! ```text
//! cargo test -p fusiond --test simulation                            a few seeds of 3 days, and those that once failed
//! cargo test -p fusiond --test simulation -- --seeds 20 --days 30    more of it (`make simulate`)
//! cargo test -p fusiond --test simulation -- --seed 7 --days 30      one, again; with --seeds N so many from there on
//! ```
//!
//! What must hold, whatever happens (morning, battery, hot afternoon with clients, memory pressure, sleep, clock jumps, upgrades, worker crashes, a full
//! disk, crashes of the daemon at any step):
//!
//! * the duty budget is never exceeded, by a count of its own;
//! * nothing is measured while a client is busy; what was submitted before is over within a submission;
//! * what exploring may cost clients is never more than 1 % of their time and what was given at first, less what it cost since the first daemon, by their reports; a restart adds nothing;
//! * nothing that was acknowledged is lost;
//! * while a daemon runs, the served rows of a chunk lose less than 2 % against the best, in truth, after at most 5 split calls (of any number of rows) under new conditions or
//!   with a new daemon; and the split calls of a day lose at most 1.5 % in the mean. Calls that run stock don't count: they use no ratio, and show nothing of the secondary unit,
//!   so that whoever sees only those knows nothing of the balance;
//! * while no daemon runs, a client explores nothing and is served exactly the rows that it was told last; under the same conditions they lose at most 2 % more than when the
//!   daemon went (ten seconds of heat, until the next one comes). Under other conditions nobody follows: what that costs only the gate bounds;
//! * a machine that is left alone knows all that is wanted within `dwell + (work - credit) / duty + work`;
//! * in the end everything wanted was measured; under conditions that come and go nothing is, and no shape again and again.
//!
//! Real are: the planner, budget and canary's judgement with the texts of their files, the calibration of a shape ([`fusiond::measure::Calibration`]) and its plan, live lines,
//! knowledge, lookup, table, the daemon's gates and lease book, recently used layers and wants; and of the client its table, its gates and regions
//! ([`fusion_client::attach::LocalCopy`]), which are told the very messages of the wire. Modelled are: the machine and its sensors ([`world`]); the loop around the planner
//! ([`run`], for `recalibration::driver` and `jobs`, which are tasks) and which calls a job makes ([`job`]: the canary's product is in half precision); which messages are sent when
//! ([`daemon`], for the service's stream: nothing is late, lost or merged); which of its products a client samples ([`client`]: one of each layer a call, the units waited for
//! first in turn unless one is behind, never the first after a change of arm); the disk ([`disk`]; the store is the in-memory one). Nobody reads a snapshot file: who starts without a daemon runs stock.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, missing_docs, reason = "the modules of one program")]

mod bursts;
mod checks;
mod client;
mod daemon;
mod disk;
mod figures;
mod job;
mod run;
mod script;
mod world;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use libtest_mimic::{Arguments, Trial};

/// Seeds and days of a plain `cargo test`.
const PLAIN_SEEDS: u64 = 5;
const PLAIN_DAYS: u32 = 3;
/// Seeds that failed once, and the days they took.
const KEPT: &[(u64, u32)] = &[
    // One accident decided a comparison: a false loss, which nobody noticed, since what isn't split isn't observed.
    (8, 26),
    // A first call after a change of arm told one unit's time: lines that were off by 8 %, and a choice that stayed off.
    (16, 5),
    // Two accidents in a row, on the last calls of a budget: a clear gain was given up for them.
    (76, 24),
    // Clients were told of no change below 2 % of each unit: together 3 % too many rows, for good.
    (8, 20),
    // An accident that showed one unit only moved its line alone, and the next calls hid that unit.
    (80, 30),
    (85, 17),
    (115, 16),
    // An accident of both units, of which only one was seen to be over.
    (106, 18),
    // Two accidents in a row at the rows to confirm: a false loss.
    (22, 6),
    // An accident in the first call, and the next calls hid the unit that it had slowed.
    (35, 16),
    // Two accidents of one layer, at the first sight of a unit and in the first call that showed both; in between and afterwards the one that was behind hid it.
    (109, 28),
    // Three accidents on the calls of a split, while the first calls after a change beat stock: a false loss.
    (1062, 3),
    // A first call under new conditions that showed the secondary unit alone: a layer wasn't split any more, and so not observed.
    (2087, 19),
    (2181, 22),
    // A daemon died between two bursts, and what running calls had corrected was lost with it.
    (1087, 16),
];

fn main() -> ExitCode {
    let number = |flag: &str| -> Option<u64> {
        let value = std::env::args().skip_while(|argument| argument != flag).nth(1)?;
        Some(value.parse().unwrap_or_else(|_| panic!("{flag} takes a number, not '{value}'")))
    };
    let days = number("--days").map(|days| u32::try_from(days).unwrap());
    match (number("--seed"), number("--seeds")) {
        (Some(seed), seeds) => simulate(seed, seeds.unwrap_or(1), days.unwrap_or(PLAIN_DAYS)),
        (None, Some(seeds)) => simulate(0, seeds, days.unwrap_or(PLAIN_DAYS)),
        (None, None) => libtest_mimic::run(&Arguments::from_args(), trials()).exit_code(),
    }
}

fn trials() -> Vec<Trial> {
    let plain = (0..PLAIN_SEEDS).map(|seed| (seed, PLAIN_DAYS));
    let trial = |(seed, days): (u64, u32)| {
        Trial::test(format!("seed_{seed}_of_{days}_days"), move || {
            let violations = run::run(days, seed).violations;
            if violations.is_empty() { Ok(()) } else { Err(violations.join("\n").into()) }
        })
    };
    plain.chain(KEPT.iter().copied()).map(trial).collect()
}

/// Runs seeds on all cores, and prints what came of them in their order.
fn simulate(first: u64, seeds: u64, days: u32) -> ExitCode {
    let began = Instant::now();
    let (next, mut reports) = (AtomicU64::new(0), Vec::new());
    std::thread::scope(|scope| {
        let work = || {
            let mut done = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return done;
                }
                done.push((first + seed, run::run(days, first + seed)));
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            reports.extend(thread.join().expect("no seed panics"));
        }
    });
    reports.sort_by_key(|(seed, _)| *seed);
    let (mut failed, mut recoveries) = (0, [0; figures::MOST_COUNTED]);
    for (seed, report) in &reports {
        let verdict = if report.violations.is_empty() { "passed" } else { "FAILED" };
        println!("seed {seed}, {} modelled, {days} days: {verdict}", report.chip);
        report.figures.print();
        recoveries.iter_mut().zip(report.figures.recoveries).for_each(|(sum, changes)| *sum += changes);
        for violation in &report.violations {
            println!("  violated: {violation}");
        }
        failed += usize::from(!report.violations.is_empty());
    }
    println!(
        "changes after which the served rows were right, by split calls: {}",
        figures::by_calls(&recoveries)
    );
    println!("{} simulated days in {:.1} s", u64::from(days) * seeds, began.elapsed().as_secs_f64());
    println!("{} seeds passed, {failed} failed", reports.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
