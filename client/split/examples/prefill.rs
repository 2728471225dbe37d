//! Prefills a stack of Llama blocks with synthetic weights through a policy, and prints the time of each arm.
//!
//! ```text
//! OPENBLAS_NUM_THREADS=1 cargo run --release -p fusion-split --example prefill -- \
//!     qwen2.5-0.5b --rows 512 --blocks 2 --pair development --ratio 0.5 --decode 8
//! ```
//!
//! Arms take turns, so that what slows the machine slows all of them alike. The first turn only warms up and is compared:
//! every arm must compute the same.

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};
use fusion_calibrations::{
    models,
    ratio::Ratio,
    rows::RowRule,
    sample::{FinishTimes, Unit},
    shape::{Shape, WeightFormat},
    stats::{self, CONFIDENCE},
};
use fusion_split::{
    Arm, Call, Fixed, PairKind, Policy, Sampled, Units, WorkFactor, identity,
    model::{Geometry, Model, Wanted},
};
use mlx_rs::Array;

#[derive(Debug, Parser)]
#[command(about = "Prefills a stack of Llama blocks and times every arm")]
struct Args {
    /// A model whose geometry is built in
    model: String,
    /// Rows of a prefill chunk
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    /// Chunks of one prompt: all but the last fill the cache only
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    chunks: u32,
    /// Blocks to build [default: all]
    #[arg(long)]
    blocks: Option<usize>,
    /// How weights are encoded
    #[arg(long, default_value = "f32", value_parser = str::parse::<WeightFormat>)]
    format: WeightFormat,
    /// The arms that take turns
    #[arg(long, value_enum, value_delimiter = ',', default_value = "eager,compiled,split")]
    arms: Vec<ArmName>,
    /// The secondary unit's share in the split arm
    #[arg(long, default_value_t = 0.5)]
    ratio: f64,
    /// Split feed-forward parts once instead of layer by layer
    #[arg(long)]
    whole_ffn: bool,
    /// Prompts an arm, after the first that warms up
    #[arg(long, default_value_t = 7)]
    prompts: usize,
    /// Decode steps after each prompt
    #[arg(long, default_value_t = 0)]
    decode: u32,
    /// Look at both units' finish times of every n-th split; 0: never
    #[arg(long, default_value_t = 0)]
    sample_every: u32,
    /// Two CPU streams even where there is a GPU
    #[arg(long)]
    development: bool,
    /// Work a row of the secondary unit, in units of the primary's: makes the pair asymmetric
    #[arg(long)]
    secondary_work_factor: Option<WorkFactor>,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum ArmName {
    Split,
    Compiled,
    Eager,
}

impl From<ArmName> for Arm {
    fn from(name: ArmName) -> Self {
        match name {
            ArmName::Split => Self::Split,
            ArmName::Compiled => Self::Compiled,
            ArmName::Eager => Self::Eager,
        }
    }
}

/// One timed call.
struct Entry {
    prompt: usize,
    arm: Arm,
    rows: u32,
    chunk: u32,
    total_ms: f64,
    delay_ms: Option<f64>,
}

/// Runs the arm it is told to, and keeps a log. A gate would decide here.
struct Turns {
    arm: Arm,
    prompt: usize,
    chunk: u32,
    /// What to do in the split arm.
    split: Fixed,
    sample_every: u32,
    splits: u32,
    log: Vec<Entry>,
    sampled: Vec<Sampled>,
}

impl Policy for Turns {
    fn arm(&mut self, _: &str, _: u32) -> Arm {
        self.arm
    }

    fn secondary_rows(&mut self, shape: Shape) -> u32 {
        self.split.secondary_rows(shape)
    }

    fn ffn_rows(&mut self, layers: [Shape; 3]) -> u32 {
        self.split.ffn_rows(layers)
    }

    fn sample(&mut self, _: Shape) -> Option<Unit> {
        self.splits += 1;
        let turn = self.splits.checked_div(self.sample_every)?;
        let first = if turn % 2 == 0 { Unit::Primary } else { Unit::Secondary };
        self.splits.is_multiple_of(self.sample_every).then_some(first)
    }

