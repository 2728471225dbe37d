//! `--probe`: the mechanism probe, in words or as JSON.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::Result;
use fusion_calibrations::stats::{self, Interval};
use fusion_split::{
    Units, identity,
    probe::{self, Probe, Scale, Way},
};
use serde::Serialize;

/// As in fusionctl's JSON.md, whose document this is.
const SCHEMA: &str = "fusionctl.probe/1";

/// Runs the probe and returns what it found, as text or as JSON. Progress goes to standard error, if wanted.
///
/// # Errors
/// If MLX fails.
pub(crate) fn run(units: &Units, json: bool, quiet: bool) -> Result<String> {
    let probe = probe::run(units, Scale::usual(units)?, |round, rounds| {
        if !quiet {
            eprint!("\rprobe: round {round} of {rounds}{}", if round == rounds { "\n" } else { "" });
        }
    })?;
    if json { Ok(serde_json::to_string_pretty(&Document::new(units, &probe)?)?) } else { text(units, &probe) }
}

fn text(units: &Units, probe: &Probe) -> Result<String> {
    let mut text = format!(
        "{}: {}. {}.\n{}, {} rows of a split on the secondary unit (balanced ratio {}); medians of {} interleaved rounds:\n",
        identity::chip(units),
        units.description(),
        identity::engine()?,
        probe.shape,
        probe.secondary_rows,
        probe.ratio,
        probe.timings.of(Way::ReadyWhole).len(),
    );
    for way in Way::ALL {
        let times = probe.timings.of(way);
        writeln!(
            text,
            "  {:<58} {:>9.2} ms, spread {:.2} ms",
            description(way),
            stats::median(&times).unwrap_or(f64::NAN),
            stats::scaled_mad(&times).unwrap_or(f64::NAN)
        )?;
    }
    writeln!(
        text,
        "Largest relative error of a split: {:.1e}. Other programs held a core in {:.0} % of the calls.",
        probe.relative_error,
        probe.verdict.disturbed_share * 100.0
    )?;
    write!(text, "{}", probe.verdict.words())?;
    if let Some(label) = units.pair().label() {
        write!(text, "\nThis says nothing about a machine with a GPU: {label}.")?;
    }
    Ok(text)
}

fn description(way: Way) -> &'static str {
    match way {
        Way::ReadyWhole => "product, input ready, primary unit alone",
        Way::ReadyWholeAgain => "the same again",
        Way::ReadySplit => "product, input ready, split",
        Way::LazyWhole => "product, input in the same graph, primary unit alone",
        Way::LazySplit => "product, input in the same graph, split",
        Way::BoundaryWhole => "product, input materialised first, primary unit alone",
        Way::BoundarySplit => "product, input materialised first, split",
        Way::FfnReadyWhole => "feed-forward, input ready, primary unit alone",
        Way::FfnReadySplit => "feed-forward, input ready, split once",
        Way::FfnLazyWhole => "feed-forward, input in the same graph, primary unit alone",
        Way::FfnLazySplit => "feed-forward, input in the same graph, split once",
    }
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    finding: &'static str,
    words: String,
    version: &'static str,
    chip: Chip,
    engine: Engine,
    units: String,
    product: Product,
    ratio: f64,
    secondary_rows: u32,
    quiet: bool,
    disturbed_share: f64,
    equal: Range,
    speeds: Speeds,
    boundary_cost_ms: Range,
    relative_error: f64,
    times_ms: BTreeMap<&'static str, Vec<f64>>,
}

#[derive(Serialize)]
struct Chip {
    key: String,
    brand: String,
    gpu_cores: Option<u16>,
    memory_gib: u32,
    model_identifier: String,
    pair: String,
    pair_label: Option<&'static str>,
}

#[derive(Serialize)]
struct Engine {
    os_build: String,
    mlx_version: String,
    library_hash: String,
}

#[derive(Serialize)]
struct Product {
    text: String,
    rows: u32,
    inputs: u32,
    outputs: u32,
    format: String,
    layout: String,
}

#[derive(Serialize)]
struct Range {
    low: f64,
    value: f64,
    high: f64,
}

impl From<Interval> for Range {
    fn from(Interval { low, value, high }: Interval) -> Self {
        Self { low, value, high }
    }
}

#[derive(Serialize)]
struct Speeds {
    ready: Range,
    lazy: Range,
    boundary: Range,
    lazy_to_boundary: Range,
    ffn_ready: Range,
    ffn_lazy: Range,
}

impl Document {
    fn new(units: &Units, probe: &Probe) -> Result<Self> {
        let (chip, engine, verdict) = (identity::chip(units), identity::engine()?, &probe.verdict);
        let layer = probe.shape.layer();
        Ok(Self {
            schema: SCHEMA,
            finding: verdict.finding.name(),
            words: verdict.words(),
            version: env!("CARGO_PKG_VERSION"),
            chip: Chip {
                key: chip.key(),
                brand: chip.brand,
                gpu_cores: chip.gpu_cores,
                memory_gib: chip.memory_gib,
                model_identifier: chip.model_identifier,
                pair: chip.pair.to_string(),
                pair_label: chip.pair.label(),
            },
            engine: Engine {
                os_build: engine.os_build,
                mlx_version: engine.mlx_version,
                library_hash: engine.library_hash,
            },
            units: units.description(),
            product: Product {
                text: format!("{}x{}x{}", probe.shape.rows(), layer.inputs(), layer.outputs()),
                rows: probe.shape.rows(),
                inputs: layer.inputs(),
                outputs: layer.outputs(),
                format: layer.format().to_string(),
                layout: layer.layout().to_string(),
            },
            ratio: probe.ratio.get(),
            secondary_rows: probe.secondary_rows,
            quiet: verdict.quiet,
            disturbed_share: verdict.disturbed_share,
            equal: verdict.equal.into(),
            speeds: Speeds {
                ready: verdict.ready.into(),
                lazy: verdict.lazy.into(),
                boundary: verdict.boundary.into(),
                lazy_to_boundary: verdict.lazy_to_boundary.into(),
                ffn_ready: verdict.ffn_ready.into(),
                ffn_lazy: verdict.ffn_lazy.into(),
            },
            boundary_cost_ms: verdict.boundary_cost_ms.into(),
            relative_error: probe.relative_error,
            times_ms: Way::ALL.map(|way| (way.name(), probe.timings.of(way))).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
    use fusion_split::PairKind;

    use super::*;

    #[test]
    fn both_reports_hold_every_way_and_the_label() {
        let units = Units::open(PairKind::Development).unwrap();
        let shape = Shape::parse("32x64x96", WeightFormat::F32, Layout::default()).unwrap();
        let probe = probe::run(&units, Scale { shape, rounds: 2 }, |_, _| ()).unwrap();
        let text = text(&units, &probe).unwrap();
        let json = serde_json::to_value(Document::new(&units, &probe).unwrap()).unwrap();
        for way in Way::ALL {
            assert!(text.contains(description(way)), "{text}");
            assert_eq!(json["times_ms"][way.name()].as_array().unwrap().len(), 2, "{json}");
        }
        assert!(text.contains("says nothing about a machine with a GPU"), "{text}");
        assert_eq!((&json["schema"], &json["product"]["rows"]), (&SCHEMA.into(), &32.into()));
        assert!(json["chip"]["pair_label"].as_str().unwrap().contains("development pair"), "{json}");
    }
}
