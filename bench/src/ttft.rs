//! Time to first token of a random model in MLX-LM, by way of `fusionctl bench ttft`.
//!
//! The Python package was built and installed by `cargo xtask bench`. Its MLX gets the BLAS that the worker has, so that both are one engine, and one
//! thread of it for each unit.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use fusion_calibrations::shape::{Layer, Layout, Shape, WeightFormat};
use fusion_calibrations::stats::Interval;
use fusion_frames::{LARGE_PAGES, ONE_BLAS_THREAD};
use serde::Deserialize;

use crate::daemon::{Daemon, program, runtime};
use crate::figure::{Figure, Limit};

/// Lengths of the prompts. The last token of each is no part of its chunk.
const PROMPTS: [u32; 2] = [512, 2048];
/// Inputs and outputs of the layers that the random model's prefill runs (`client/python/tests/random_model.py`).
const LAYERS: [(u32, u32); 4] = [(1024, 1024), (1024, 256), (1024, 4096), (4096, 1024)];
/// Rounds of three calls for each length: an accelerated one between two of stock.
const ROUNDS: &str = "15";
/// Rounds of a first life in which the daemon knows nothing yet: the gate learns what stock takes, as in any program that ran before.
const FIRST_LIFE: &str = "7";
/// Tokens of each call: enough for a decode rate.
const TOKENS: &str = "24";
/// Attempts to calibrate a shape: other programs may disturb all calls of one.
const ATTEMPTS: usize = 3;
/// What the accelerated first token must reach of stock's speed on two equal units.
const SPEED_UP: f64 = 1.2;
/// What decoding must keep of stock's speed.
const DECODE: f64 = 0.995;

#[derive(Deserialize)]
struct Document {
    lengths: Vec<Length>,
}

#[derive(Deserialize)]
struct Length {
    prompt_tokens: u32,
    rounds: usize,
    speed_up: Range,
    decode: Range,
    decode_pairs: usize,
    self_comparison: SelfComparison,
    split_chunks: u32,
    chunks: u32,
}

/// Stock beside stock: whether the machine is quiet.
#[derive(Deserialize)]
struct SelfComparison {
    speed_up: Range,
    decode: Range,
}

#[derive(Deserialize, Clone, Copy)]
struct Range {
    low: f64,
    value: f64,
    high: f64,
}

impl From<Range> for Interval {
    fn from(Range { low, value, high }: Range) -> Self {
        Self { low, value, high }
    }
}

/// Every length: the first token and the decoding after it.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let models = tempfile::tempdir()?;
    let script = root.join("client/python/tests/random_model.py");
    run(python(&root)?.arg(script).arg(models.path()), "making a random model")?;
    let runtime = runtime()?;
    let daemon = runtime.block_on(Daemon::start(&["--pair", "development"]))?;
    let model = models.path().join("f32");
    ask(&root, &daemon, &model, FIRST_LIFE)?;
    runtime.block_on(daemon.calibrate_patiently(&shapes()?, ATTEMPTS))?;
    let document = ask(&root, &daemon, &model, ROUNDS)?;
    Ok(document.lengths.iter().flat_map(judge).collect())
}

fn shapes() -> Result<Vec<Shape>> {
    let mut shapes = Vec::new();
    for prompt in PROMPTS {
        for (inputs, outputs) in LAYERS {
            let layer = Layer::new(inputs, outputs, WeightFormat::F32, Layout::default())?;
            shapes.push(layer.with_rows(prompt - 1)?);
        }
    }
    Ok(shapes)
}

/// A Python with the package, and the BLAS lent to it.
fn python(root: &Path) -> Result<Command> {
    let mut python = Command::new("python3");
    set_up(root, &mut python)?;
    Ok(python)
}

fn set_up(root: &Path, command: &mut Command) -> Result<()> {
    let site = root.join("target/python/site");
    if !site.is_dir() {
        bail!("{} is missing: run this as 'make bench'", site.display());
    }
    command.env("PYTHONPATH", std::env::join_paths([site, root.join(".python/site")])?);
    let blas: PathBuf = root.join("target/python/libfastblas.so");
    if blas.is_file() {
        command.env("LD_PRELOAD", blas.canonicalize()?);
    }
    command.envs([ONE_BLAS_THREAD, LARGE_PAGES]).stdin(Stdio::null());
    Ok(())
}

fn ask(root: &Path, daemon: &Daemon, model: &Path, rounds: &str) -> Result<Document> {
    let mut fusionctl = Command::new(program("fusionctl")?);
    set_up(root, &mut fusionctl)?;
    let prompts = PROMPTS.map(|prompt| prompt.to_string()).join(",");
    fusionctl.arg("--json").arg("--socket").arg(daemon.socket().as_path());
    fusionctl.args(["bench", "ttft", "--prompt-tokens", &prompts, "--rounds", rounds, "--tokens", TOKENS]);
    fusionctl.arg("--model").arg(model).arg("--state-dir").arg(daemon.state());
    fusionctl.args(["--output", "target/bench/ttft.json"]);
    std::fs::create_dir_all("target/bench")?;
    let printed = run(&mut fusionctl, "fusionctl bench ttft")?;
    serde_json::from_slice(&printed).context("reading what fusionctl bench ttft printed")
}

fn run(command: &mut Command, what: &str) -> Result<Vec<u8>> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("starting {what}"))?;
    if !output.status.success() {
        bail!("{what} failed ({}); its message is above", output.status);
    }
    Ok(output.stdout)
}

fn judge(length: &Length) -> [Figure; 2] {
    let own = &length.self_comparison;
    let note = format!(
        "feed-forward parts as a whole, attention by heads, large pages; {} of {} chunks were split; all samples are in target/bench/ttft.json",
        length.split_chunks, length.chunks
    );
    let figure = |name: &str, range: Range, pairs, own: Range, limit| {
        let name = format!("{name}, {} tokens", length.prompt_tokens);
        Figure::new(name, range.into(), "times", Limit::AtLeast(limit), pairs, Some(own.into())).note(&note)
    };
    let first = "time to first token, stock over accelerated";
    let decode = "decode steps per second, accelerated over stock";
    [
        figure(first, length.speed_up, length.rounds, own.speed_up, SPEED_UP),
        figure(decode, length.decode, length.decode_pairs, own.decode, DECODE),
    ]
}