    fn finished(&mut self, call: &Call<'_>) {
        self.log.push(Entry {
            prompt: self.prompt,
            arm: call.arm,
            rows: call.rows,
            chunk: self.chunk,
            total_ms: call.total_ms,
            delay_ms: call.run_queue_delay_ms,
        });
        self.sampled.extend_from_slice(call.sampled);
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("prefill: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let kind = match args.secondary_work_factor {
        Some(factor) => PairKind::Asymmetric(factor),
        None if args.development => PairKind::Development,
        None => PairKind::Auto,
    };
    let units = Units::open(kind).context("cannot open the two units")?;
    if cfg!(target_os = "linux") && std::env::var("OPENBLAS_NUM_THREADS").as_deref() != Ok("1") {
        eprintln!("OPENBLAS_NUM_THREADS is not 1: each unit spreads over both units' cores");
    }
    let geometry = Geometry::new(models::find(&args.model)?, args.format)?;
    let mut model = Model::synthetic(&units, &geometry, args.blocks.unwrap_or(geometry.blocks()), 1)?;
    println!("{}: {}. {}.", identity::chip(&units), units.description(), identity::engine()?);
    println!(
        "{} of {} blocks of {}, {}, {} chunks of {} rows, ratio {:.2}, {} prompts an arm",
        model.blocks(),
        geometry.blocks(),
        geometry.name(),
        args.format,
        args.chunks,
        args.rows,
        args.ratio,
        args.prompts
    );
    let mut policy = Turns {
        arm: Arm::Eager,
        prompt: 0,
        chunk: 0,
        split: Fixed {
            arm: Arm::Split,
            ratio: Ratio::new(args.ratio)?,
            rule: RowRule::apple(),
            whole_ffn: args.whole_ffn,
        },
        sample_every: args.sample_every,
        splits: 0,
        log: vec![],
        sampled: vec![],
    };
    prefill(args, &units, &mut model, &mut policy)?;
    report(args, &policy);
    Ok(())
}

fn prefill(args: &Args, units: &Units, model: &mut Model, policy: &mut Turns) -> Result<()> {
    let arms: Vec<Arm> = args.arms.iter().copied().map(Arm::from).collect();
    let bound = model.geometry().relative_error_bound() * model.blocks() as f64;
    let mut first: Option<Array> = None;
    for prompt in 0..=args.prompts {
        for turn in 0..arms.len() {
            // Each arm comes first, second ... equally often.
            policy.arm = arms[(prompt + turn) % arms.len()];
            policy.prompt = prompt;
            let hidden = one_prompt(args, units, model, policy)?;
            if prompt > 0 {
                continue;
            }
            let Some(reference) = &first else {
                first = Some(hidden);
                continue;
            };
            let error = units.relative_error(&hidden, reference)?;
            println!("{} and {}: relative error {error:.1e}, at most {bound:.1e}", policy.arm, arms[0]);
            ensure!(error <= bound, "the arms compute different results");
        }
    }
    Ok(())
}

fn one_prompt(args: &Args, units: &Units, model: &mut Model, policy: &mut Turns) -> Result<Array> {
    let mut cache = model.empty_cache();
    let mut last = None;
    for chunk in 0..args.chunks {
        policy.chunk = chunk;
        let hidden = model.synthetic_hidden(units, args.rows, u64::from(chunk))?;
        let wanted = if chunk + 1 == args.chunks { Wanted::Hidden } else { Wanted::Cache };
        last = model.run(units, &hidden, &mut cache, wanted, policy)?.hidden;
    }
    let last = last.context("the last chunk has no hidden states")?;
    let one = model.synthetic_hidden(units, 1, 1)?;
    for step in 0..args.decode {
        policy.chunk = args.chunks + step;
        model.run(units, &one, &mut cache, Wanted::Hidden, policy)?;
    }
    Ok(last)
}

fn report(args: &Args, policy: &Turns) {
    let kept = || policy.log.iter().filter(|entry| entry.prompt > 0);
    let mut steps: Vec<(u32, bool)> = kept().map(|entry| (entry.rows, entry.chunk < args.chunks)).collect();
    steps.sort_unstable();
    steps.dedup();
    for (rows, is_prefill) in steps.into_iter().rev() {
        let of = |arm: Arm| {
            kept().filter(move |e| e.arm == arm && e.rows == rows && (e.chunk < args.chunks) == is_prefill)
        };
        println!("\n{} of {rows} rows:", if is_prefill { "prefill calls" } else { "decode steps" });
        for arm in args.arms.iter().copied().map(Arm::from) {
            let times: Vec<f64> = of(arm).map(|entry| entry.total_ms).collect();
            // Pairs of the same chunk of the same turn.
            let pairs: Vec<(f64, f64)> =
                of(Arm::Eager).zip(of(arm)).map(|(eager, this)| (eager.total_ms, this.total_ms)).collect();
            let delay: f64 = of(arm).filter_map(|entry| entry.delay_ms).sum();
            let speed = stats::ratio_of_pairs(&pairs, CONFIDENCE).map_or(String::new(), |speed| {
                format!(", {:.3} times eager's speed ({:.3} to {:.3})", speed.value, speed.low, speed.high)
            });
            println!(
                "  {arm:<9} {:>9.2} ms median of {}, spread {:.2} ms{speed}; waited {delay:.0} ms for a core in all",
                stats::median(&times).unwrap_or(f64::NAN),
                times.len(),
                stats::scaled_mad(&times).unwrap_or(f64::NAN),
            );
        }
    }
    report_samples(&policy.sampled);
}

fn report_samples(sampled: &[Sampled]) {
    let mut layers: Vec<_> =
        sampled.iter().map(|sampled| (sampled.observation.rows, sampled.layer)).collect();
    layers.sort_unstable();
    layers.dedup();
    for (rows, layer) in layers {
        let of = |unit| {
            let per_row = move |sampled: &Sampled| {
                let observation = sampled.observation;
                let share = match unit {
                    Unit::Primary => observation.rows - observation.secondary_rows,
                    Unit::Secondary => observation.secondary_rows,
                };
                Some(FinishTimes::exact_ms(&observation.finish_times, unit)? / f64::from(share))
            };
            let same = sampled.iter().filter(|s| s.layer == layer && s.observation.rows == rows);
            let times: Vec<f64> = same.filter_map(per_row).collect();
            (stats::median(&times).unwrap_or(f64::NAN), times.len())
        };
        let ((primary, primaries), (secondary, secondaries)) = (of(Unit::Primary), of(Unit::Secondary));
        println!(
            "{rows} rows of {layer}: {:.4} ms a row primary ({primaries}), {:.4} secondary ({secondaries}); balanced at {:.3}",
            primary,
            secondary,
            primary / (primary + secondary)
        );
    }
}
