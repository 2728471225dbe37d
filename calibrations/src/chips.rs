//! Shipped knowledge of known chips: rates, row rules and cooling.
//!
//! One file per chip under `data/chips`, fitted from the recorded grids, each with the evidence for its numbers. A prior starts a
//! search near the answer and is served, labelled [`crate::estimate::Provenance::Prior`], until something is measured; it is never
//! stored as if it had been.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::chip::{Chip, Cooling, Pair};
use crate::lines::Lines;
use crate::recorded::Grid;
use crate::rows::{Cliff, RowRule};
use crate::search::fit_grid;
use crate::shape::{Layer, Shape, WeightFormat};

const FILES: [&str; 5] = [
    include_str!("../data/chips/m1.toml"),
    include_str!("../data/chips/m2.toml"),
    include_str!("../data/chips/m3-pro.toml"),
    include_str!("../data/chips/m4.toml"),
    include_str!("../data/chips/m4-pro.toml"),
];

const COOLING: &str = include_str!("../data/chips/cooling.toml");

/// A shipped file that can't be read: a bug of this build.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the built-in chip files are broken ({0}): please report this")]
pub struct ChipsError(pub String);

/// What is known of a kind of chip before anything was measured on this one.
#[derive(Debug, Clone, PartialEq)]
pub struct ChipPrior {
    /// "m4-pro": what `--machine recorded:NAME` and `model:NAME` call it.
    pub name: String,
    /// `machdep.cpu.brand_string`.
    pub brand: String,
    /// GPU cores of the machine that was measured.
    pub gpu_cores: u16,
    /// Its memory in GiB.
    pub memory_gib: u32,
    /// Its model identifier.
    pub model_identifier: String,
    /// Sources: repository@commit:path.
    pub evidence: Vec<String>,
    /// How rows are shared.
    pub row_rule: RowRule,
    /// Rates of the layers that were measured.
    pub rates: Vec<Rate>,
}

