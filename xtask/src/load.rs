//! `cargo xtask load`: shows that the daemon steps aside for other programs' work. A daemon of its own wants shapes measured; processors are loaded beside it, and let
//! go again.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::programs;

/// How long a change may take to show: looks are caused by questions, pressure is an average of 10 s, and a refusal holds for a minute.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the daemon is to know.
const SHAPES: &str = "format = 'f32'\nshapes = ['512x1024x1024', '512x1024x2048', '512x2048x1024']\n";
const CONFIG: &str = "[measure]\nsettle_seconds = 0\nquiet_seconds = 0\n";

/// Plays it through and prints what the status says.
///
/// # Errors
/// If something doesn't happen in time, with what the status said last.
pub(crate) fn run() -> Result<()> {
    let programs = programs::released()?;
    let place = std::env::temp_dir().join(format!("fusiond-load-{}", std::process::id()));
    std::fs::create_dir_all(place.join("state/config"))?;
    let result = play(&programs, &place);
    // Made here, by this process, a moment ago.
    std::fs::remove_dir_all(&place).with_context(|| format!("cannot remove {}", place.display()))?;
    result
}

fn play(programs: &Path, place: &Path) -> Result<()> {
    std::fs::write(place.join("state/config/config.toml"), CONFIG)?;
    let load = Load::start();
    let daemon = Daemon::start(programs, place)?;
    println!("{} threads spin; the daemon wants 3 shapes", load.threads.len());
    daemon.pause("pause")?;
    std::fs::create_dir_all(place.join("state/config/shapes"))?;
    std::fs::write(place.join("state/config/shapes/demo.toml"), SHAPES)?;
    daemon.pause("resume")?;
    let start = Instant::now();
    daemon.wait_for("the planner holds back", |status| decision(status).contains("other programs use"))?;
    println!("  seen after {:.1} s", start.elapsed().as_secs_f64());
    load.stop()?;
    println!("the threads are gone");
    let start = Instant::now();
    daemon.wait_for("measuring goes on", |status| {
        status.pointer("/store/current_estimates").and_then(Value::as_u64).unwrap_or(0) > 0
    })?;
    println!("  after {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn decision(status: &Value) -> &str {
    status.pointer("/planner/decision").and_then(Value::as_str).unwrap_or_default()
}

/// One spinning thread more than there are processors: somebody always waits.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = (0..=processors)
            .map(|_| {
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        Self { stop, threads }
    }

    fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            if thread.join().is_err() {
                bail!("a spinning thread panicked");
            }
        }
        Ok(())
    }
}

/// A daemon of the demonstration's own, ended when dropped.
struct Daemon {
    child: Child,
    fusionctl: PathBuf,
    socket: PathBuf,
}

impl Daemon {
    fn start(programs: &Path, place: &Path) -> Result<Self> {
        let socket = place.join("fusiond.sock");
        let child = Command::new(programs.join("fusiond"))
            .arg("--socket")
            .arg(&socket)
            .arg("--state-dir")
            .arg(place.join("state"))
            .args(["--worker-arg", "--pair", "--worker-arg", "development"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting fusiond")?;
        let daemon = Self { child, fusionctl: programs.join("fusionctl"), socket };
        daemon.wait_for("the daemon answers", |_| true)?;
        Ok(daemon)
    }

    fn status(&self) -> Option<Value> {
        let output = Command::new(&self.fusionctl)
            .args(["status", "--json"])
            .env("FUSION_SOCKET", &self.socket)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        serde_json::from_slice(&output.stdout).ok()
    }

    fn pause(&self, verb: &str) -> Result<()> {
        let status = Command::new(&self.fusionctl)
            .arg(verb)
            .env("FUSION_SOCKET", &self.socket)
            .stdout(Stdio::null())
            .status()
            .with_context(|| format!("running 'fusionctl {verb}'"))?;
        if status.success() { Ok(()) } else { bail!("'fusionctl {verb}' failed: {status}") }
    }

    /// Prints what the planner says whenever it says something else, until `condition` holds.
    fn wait_for(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Result<()> {
        let (start, mut last) = (Instant::now(), String::new());
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.status() {
                let said = decision(&status);
                if said != last && !said.is_empty() {
                    println!("  {said}");
                    said.clone_into(&mut last);
                }
                if condition(&status) {
                    println!("{what}");
                    return Ok(());
                }
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        bail!("{what}: not within {} s; the planner said last: {last}", PATIENCE.as_secs())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
