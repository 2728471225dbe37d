//! The block example end to end: what the gate chose against every fixed arm, in one process.
//!
//! A cell lives twice, as a model on a real machine would. First a process runs it while the daemon knows nothing: the gate runs stock and
//! learns what stock takes. Then the daemon calibrates the layers. The second process is measured: it attaches, its gate decides by the lines and by what
//! was kept of the first life, and may explore only with the daemon's lease. Fixed arms take their turns in the same process.

use anyhow::{Context, Result};
use fusion_calibrations::models;
use fusion_calibrations::shape::{Layer, Layout, Shape, WeightFormat};
use fusion_calibrations::stats::{CONFIDENCE, Interval, ratio_of_pairs};

use crate::calls::{self, Counted, Document};
use crate::daemon::{Daemon, runtime};
use crate::example;
use crate::figure::{Figure, Limit};

/// Rows of the cells.
const ROWS: [u32; 3] = [256, 512, 1024];
/// Models of the cells, and blocks of each: blocks are alike and run one after the other, so more of them only take longer.
const MODELS: [(&str, &str); 2] = [("qwen2.5-0.5b", "2"), ("llama-3.2-1b", "1")];
/// Two equal units, and a secondary unit that takes twice as long for a row.
const PAIRS: [Pair; 2] = [
    Pair {
        name: "symmetric",
        equal_units: true,
        worker: &["--pair", "development"],
        example: &["--development"],
    },
    Pair {
        name: "asymmetric",
        equal_units: false,
        worker: &["--pair", "asymmetric", "--secondary-work-factor", "2"],
        example: &["--secondary-work-factor", "2"],
    },
];
/// Calls of the first life: the gate wants five to know stock.
const FIRST_LIFE: &str = "7";
/// Rounds of the second life, and pairs of the gate and its neighbour in each: 144 pairs resolve 0.6 % where two calls differ by 2 %.
const ROUNDS: &str = "24";
const PAIRS_A_ROUND: &str = "6";
/// No round begins in a cell after so many seconds: a machine that others use takes longer.
const SECONDS: &str = "150";
/// The fixed arms, and those of them that are stock.
const ARMS: [&str; 3] = ["eager", "compiled", "split"];
const STOCK_ARMS: [&str; 2] = ["eager", "compiled"];
/// Quiet pairs with every arm that are enough to leave the disturbed ones out.
const QUIET_PAIRS: usize = 12;
/// What the gate must reach of the best fixed arm's speed.
const OF_THE_BEST: f64 = 0.99;
/// What it must reach of stock's speed, where both units together can.
const OF_STOCK: f64 = 1.25;
/// Attempts to calibrate a shape: other programs may disturb all calls of one.
const ATTEMPTS: usize = 2;

struct Pair {
    name: &'static str,
    /// Then both together can reach what is asked for in every cell.
    equal_units: bool,
    worker: &'static [&'static str],
    example: &'static [&'static str],
}

/// Every cell on both pairs.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for pair in &PAIRS {
        figures.extend(on(pair).with_context(|| format!("the {} pair", pair.name))?);
    }
    Ok(figures)
}

fn on(pair: &Pair) -> Result<Vec<Figure>> {
    let runtime = runtime()?;
    let daemon = runtime.block_on(Daemon::start(pair.worker))?;
    let cells = || MODELS.into_iter().flat_map(|model| ROWS.map(|rows| (model, rows)));
    for (model, rows) in cells() {
        let life = ["--turns", "gate", "--rounds", "1", "--pairs", FIRST_LIFE];
        run(pair, &daemon, model, rows, &life)?;
    }
    let mut shapes = Vec::new();
    for ((model, _), rows) in cells() {
        shapes.extend(shapes_of(model, rows)?);
    }
    runtime.block_on(daemon.calibrate_patiently(&shapes, ATTEMPTS))?;
    let mut figures = Vec::new();
    for (model, rows) in cells() {
        let life = ["--rounds", ROUNDS, "--pairs", PAIRS_A_ROUND, "--calls", "2", "--seconds", SECONDS];
        let document = run(pair, &daemon, model, rows, &life)?;
        figures.extend(judge(pair, &format!("{} {rows} rows, {} pair", model.0, pair.name), &document));
    }
    Ok(figures)
}

/// The different linear layers of a model.
pub(crate) fn layers_of(model: &str) -> Result<Vec<Layer>> {
    let model = models::find(model)?;
    let layer = |linear: &models::Linear| {
        Layer::new(linear.inputs, linear.outputs, WeightFormat::F32, Layout::default())
    };
    let mut layers: Vec<Layer> = model.linears.iter().map(layer).collect::<Result<_, _>>()?;
    layers.sort_unstable();
    layers.dedup();
    Ok(layers)
}

fn run(
    pair: &Pair,
    daemon: &Daemon,
    (model, blocks): (&str, &str),
    rows: u32,
    life: &[&str],
) -> Result<Document> {
    let rows = rows.to_string();
    let mut arguments = vec![model, "--blocks", blocks, "--rows", &rows, "--whole-ffn"];
    arguments.extend(pair.example);
    arguments.extend(life);
    example::run(Some(daemon), &arguments)
}

