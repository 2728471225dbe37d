//! System calls of a thread that decides: counted by strace, in a process of their own.

use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fusion_calibrations::gate::ArmSet;
use fusion_calibrations::stats::Interval;
use fusion_client::attach::{Attachment, Basis, Options};

use crate::client::ROWS;
use crate::daemon::program;
use crate::figure::{Figure, Limit};

/// Times that the process turns from idle to busy.
const TRANSITIONS: usize = 5;
/// Calls each time, of no length, and decode steps; and calls so long that the gate takes each in at once.
const SHORT_CALLS: usize = 1000;
const LONG_CALLS: usize = 20;
const LONG: Duration = Duration::from_micros(250);
/// Longer than a client waits before it says that it rests (250 ms), twice.
const PAUSE: Duration = Duration::from_millis(700);
/// Files that aren't there: asking for one is a system call that a trace shows.
const BEGIN: &str = "/fusion-bench-begin";
const END: &str = "/fusion-bench-end";

/// What the traced process does: busy, idle, busy ... between marks.
pub(crate) fn decide_traced(options: &Options) -> Result<()> {
    let attachment = Attachment::attach(options.clone());
    ensure!(attachment.basis() == Basis::Attached, "the daemon does not answer");
    let layer = options.layers.first().and_then(|layer| attachment.layer(*layer)).context("no layer")?;
    let region = attachment.region("traced", ArmSet::mlx_lm(), &[(layer, 16)], 10.0);
    // The first call of so many rows prepares its bucket.
    region.begin(ROWS).end();
    for _ in 0..TRANSITIONS {
        std::thread::sleep(PAUSE);
        let _ = Path::new(BEGIN).read_link();
        for _ in 0..SHORT_CALLS {
            let call = region.begin(black_box(ROWS));
            black_box((call.arm(), attachment.secondary_rows(layer, ROWS)));
            call.end();
            region.begin(black_box(1)).end();
        }
        for _ in 0..LONG_CALLS {
            let call = region.begin(black_box(ROWS));
            let begun = Instant::now();
            while begun.elapsed() < LONG {
                std::hint::spin_loop();
            }
            call.end();
        }
        let _ = Path::new(END).read_link();
    }
    Ok(())
}

/// Traces that process.
pub(crate) fn measure(options: &Options) -> Result<Figure> {
    let name = "system calls from idle to busy and through 2,020 calls, most";
    let limit = Limit::AtMost(1.0);
    let directory = tempfile::tempdir()?;
    let trace = directory.path().join("trace");
    let mut command = Command::new("strace");
    command.arg("-f").arg("-o").arg(&trace).arg(program("fusion-bench")?);
    command.arg("--decide-traced").arg(options.socket.as_path()).stdin(Stdio::null());
    let unknown = |why: String| Ok(Figure::unknown(name, "", limit).note(why));
    match command.output() {
        Err(error) => return unknown(format!("strace can't be started: {error}")),
        Ok(output) if !output.status.success() => {
            let said = String::from_utf8_lossy(&output.stderr);
            return unknown(format!("strace failed: {}", said.lines().last().unwrap_or_default()));
        }
        Ok(_) => {}
    }
    let found = between_marks(&std::fs::read_to_string(&trace).context("reading what strace wrote")?);
    let Some(most) = found.iter().map(Vec::len).max().filter(|_| found.len() == TRANSITIONS) else {
        return unknown(format!("{} of {TRANSITIONS} stretches are in the trace", found.len()));
    };
    let mut names: Vec<&str> = found.iter().flatten().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let figure = Figure::new(name, Interval::exact(most as f64), "", limit, TRANSITIONS, None);
    Ok(figure.note(if names.is_empty() { "none".to_owned() } else { names.join(", ") }))
}

/// The names of the system calls that the marking thread made between each pair of marks. `trace` is what `strace -f -o` writes: thread, call.
fn between_marks(trace: &str) -> Vec<Vec<String>> {
    let mut stretches = Vec::new();
    let mut open: Option<(&str, Vec<String>)> = None;
    for line in trace.lines() {
        let Some((thread, call)) = line.trim_start().split_once(' ') else { continue };
        let call = call.trim_start();
        // Signals and ends of threads, and second halves of calls that were interrupted by others.
        if call.starts_with(['-', '+', '<']) {
            continue;
        }
        if call.contains(BEGIN) {
            open = Some((thread, Vec::new()));
        } else if call.contains(END) {
            stretches.extend(open.take().map(|(_, calls)| calls));
        } else if let Some((marking, calls)) = &mut open
            && *marking == thread
        {
            calls.push(call.split('(').next().unwrap_or(call).to_owned());
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marking_threads_calls_between_marks_count() {
        let trace = "\
11 openat(AT_FDCWD, \"/lib\", O_RDONLY) = 3
11 statx(AT_FDCWD, \"/fusion-bench-begin\", AT_STATX_SYNC_AS_STAT) = -1 ENOENT
11 write(7, \"\\1\", 8 <unfinished ...>
12 epoll_wait(3, [], 64, 250) = 0
11 <... write resumed>) = 8
12 futex(0x1, FUTEX_WAKE_PRIVATE, 1) = 1
11 --- SIGCHLD ---
11 statx(AT_FDCWD, \"/fusion-bench-end\", AT_STATX_SYNC_AS_STAT) = -1 ENOENT
11 clock_nanosleep(CLOCK_REALTIME, 0, {tv_sec=0}, NULL) = 0
11 statx(AT_FDCWD, \"/fusion-bench-begin\", AT_STATX_SYNC_AS_STAT) = -1 ENOENT
11 statx(AT_FDCWD, \"/fusion-bench-end\", AT_STATX_SYNC_AS_STAT) = -1 ENOENT
";
        assert_eq!(between_marks(trace), [vec!["write".to_owned()], vec![]]);
    }
}