/// Rates of both units for one layer, fitted over all its row counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Weight format that was measured.
    pub format: WeightFormat,
    /// K.
    pub inputs: u32,
    /// N.
    pub outputs: u32,
    /// Primary unit alone, in TFLOP/s.
    pub stock_tflops: f64,
    /// Primary unit while the secondary works too, in TFLOP/s.
    pub primary_tflops: f64,
    /// Secondary unit while the primary works too, in TFLOP/s.
    pub secondary_tflops: f64,
    /// Cost of splitting, in ms a call.
    pub overhead_ms: f64,
    /// Grids that it was fitted from.
    pub grids: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChipFile {
    name: String,
    brand: String,
    gpu_cores: u16,
    memory_gib: u32,
    model_identifier: String,
    evidence: Vec<String>,
    row_rule: RuleFile,
    rates: Vec<RateFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    primary_alignment: u32,
    cliffs: Vec<CliffFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CliffFile {
    secondary_rows: u32,
    minimum_inputs: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateFile {
    format: String,
    inputs: u32,
    outputs: u32,
    stock_tflops: f64,
    primary_tflops: f64,
    secondary_tflops: f64,
    overhead_ms: f64,
    grids: u32,
}

impl ChipPrior {
    /// Reads one chip file.
    ///
    /// # Errors
    /// [`ChipsError`] naming what is wrong with it.
    pub fn from_toml(text: &str) -> Result<Self, ChipsError> {
        let file: ChipFile = toml::from_str(text).map_err(|error| ChipsError(error.to_string()))?;
        let rates = file.rates.iter().map(Rate::from_file).collect::<Result<_, _>>()?;
        let cliffs = file
            .row_rule
            .cliffs
            .iter()
            .map(|cliff| Cliff { secondary_rows: cliff.secondary_rows, minimum_inputs: cliff.minimum_inputs })
            .collect();
        Ok(Self {
            name: file.name,
            brand: file.brand,
            gpu_cores: file.gpu_cores,
            memory_gib: file.memory_gib,
            model_identifier: file.model_identifier,
            evidence: file.evidence,
            row_rule: RowRule { cliffs, primary_alignment: file.row_rule.primary_alignment },
            rates,
        })
    }

    /// The machine that was measured, under the key of a recorded or modelled `pair`, never of a real one.
    pub fn chip(&self, pair: Pair) -> Chip {
        Chip {
            brand: self.brand.clone(),
            gpu_cores: Some(self.gpu_cores),
            memory_gib: self.memory_gib,
            model_identifier: self.model_identifier.clone(),
            cooling: cooling(&self.model_identifier),
            pair,
        }
    }

    /// Expected lines of `layer` on a chip of this kind with `gpu_cores` (`None`: as many as were measured).
    ///
    /// `None` if nothing is known for the weight format. Only f16 was recorded; bf16 borrows its rates (same width, same units; FusionML's
    /// bf16 runs gain what f16 lets expect on M4 and M4 Pro, but only 1.05 on an M1, which emulates it). Between measured
    /// layers rates are averaged geometrically, weighted by the inverse square of the distance in log K and log N; the
    /// primary unit's rates scale with its cores.
    pub fn lines(&self, layer: Layer, gpu_cores: Option<u16>) -> Option<Lines> {
        let cores = f64::from(gpu_cores.unwrap_or(self.gpu_cores)) / f64::from(self.gpu_cores);
        lines_from_rates(&self.rates, layer, cores)
    }
}

/// [`ChipPrior::lines`] from rates that aren't shipped; `cores` is how many times as many GPU cores there are.
pub fn lines_from_rates(rates: &[Rate], layer: Layer, cores: f64) -> Option<Lines> {
    let format = match layer.format() {
        WeightFormat::Bf16 => WeightFormat::F16,
        other => other,
    };
    let weighted: Vec<(f64, &Rate)> = rates
        .iter()
        .filter(|rate| rate.format == format)
        .map(|rate| (rate.weight_for(layer), rate))
        .collect();
    let total: f64 = weighted.iter().map(|(weight, _)| weight).sum();
    if total <= 0.0 {
        return None;
    }
    let mean = |value: fn(&Rate) -> f64| {
        (weighted.iter().map(|(weight, rate)| weight * value(rate).ln()).sum::<f64>() / total).exp()
    };
    let ms_per_row = |tflops: f64| layer.flops_per_row() / (tflops * 1e9);
    Some(Lines {
        primary_ms_per_row: ms_per_row(mean(|rate| rate.primary_tflops) * cores),
        secondary_ms_per_row: ms_per_row(mean(|rate| rate.secondary_tflops)),
        overhead_ms: weighted.iter().map(|(weight, rate)| weight * rate.overhead_ms).sum::<f64>() / total,
        stock_ms_per_row: ms_per_row(mean(|rate| rate.stock_tflops) * cores),
    })
}

impl Rate {
    fn from_file(file: &RateFile) -> Result<Self, ChipsError> {
        Ok(Self {
            format: file
                .format
                .parse()
                .map_err(|error: crate::shape::ShapeError| ChipsError(error.to_string()))?,
            inputs: file.inputs,
            outputs: file.outputs,
            stock_tflops: file.stock_tflops,
            primary_tflops: file.primary_tflops,
            secondary_tflops: file.secondary_tflops,
            overhead_ms: file.overhead_ms,
            grids: file.grids,
        })
    }

    /// What a split costs a call can't exceed what the smallest grid shows; the rest of the fitted overhead grows with the rows
    /// and is put into both units' time per row.
    fn of_fits(layer: Layer, fits: &[(Shape, Lines)]) -> Self {
        let overhead_ms = fits.iter().map(|(_, lines)| lines.overhead_ms).fold(f64::INFINITY, f64::min);
        let stretch = |(shape, lines): &(Shape, Lines)| {
            let primary_rows = f64::from(shape.rows()) * (1.0 - lines.balanced_ratio().get());
            1.0 + (lines.overhead_ms - overhead_ms) / (lines.primary_ms_per_row * primary_rows)
        };
        let tflops = |ms_per_row: &dyn Fn(&(Shape, Lines)) -> f64| {
            let mean_log = fits.iter().map(|fit| ms_per_row(fit).ln()).sum::<f64>() / fits.len() as f64;
            layer.flops_per_row() / (mean_log.exp() * 1e9)
        };
        Self {
            format: layer.format(),
            inputs: layer.inputs(),
            outputs: layer.outputs(),
            stock_tflops: tflops(&|fit| fit.1.stock_ms_per_row),
            primary_tflops: tflops(&|fit| fit.1.primary_ms_per_row * stretch(fit)),
            secondary_tflops: tflops(&|fit| fit.1.secondary_ms_per_row * stretch(fit)),
            overhead_ms,
            grids: u32::try_from(fits.len()).unwrap_or(u32::MAX),
        }
    }

    /// Inverse square of the distance in log K and log N, softened so that a layer that was measured dominates without being alone.
    fn weight_for(&self, layer: Layer) -> f64 {
        let apart = |a: u32, b: u32| (f64::from(a) / f64::from(b)).ln();
        let distance =
            apart(self.inputs, layer.inputs()).powi(2) + apart(self.outputs, layer.outputs()).powi(2);
        1.0 / (distance + 0.01)
    }
}

/// Rates fitted from recorded grids: the search's own fit of each grid, and per layer the geometric mean over its grids.
///
/// This is what the shipped files hold; leaving grids out shows what a file is worth for grids it hasn't seen.
pub fn fit_rates<'a>(grids: impl IntoIterator<Item = &'a Grid>, rule: &RowRule) -> Vec<Rate> {
    let mut fits: Vec<(Shape, Lines)> =
        grids.into_iter().filter_map(|grid| Some((grid.shape, fit_grid(grid, rule)?))).collect();
    fits.sort_by_key(|(shape, _)| (shape.layer(), shape.rows()));
    fits.chunk_by(|a, b| a.0.layer() == b.0.layer())
        .map(|same| Rate::of_fits(same[0].0.layer(), same))
        .collect()
}

static CHIPS: LazyLock<Result<Vec<ChipPrior>, ChipsError>> =
    LazyLock::new(|| FILES.iter().map(|text| ChipPrior::from_toml(text)).collect());

/// Every shipped chip.
///
/// # Errors
/// [`ChipsError`] if a shipped file can't be read: a bug of this build that a test rules out.
pub fn all() -> Result<&'static [ChipPrior], ChipsError> {
    CHIPS.as_deref().map_err(Clone::clone)
}

