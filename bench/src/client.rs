//! What an attached process pays for a decision, and for attaching.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fusion_calibrations::gate::ArmSet;
use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_calibrations::stats::{Interval, median};
use fusion_client::SocketPath;
use fusion_client::attach::{Attachment, Basis, LayerHandle, Options, RegionHandle};

use crate::crowd;
use crate::daemon::{Daemon, runtime};
use crate::figure::{Figure, Limit};
use crate::{example, system_calls};

/// Repetitions that are timed as one: a clock read takes as long as what is measured.
const BATCH: u32 = 1000;
/// Batches.
const BATCHES: usize = 300;
/// Times that a process attaches.
const ATTACHES: usize = 60;
/// Rows of a call.
pub(crate) const ROWS: u32 = 2048;

/// A daemon that knows a layer of a modelled machine; nothing is measured.
pub(crate) async fn daemon() -> Result<(Daemon, Shape)> {
    let daemon = Daemon::start_with(&["--machine", "model:m4-pro"]).await?;
    let shape = shape()?;
    daemon.calibrate(&[shape]).await?;
    Ok((daemon, shape))
}

fn shape() -> Result<Shape> {
    Ok(Shape::parse(&format!("{ROWS}x4096x14336"), WeightFormat::F16, Layout::default())?)
}

/// Options of a client that waits until the daemon answers.
pub(crate) fn options(socket: SocketPath) -> Result<Options> {
    let mut options = Options::new(socket, "benchmark", vec![shape()?.layer()]);
    options.limit = Duration::from_secs(10);
    Ok(options)
}

pub(crate) fn measure() -> Result<Vec<Figure>> {
    let runtime = runtime()?;
    let (daemon, shape) = runtime.block_on(daemon())?;
    let mut options = options(daemon.socket().clone())?;
    options.state_directory = Some(daemon.state());
    let mut figures = decisions(&options)?;
    figures.push(system_calls::measure(&options)?);
    figures.extend(attaching(&options)?);
    figures.push(in_process()?);
    figures.extend(runtime.block_on(crowd::measure(&daemon, shape))?);
    Ok(figures)
}

fn attach(options: &Options) -> Result<(Attachment, LayerHandle)> {
    let attachment = Attachment::attach(options.clone());
    let layer = options.layers.first().and_then(|layer| attachment.layer(*layer)).context("no layer")?;
    Ok((attachment, layer))
}

fn decisions(options: &Options) -> Result<Vec<Figure>> {
    let (attachment, layer) = attach(options)?;
    ensure!(attachment.basis() == Basis::Attached, "the daemon does not answer");
    let region = attachment.region("benchmark", ArmSet::mlx_lm(), &[(layer, 16)], 10.0);
    // A run of products is one busy time.
    let _busy = attachment.busy();
    let rows = || {
        black_box(attachment.secondary_rows(layer, black_box(ROWS)));
    };
    let arm = || {
        black_box(region.arm(black_box(ROWS)));
    };
    let call = || region.begin(black_box(ROWS)).end();
    let decode = || region.begin(black_box(1)).end();
    let clocks = || {
        black_box((Instant::now(), Instant::now()));
    };
    // The first call of so many rows allocates.
    call();
    let allocated = allocation_counter::measure(|| {
        for _ in 0..BATCH {
            rows();
            arm();
            call();
            decode();
        }
    });
    let both = nanoseconds(|| {
        rows();
        arm();
    });
    let figure = |name: &str, times: Vec<f64>, limit| {
        let middle = Interval::exact(median(&times).unwrap_or(f64::NAN));
        Figure::new(name, middle, "ns", limit, times.len(), None).raw(times)
    };
    Ok(vec![
        figure("rows of a layer and arm of its region, p50", both, Limit::AtMost(30.0)),
        figure("rows of a layer alone, p50", nanoseconds(rows), Limit::None),
        figure("two reads of the clock, p50", nanoseconds(clocks), Limit::None),
        figure("begin and end of a call, p50", nanoseconds(call), Limit::AtMost(100.0))
            .note("calls of no length: of these 64 are taken in every 250 ms"),
        figure("begin and end of a decode step, p50", nanoseconds(decode), Limit::None),
        figure("end of a call of 200 us or more, p50", taken_in(&region), Limit::None)
            .note("with taking it in"),
        Figure::new(
            "allocations of decisions and calls",
            Interval::exact(allocated.count_total as f64),
            "",
            Limit::AtMost(0.0),
            BATCH as usize,
            None,
        ),
    ])
}

