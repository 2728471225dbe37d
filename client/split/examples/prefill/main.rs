//! Prefills a stack of Llama blocks with synthetic weights, and times every arm and the gate.
//!
//! ```text
//! OPENBLAS_NUM_THREADS=1 cargo run --release -p fusion-split --example prefill -- \
//!     qwen2.5-0.5b --rows 512 --blocks 2 --development --ratio 0.5
//! cargo run --release -p fusion-split --example prefill -- llama-3.2-1b --rows 1024 --daemon
//! ```
//!
//! With `--daemon` it is a client of fusiond as an inference process would be: the local table says how many rows of each layer the secondary unit gets,
//! the gate decides the arm of its calls, sampled splits are reported. Fixed arms and the gate take turns in one process, with the same rows and timed alike, so that
//! the gate can be held against the best of them. Before anything is timed every arm must compute the same.

mod arguments;
mod calibrate;
mod gate;
mod log;
mod report;
mod rows;
mod schedule;
mod stage;

use std::{process::ExitCode, time::Instant};

use anyhow::{Context, Result};
use clap::Parser;
use fusion_calibrations::{models, shape::Layer};
use fusion_client::attach::{Attachment, Basis, RegionHandle};
use fusion_split::{
    Units, identity,
    model::{Geometry, Model},
};

use arguments::Arguments;
use calibrate::Calibrated;
use gate::{Gated, Sampler};
use log::Turns;
use report::{Attached, LayerReport, Report};
use rows::Rows;
use schedule::Counts;
use stage::{Stage, WarmUp};

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("prefill: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let units = Units::open(arguments.pair()).context("cannot open the two units")?;
    if cfg!(target_os = "linux") && std::env::var("OPENBLAS_NUM_THREADS").as_deref() != Ok("1") {
        eprintln!("OPENBLAS_NUM_THREADS is not 1: each unit spreads over both units' cores");
    }
    let geometry = Geometry::new(models::find(&arguments.model)?, arguments.format)?;
    let blocks = arguments.blocks.unwrap_or(geometry.blocks());
    let calibrated = calibrated(arguments, &units, &geometry)?;
    let attached = if arguments.daemon {
        let socket = arguments.socket.as_deref();
        Some(gate::attach(socket, identity::engine()?, &geometry.layers(), arguments.rows)?)
    } else {
        None
    };
    let attachment = attached.as_ref().map(|(attachment, _)| attachment);
    let rows = match attachment {
        Some(attachment) => Rows::Table(attachment),
        None if calibrated.is_empty() => Rows::Ratio(arguments.ratio),
        None => Rows::Measured(calibrated.iter().map(|one| (one.layer, one.secondary_rows)).collect()),
    };
    // The daemon measures nothing meanwhile.
    let _busy = attachment.map(Attachment::busy);
    let model = Model::synthetic(&units, &geometry, blocks, 1)?;
    let mut stage = Stage::set(arguments, &units, model)?;
    let warm_up = stage.warm_up(arguments, &rows)?;
    let region = attachment.map(|attachment| {
        let (name, layers) = (stage.region().to_owned(), geometry.layers());
        gate::region(attachment, &name, &layers, blocks, arguments.rows, warm_up.eager_ms)
    });
    let gated = attachment.zip(region.as_ref()).map(|(attachment, region)| {
        let sampler = Sampler::new(arguments.sample_every);
        Gated::new(attachment, region, &rows, sampler, arguments.whole_ffn)
    });
    // Beside a gate, only its own splits are sampled: fixed arms are what it is compared with.
    let sampler = Sampler::new(if arguments.daemon { 0 } else { arguments.sample_every });
    let mut turns = Turns::new(&rows, arguments.whole_ffn, sampler, gated);
    take_turns(arguments, &mut stage, &mut turns)?;
    let attached = attached
        .as_ref()
        .zip(region.as_ref())
        .map(|(attached, region)| said(attached, region, arguments.rows));
    let report = report(arguments, &units, &stage, &warm_up, &rows, attached, calibrated, &mut turns)?;
    if arguments.json {
        return report.print_json();
    }
    report.print(&turns.sampled);
    Ok(())
}

/// What each layer of a block is found to want, if that was asked for.
fn calibrated(arguments: &Arguments, units: &Units, geometry: &Geometry) -> Result<Vec<Calibrated>> {
    if !arguments.calibrate {
        return Ok(Vec::new());
    }
    let mut layers = geometry.layers().to_vec();
    layers.sort_unstable();
    layers.dedup();
    layers.iter().map(|layer| calibrate::calibrate(units, layer.with_rows(arguments.rows)?)).collect()
}

fn take_turns(arguments: &Arguments, stage: &mut Stage<'_>, policy: &mut Turns<'_>) -> Result<()> {
    let turns = arguments.turns();
    let counts = Counts { calls: arguments.calls, pairs: arguments.pairs };
    let start = Instant::now();
    for round in 0..arguments.rounds {
        if start.elapsed().as_secs_f64() > arguments.seconds {
            break;
        }
        let chosen = policy.gate_would_run(arguments.rows);
        for step in schedule::round(round, &turns, chosen, counts) {
            policy.next_is(round, step);
            stage.call(policy)?;
        }
    }
    Ok(())
}

fn said((attachment, ms): &(Attachment, f64), region: &RegionHandle, rows: u32) -> Attached {
    let basis = match attachment.basis() {
        Basis::Attached => "attached",
        Basis::Snapshot => "snapshot",
        Basis::Stock => "stock",
    };
    let why = attachment.explain(region, rows);
    let text = |text: Option<String>| text.unwrap_or_else(|| "never asked".to_owned());
    Attached {
        basis: basis.to_owned(),
        ms: *ms,
        standing: text(why.as_ref().map(|why| why.standing.to_string())),
        because: text(why.as_ref().map(|why| why.basis.to_string())),
        activity: text(why.as_ref().map(|why| why.activity.to_string())),
    }
}

#[allow(clippy::too_many_arguments, reason = "it only puts together what the run has")]
fn report(
    arguments: &Arguments,
    units: &Units,
    stage: &Stage<'_>,
    warm_up: &WarmUp,
    rows: &Rows<'_>,
    attached: Option<Attached>,
    calibrated: Vec<Calibrated>,
    turns: &mut Turns<'_>,
) -> Result<Report> {
    let layer = |layer: Layer| -> Result<LayerReport> {
        let shape = layer.with_rows(arguments.rows)?;
        let lines = rows.lines(layer);
        Ok(LayerReport {
            layer: layer.to_string(),
            times: stage.blocks(),
            secondary_rows: rows.secondary_rows(shape),
            stock_ms: lines.map(|lines| lines.stock_ms(arguments.rows)),
            ideal_ms: lines.map(|lines| {
                let slower = 1.0 - lines.balanced_ratio().get();
                lines.primary_ms_per_row * slower * f64::from(arguments.rows)
            }),
        })
    };
    Ok(Report {
        model: arguments.model.clone(),
        region: stage.region().to_owned(),
        blocks: stage.blocks(),
        rows: arguments.rows,
        context: arguments.context,
        units: format!("{}: {}", identity::chip(units), units.description()),
        engine: identity::engine()?.to_string(),
        relative_error: warm_up.relative_error,
        relative_error_bound: stage.relative_error_bound(),
        attached,
        calibrated,
        layers: stage.layers().into_iter().map(layer).collect::<Result<_>>()?,
        sampled: turns.sampled.len(),
        calls: std::mem::take(&mut turns.log),
    })
}
