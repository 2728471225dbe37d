//! A worker without MLX. Its times are those of a perfect machine: the secondary unit takes twice as long per row, so the right share is a
//! third; stock takes 10 µs a row. A script makes it misbehave.

use std::io::{Read, Write, stdin, stdout};
use std::thread::sleep;
use std::time::Duration;

use fusion_frames::{FinishNanoseconds, Hello, PROTOCOL, Reply, Request, Timed};

/// Makes the test program a worker; a script follows.
pub const FLAG: &str = "--scripted-worker";

/// Set for a process whose workers the system slows.
pub const THROTTLED: &str = "FUSION_TEST_THROTTLED";

const PRIMARY_NS_PER_ROW: u64 = 10_000;
const SECONDARY_NS_PER_ROW: u64 = 20_000;

/// Scripts: `steady`, `slow` (50 ms a call), `dies` (before the first call), `dies-late` (in the third), `dies-if:FILE` (if the file exists), `hangs`, `old`, `babbles`, `wrong` (product), `refuses` (odd
/// numbers of rows), `hot-if:FILE` (everything is twice as slow if the file exists), `throttled-if:FILE` (the same, where [`THROTTLED`] is set, as for a daemon), `cliff` (the secondary unit is four times slower near a third of 512 rows),
/// `slower-client` (of an engine of a client's; its secondary unit takes 30 µs a row), `slower-impostor` (of another engine still).
pub fn run(script: &str) {
    if script == "babbles" {
        println!("Python 3.11.7 (main) on linux. Type \"help\" for more information.");
        return;
    }
    let mut output = stdout().lock();
    let mut input = stdin().lock();
    fusion_frames::write(&mut output, &Reply::Hello(hello(script))).unwrap();
    let mut rows = 0;
    let mut calls = 0;
    while let Some(request) = fusion_frames::read::<Request>(&mut input).unwrap() {
        if matches!(request, Request::Stock | Request::Split { .. }) {
            calls += 1;
            misbehave(script, calls);
        }
        let reply = answer(script, &request, &mut rows);
        fusion_frames::write(&mut output, &reply).unwrap();
    }
}

fn misbehave(script: &str, calls: u32) {
    match script {
        "slow" => sleep(Duration::from_millis(50)),
        "dies" => die(),
        "dies-late" if calls == 3 => die(),
        "hangs" => {
            // Until it is ended.
            let mut rest = Vec::new();
            let _ = stdin().read_to_end(&mut rest);
            sleep(Duration::from_secs(3600));
        }
        _ if names_a_file(script, "dies-if:") => die(),
        _ => {}
    }
}

/// Whether a script of this kind names a file that exists.
fn names_a_file(script: &str, kind: &str) -> bool {
    script.strip_prefix(kind).is_some_and(|file| std::path::Path::new(file).exists())
}

fn die() -> ! {
    let _ = writeln!(std::io::stderr(), "[METAL] Command buffer execution failed: Insufficient Memory");
    std::process::abort()
}

fn hello(script: &str) -> Hello {
    Hello {
        protocol: if script == "old" { PROTOCOL - 1 } else { PROTOCOL },
        worker_version: "scripted".to_owned(),
        brand: "Scripted Machine".to_owned(),
        gpu_cores: None,
        memory_bytes: 16 << 30,
        model_identifier: "Scripted1,1".to_owned(),
        pair: "development".to_owned(),
        units: units(),
        os_build: "1".to_owned(),
        mlx_version: "0.0.0".to_owned(),
        library_hash: engine(script).to_owned(),
    }
}

/// The hash of the library that a client's worker has; the daemon's own has "0".
fn engine(script: &str) -> &str {
    match script {
        "slower-client" => "client",
        "slower-impostor" => "impostor",
        _ => "0",
    }
}

/// Tells what the daemon gave it, for a test to see.
fn units() -> String {
    match std::env::var(fusion_frames::MEMORY_LIMIT_VARIABLE) {
        Ok(limit) if limit.parse::<u64>().is_ok_and(|limit| limit > 0) => "two scripted units".to_owned(),
        other => format!("two scripted units without a memory limit: {other:?}"),
    }
}

fn answer(script: &str, request: &Request, rows: &mut u64) -> Reply {
    match request {
        Request::Prepare(shape) if script == "refuses" && shape.rows % 2 == 1 => {
            Reply::Refused { reason: "an odd number of rows".to_owned() }
        }
        Request::Prepare(shape) => {
            *rows = u64::from(shape.rows);
            Reply::Prepared { active_bytes: 0 }
        }
        Request::Stock => timed(*rows * PRIMARY_NS_PER_ROW * heat(script), None),
        Request::Split { secondary_rows, .. } => {
            let secondary = u64::from(*secondary_rows);
            let slower = if script == "cliff" && secondary.abs_diff(170) <= 5 { 4 } else { 1 };
            let finish = FinishNanoseconds {
                primary: (*rows - secondary) * PRIMARY_NS_PER_ROW * heat(script),
                secondary: secondary * secondary_ns_per_row(script) * slower * heat(script),
            };
            timed(finish.primary.max(finish.secondary), Some(finish))
        }
        Request::Check { .. } => {
            Reply::Checked { relative_error: if script == "wrong" { 0.5 } else { 1e-7 } }
        }
    }
}

fn secondary_ns_per_row(script: &str) -> u64 {
    if script.starts_with("slower-") { 30_000 } else { SECONDARY_NS_PER_ROW }
}

/// How many times slower the machine is.
fn heat(script: &str) -> u64 {
    let throttled = std::env::var_os(THROTTLED).is_some() && names_a_file(script, "throttled-if:");
    if throttled || names_a_file(script, "hot-if:") { 2 } else { 1 }
}

fn timed(total_ns: u64, finish: Option<FinishNanoseconds>) -> Reply {
    Reply::Timed(Timed { total_ns, finish, run_delay_ns: None })
}
