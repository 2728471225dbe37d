//! The daemon's logic through scripted days, in virtual time: its real planner, search, live lines, lookup, gate, table and knowledge, on a model of
//! a machine. Deterministic: a seed is a life.
//!
//! ```text
//! cargo test -p fusiond --test simulation                            a few seeds of 3 days, and those that once failed
//! cargo test -p fusiond --test simulation -- --seeds 20 --days 30    more of it (`make simulate`)
//! cargo test -p fusiond --test simulation -- --seed 7 --days 30      one, again
//! ```
//!
//! What must hold, whatever happens (morning, battery, hot afternoon with clients, memory pressure, sleep, clock jumps, upgrades, worker crashes, a full
//! disk, crashes of the daemon at any step):
//!
//! * the duty budget is never exceeded, by a count of its own;
//! * nothing is measured while a client is busy; what was submitted before is over within a submission;
//! * nothing that was acknowledged is lost;
//! * where a region is split and the daemon runs, the served rows lose less than 2 % against the best, in truth, after at most 5 such calls under new conditions
//!   (8 after one change in 200: the model's accidents), and at most 1.5 % in the mean of a day;
//! * a machine that is left alone knows all that is wanted within `dwell + (work - credit) / duty + work`;
//! * in the end everything wanted was measured; under conditions that come and go nothing is, and no shape again and again.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, missing_docs, reason = "the modules of one program")]

mod bursts;
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
];

fn main() -> ExitCode {
    let number = |flag: &str| -> Option<u64> {
        let value = std::env::args().skip_while(|argument| argument != flag).nth(1)?;
        Some(value.parse().unwrap_or_else(|_| panic!("{flag} takes a number, not '{value}'")))
    };
    let days = number("--days").map(|days| u32::try_from(days).unwrap());
    match (number("--seed"), number("--seeds")) {
        (Some(seed), _) => simulate(seed, 1, days.unwrap_or(PLAIN_DAYS)),
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
    let mut failed = 0;
    let mut all = [0u64; 16];
    for (_, report) in &reports { for (a, b) in all.iter_mut().zip(report.figures.histogram) { *a += b; } }
    println!("histogram {all:?}");
    for (seed, report) in &reports {
        let verdict = if report.violations.is_empty() { "passed" } else { "FAILED" };
        println!("seed {seed}, {} modelled, {days} days: {verdict}", report.chip);
        report.figures.print();
        for violation in &report.violations {
            println!("  violated: {violation}");
        }
        failed += usize::from(!report.violations.is_empty());
    }
    println!("{} simulated days in {:.1} s", u64::from(days) * seeds, began.elapsed().as_secs_f64());
    println!("{} seeds passed, {failed} failed", reports.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