/// Time of one `act`, in ns, once a batch.
fn nanoseconds(act: impl Fn()) -> Vec<f64> {
    let batch = |_| {
        let start = Instant::now();
        for _ in 0..BATCH {
            act();
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
    };
    (0..BATCHES).map(batch).collect()
}

/// Time of the end of calls that are long enough to be taken in at once, in ns.
fn taken_in(region: &RegionHandle) -> Vec<f64> {
    let end = |_| {
        let call = region.begin(ROWS);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(210) {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        call.end();
        start.elapsed().as_secs_f64() * 1e9
    };
    (0..2000).map(end).collect()
}

fn attaching(options: &Options) -> Result<Vec<Figure>> {
    let file = fusion_proto::state::snapshot_file(options.state_directory.as_deref().context("no state")?);
    let mut alone = options.clone();
    alone.socket = SocketPath::new(file.with_file_name("nobody.sock"))?;
    let start = Instant::now();
    let written = || std::fs::read(&file).ok().and_then(|bytes| fusion_proto::snapshot::decode(&bytes).ok());
    while written().is_none_or(|snapshot| snapshot.layers.is_empty()) {
        ensure!(start.elapsed() < Duration::from_secs(10), "the snapshot file is not written");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (mut with, mut without, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ATTACHES {
        with.push(usable(options, Basis::Attached)?);
        without.push(usable(&alone, Basis::Snapshot)?);
        let start = Instant::now();
        black_box(fusion_proto::snapshot::decode(&std::fs::read(&file)?)?);
        read.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let figure = |name: &str, times: Vec<f64>, limit| {
        let middle = Interval::exact(median(&times).unwrap_or(f64::NAN));
        Figure::new(name, middle, "ms", limit, times.len(), None).raw(times)
    };
    Ok(vec![
        figure("attach to first usable ratio, p50", with, Limit::AtMost(5.0)),
        figure("attach without a daemon, by its snapshot file, p50", without, Limit::None),
        figure("reading the snapshot file, p50", read, Limit::None),
    ])
}

/// The way without a daemon: the layers of a model calibrated in the process that wants to use them, on this machine's development pair.
fn in_process() -> Result<Figure> {
    let arguments =
        ["qwen2.5-0.5b", "--development", "--blocks", "1", "--rows", "512", "--calibrate", "--rounds", "0"];
    let calibrated = example::run(None, &arguments)?.calibrated;
    let times: Vec<f64> = calibrated.iter().map(|layer| layer.ms).collect();
    let shapes: Vec<&str> = calibrated.iter().map(|layer| layer.shape.as_str()).collect();
    let middle = Interval::exact(median(&times).unwrap_or(f64::NAN));
    let figure =
        Figure::new("calibrating a layer in the process, p50", middle, "ms", Limit::None, times.len(), None);
    Ok(figure
        .note(format!("{:.0} ms for all of {}", times.iter().sum::<f64>(), shapes.join(", ")))
        .raw(times))
}

/// Time until a ratio can be used, in ms.
fn usable(options: &Options, basis: Basis) -> Result<f64> {
    let start = Instant::now();
    let (attachment, layer) = attach(options)?;
    let rows = attachment.secondary_rows(layer, ROWS);
    let ms = start.elapsed().as_secs_f64() * 1e3;
    ensure!(rows > 0 && attachment.basis() == basis, "{rows} rows, {:?}", attachment.basis());
    Ok(ms)
}
