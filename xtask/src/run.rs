//! `cargo xtask run`: from a checkout to a daemon that serves measured ratios.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{package, process, programs};

/// What is calibrated: small enough for a first try, large enough that splitting shows.
const MODEL: &str = "qwen2.5-0.5b";
const ROWS: &str = "512";
/// f16 and bf16 products bypass BLAS on MLX's Linux back end and would show nothing.
const FORMAT: &str = "f32";
/// A daemon answers within a fraction of a second; a loaded machine may take longer.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Builds in release, starts the daemon of this user if none runs, calibrates, and shows what is known.
///
/// # Errors
/// If a step fails, with the step and its own words. The daemon is left running in any case.
pub(crate) fn run() -> Result<()> {
    let programs = programs::released()?;
    // 'fusionctl install' takes them along.
    package::documents(&programs, &programs)?;
    let fusionctl = programs.join("fusionctl");
    if is_running(&fusionctl) {
        eprintln!("fusiond is running already");
    } else if succeeds(&fusionctl, "start") {
        eprintln!("the installed fusiond was started");
    } else {
        start(&programs)?;
    }
    let calibrate = ["calibrate", MODEL, "--rows", ROWS, "--format", FORMAT];
    process::show(Command::new(&fusionctl).args(calibrate), "calibrating")?;
    println!();
    process::show(Command::new(&fusionctl).arg("status"), "asking for the status")?;
    println!("\nfusiond keeps running. Stop it:  {} stop", fusionctl.display());
    Ok(())
}

fn is_running(fusionctl: &Path) -> bool {
    succeeds(fusionctl, "status")
}

fn succeeds(fusionctl: &Path, verb: &str) -> bool {
    let quietly = Command::new(fusionctl).arg(verb).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quietly.is_ok_and(|status| status.success())
}

/// Starts the daemon in a process group of its own, so that the terminal's Ctrl-C doesn't reach it.
fn start(programs: &Path) -> Result<()> {
    use std::os::unix::process::CommandExt;

    let log = programs.join("fusiond.log");
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut child = Command::new(programs.join("fusiond"))
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0)
        .spawn()
        .context("starting fusiond")?;
    wait_until_running(&mut child, &programs.join("fusionctl"), &log)?;
    eprintln!("fusiond runs as process {}", child.id());
    Ok(())
}

fn wait_until_running(child: &mut Child, fusionctl: &Path, log: &Path) -> Result<()> {
    let start = Instant::now();
    while !is_running(fusionctl) {
        if let Some(status) = child.try_wait()? {
            let said = fs::read_to_string(log).unwrap_or_default();
            bail!("fusiond ended at once ({status}):\n{said}");
        }
        if start.elapsed() > START_LIMIT {
            bail!("fusiond does not answer after {} s; its log: {}", START_LIMIT.as_secs(), log.display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