/// The gate's speed over each fixed arm's: the lowest is that over the best arm; and that over the faster stock arm. An arm without a pair could be the best one.
fn judge(pair: &Pair, cell: &str, document: &Document) -> Vec<Figure> {
    let counted = counted(document);
    let speeds: Vec<Speed> = ARMS.into_iter().filter_map(|arm| Speed::over(arm, document, counted)).collect();
    let own = ratio_of_pairs(&calls::neighbours(&document.calls, counted), CONFIDENCE);
    let lowest = |arms: &[&str]| {
        let of_arms: Vec<_> = speeds.iter().filter(|speed| arms.contains(&speed.arm)).collect();
        let lowest = of_arms.iter().min_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value)).copied();
        lowest.filter(|_| of_arms.len() == arms.len())
    };
    let allowed = allowed_speed_up(document, &speeds);
    let to_stock = if pair.equal_units || allowed.is_some_and(|allowed| allowed >= OF_STOCK) {
        Limit::AtLeast(OF_STOCK)
    } else {
        Limit::None
    };
    let figure = |against: &str, speed: Option<&Speed>, limit| {
        let name = format!("{cell}: gate / {against}");
        match speed {
            Some(Speed { arm, ratio, pairs }) => Figure::new(name, *ratio, "times", limit, pairs.len(), own)
                .note(format!("{arm}; {}", describe(document, counted)))
                .raw(pairs.iter().map(|(fixed, gate)| fixed / gate).collect()),
            None => Figure::unknown(name, "times", limit).note("no pair with one of the arms"),
        }
    };
    let stock = figure("stock", lowest(&STOCK_ARMS), to_stock);
    vec![
        figure("best fixed arm", lowest(&ARMS), Limit::AtLeast(OF_THE_BEST)),
        match allowed {
            Some(allowed) => stock.note(format!("the pair allows {allowed:.2}")),
            None => stock.note("what the pair allows is not known"),
        },
    ]
}

/// The quiet calls, if there are enough.
fn counted(document: &Document) -> Counted {
    let quiet = |arm| Speed::over(arm, document, Counted::Quiet).map_or(0, |speed| speed.pairs.len());
    if ARMS.into_iter().all(|arm| quiet(arm) >= QUIET_PAIRS) { Counted::Quiet } else { Counted::All }
}

/// The gate's speed over a fixed arm's.
struct Speed {
    arm: &'static str,
    ratio: Interval,
    /// (fixed, gate), in ms.
    pairs: Vec<(f64, f64)>,
}

impl Speed {
    fn over(arm: &'static str, document: &Document, counted: Counted) -> Option<Self> {
        let mut pairs = calls::beside(&document.calls, arm, counted);
        pairs.extend(calls::by_round(&document.calls, arm, counted));
        Some(Self { arm, ratio: ratio_of_pairs(&pairs, CONFIDENCE)?, pairs })
    }
}

/// What the pair allows: what the split arm gained over the faster stock arm in this run, or, if that is more, what splitting the products alone would gain
/// if it lost nothing: the measured stock call, with its split layers in the time that both units need together by their lines. `None` if neither is known.
fn allowed_speed_up(document: &Document, speeds: &[Speed]) -> Option<f64> {
    let of = |arm: &str| speeds.iter().find(|speed| speed.arm == arm).map(|speed| speed.ratio.value);
    let stock = [of("eager"), of("compiled")].into_iter().flatten().reduce(f64::min);
    let seen = stock.zip(of("split")).map(|(stock, split)| stock / split);
    [seen, by_the_lines(document, speeds)].into_iter().flatten().reduce(f64::max)
}

fn by_the_lines(document: &Document, speeds: &[Speed]) -> Option<f64> {
    let eager: Vec<f64> =
        speeds.iter().find(|speed| speed.arm == "eager")?.pairs.iter().map(|(eager, _)| *eager).collect();
    let whole = fusion_calibrations::stats::median(&eager)?;
    let saved =
        document.layers.iter().filter_map(|layer| Some(layer.times * (layer.stock_ms? - layer.ideal_ms?)));
    let saved: f64 = saved.sum();
    (document.layers.iter().any(|layer| layer.stock_ms.is_some()) && saved < whole)
        .then(|| whole / (whole - saved))
}

/// What a reader should know of the run.
fn describe(document: &Document, counted: Counted) -> String {
    let gates: Vec<_> = document.calls.iter().filter(|call| call.turn == "gate").collect();
    let count = |arm: &str| gates.iter().filter(|call| call.arm == arm).count();
    let explored = gates.iter().filter(|call| call.explored).count();
    let disturbed = document.calls.iter().filter(|call| call.disturbed).count();
    let split = document.layers.iter().filter(|layer| layer.secondary_rows > 0).count();
    let gate = document.attached.as_ref().map_or_else(String::new, |attached| {
        format!("{}, {} stands ({})", attached.basis, attached.standing, attached.because)
    });
    format!(
        "gate ran {} split, {} compiled, {} eager, {explored} of them exploring; {gate}; {split} of {} layers split, {} splits \
         sampled; {disturbed} of {} calls disturbed{}",
        count("split"),
        count("compiled"),
        count("eager"),
        document.layers.len(),
        document.sampled,
        document.calls.len(),
        match counted {
            Counted::Quiet => " and left out",
            Counted::All => ", so all count",
        }
    )
}

/// Shapes of a model's layers at `rows` rows.
pub(crate) fn shapes_of(model: &str, rows: u32) -> Result<Vec<Shape>> {
    layers_of(model)?.into_iter().map(|layer| Ok(layer.with_rows(rows)?)).collect()
}