/// The prior for `chip`: of the same brand, and only for a pair of GPU and CPU or a stand-in for one.
pub fn prior_for(chip: &Chip) -> Option<&'static ChipPrior> {
    if !matches!(chip.pair, Pair::GpuAndCpu | Pair::Recorded | Pair::Modelled) {
        return None;
    }
    all().ok()?.iter().find(|prior| prior.brand == chip.brand)
}

/// The shipped chip called `name` ("m4-pro").
pub fn find(name: &str) -> Option<&'static ChipPrior> {
    all().ok()?.iter().find(|prior| prior.name == name)
}

/// The row rule for `chip`: its file's; that of every Apple chip measured, for other Apple chips; none for others, and for
/// development pairs, whose CPU code is another.
pub fn row_rule(chip: &Chip) -> RowRule {
    match (prior_for(chip), &chip.pair) {
        (Some(prior), _) => prior.row_rule.clone(),
        (None, Pair::GpuAndCpu | Pair::Recorded | Pair::Modelled) if chip.brand.starts_with("Apple ") => {
            RowRule::apple()
        }
        _ => RowRule::default(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CoolingFile {
    passive: Vec<String>,
    active: Vec<String>,
}

static COOLING_TABLE: LazyLock<Option<CoolingFile>> = LazyLock::new(|| toml::from_str(COOLING).ok());

/// How the machine with this `hw.model` gets rid of its heat.
pub fn cooling(model_identifier: &str) -> Cooling {
    let listed = |list: &[String]| list.iter().any(|known| known == model_identifier);
    match &*COOLING_TABLE {
        Some(table) if listed(&table.passive) => Cooling::Passive,
        Some(table) if listed(&table.active) => Cooling::Active,
        _ => Cooling::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Layout;

    fn layer(inputs: u32, outputs: u32, format: WeightFormat) -> Layer {
        Layer::new(inputs, outputs, format, Layout::default()).unwrap()
    }

    #[test]
    fn every_file_reads_and_cites_its_evidence() {
        for prior in all().unwrap() {
            assert!(!prior.evidence.is_empty() && !prior.rates.is_empty(), "{}", prior.name);
            assert_ne!(prior.chip(Pair::Recorded).cooling, Cooling::Unknown, "{}", prior.name);
        }
        assert!(COOLING_TABLE.is_some());
    }

    /// What `rates` looks like in a chip file.
    fn as_toml(rates: &[Rate]) -> String {
        let entry = |rate: &Rate| {
            format!(
                "\n[[rates]]\nformat = \"{}\"\ninputs = {}\noutputs = {}\nstock_tflops = {:.3}\nprimary_tflops = {:.3}\n\
                 secondary_tflops = {:.3}\noverhead_ms = {:.3}\ngrids = {}\n",
                rate.format,
                rate.inputs,
                rate.outputs,
                rate.stock_tflops,
                rate.primary_tflops,
                rate.secondary_tflops,
                rate.overhead_ms,
                rate.grids
            )
        };
        rates.iter().map(entry).collect()
    }

    #[test]
    fn shipped_rates_are_the_fit_of_the_recorded_grids() {
        for prior in all().unwrap() {
            let machine = crate::recorded::find(&prior.name).unwrap();
            let fitted = fit_rates(&machine.grids, &prior.row_rule);
            let (shipped, fitted) = (as_toml(&prior.rates), as_toml(&fitted));
            assert_eq!(shipped, fitted, "data/chips/{}.toml should hold:\n{fitted}", prior.name);
        }
    }

    #[test]
    fn priors_balance_where_the_grids_did() {
        // Best ratios of the recorded grids at 2048 rows: fusionml.md, "Rates fitted from the grids".
        for (name, low, high) in [
            ("m1", 0.2, 0.35),
            ("m2", 0.3, 0.37),
            ("m3-pro", 0.23, 0.3),
            ("m4", 0.28, 0.35),
            ("m4-pro", 0.33, 0.42),
        ] {
            let lines = find(name).unwrap().lines(layer(4096, 14336, WeightFormat::F16), None).unwrap();
            let ratio = lines.balanced_ratio().get();
            assert!((low..=high).contains(&ratio), "{name}: {ratio}");
        }
    }

    #[test]
    fn more_gpu_cores_want_fewer_rows_on_the_cpu() {
        let prior = find("m4-pro").unwrap();
        let ratio =
            |cores| prior.lines(layer(4096, 4096, WeightFormat::Bf16), Some(cores)).unwrap().balanced_ratio();
        assert!(ratio(20) < ratio(16));
    }

    #[test]
    fn nothing_is_claimed_for_formats_that_were_never_measured() {
        assert_eq!(find("m4").unwrap().lines(layer(4096, 4096, WeightFormat::F32), None), None);
    }

    #[test]
    fn development_pairs_have_no_prior_and_no_cliffs() {
        let chip = find("m4").unwrap().chip(Pair::Development);
        assert!(prior_for(&chip).is_none() && row_rule(&chip).cliffs.is_empty());
    }

    #[test]
    fn the_fanless_airs_are_known() {
        assert_eq!(cooling("Mac14,2"), Cooling::Passive);
        assert_eq!(cooling("Mac16,8"), Cooling::Active);
        assert_eq!(cooling("Mac99,1"), Cooling::Unknown);
    }
}
