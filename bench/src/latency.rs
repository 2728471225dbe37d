//! What a question costs over the socket, next to a call that does nothing.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_calibrations::stats::{CONFIDENCE, Interval, median, ratio_of_pairs};
use fusion_client::Client;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::daemon::{Daemon, program, runtime};
use crate::figure::{Figure, Limit};

/// Blocks of calls, alternating between the two servers.
const BLOCKS: usize = 100;
/// Calls in a block; the first is thrown away.
const CALLS: usize = 51;

/// Serves nothing but health: a bare unary call of tonic, on one thread as the daemon does.
pub(crate) fn serve_echo(socket: &Path) -> Result<()> {
    runtime()?.block_on(async {
        let (_reporter, health) = tonic_health::server::health_reporter();
        let listener = UnixListenerStream::new(UnixListener::bind(socket)?);
        Ok(Server::builder().add_service(health).serve_with_incoming(listener).await?)
    })
}

pub(crate) fn measure() -> Result<Vec<Figure>> {
    runtime()?.block_on(async {
        let directory = tempfile::tempdir()?;
        let socket = directory.path().join("echo.sock");
        let mut echo = Command::new(program("fusion-bench")?)
            .arg("--echo-server")
            .arg(&socket)
            .stdin(Stdio::null())
            .spawn()
            .context("starting the echo server")?;
        let figures = against(&socket, echo.id()).await;
        let _ = echo.kill();
        let _ = echo.wait();
        figures
    })
}

async fn against(echo: &Path, echo_pid: u32) -> Result<Vec<Figure>> {
    let shape = Shape::parse("512x896x4864", WeightFormat::F32, Layout::default())?;
    let daemon = Daemon::start(&[]).await?;
    // Waking a thread on another core takes longer than on the same one, and the scheduler's choice is a coin's: both servers get one core, the client another.
    pin(Some(echo_pid), 0);
    pin(Some(daemon.pid()), 0);
    pin(None, 1);
    // A busy machine may leave nothing to store; the call costs the same.
    let _ = daemon.calibrate(&[shape]).await;
    let client = daemon.client().await?;
    let mut health = connect(echo).await?;
    let mut own_health = connect(daemon.socket().as_path()).await?;
    let (mut ours, mut bare, mut pairs, mut checks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..BLOCKS {
        let own = block(async || ask(&client, shape).await).await?;
        let other = block(async || check(&mut health).await).await?;
        pairs.extend(median(&own).zip(median(&other)));
        ours.extend(own);
        bare.extend(other);
        checks.extend(block(async || check(&mut own_health).await).await?);
    }
    let middle = |values: &[f64]| Interval::exact(median(values).unwrap_or(f64::NAN));
    let during = during_calibration(&daemon, shape).await?;
    let ratio = ratio_of_pairs(&pairs, CONFIDENCE).context("no block was timed")?;
    let own = block_spread(&pairs);
    Ok(vec![
        Figure::new("bare tonic call, p50", middle(&bare), "us", Limit::None, bare.len(), None),
        Figure::new("the same call of fusiond, p50", middle(&checks), "us", Limit::None, checks.len(), None),
        Figure::new("GetRatio, p50", middle(&ours), "us", Limit::None, ours.len(), None),
        Figure::new("GetRatio / bare tonic call, p50", ratio, "times", Limit::AtMost(1.5), pairs.len(), own)
            .raw(pairs.iter().map(|(ours, bare)| ours / bare).collect()),
        Figure::new("GetRatio while a calibration runs, p99", during.0, "us", Limit::None, during.1, None),
    ])
}

/// Puts the main thread of a process, or this thread, on one core; where there is no such core, or no way to say so, it stays where it is.
#[cfg(not(target_os = "linux"))]
fn pin(_process: Option<u32>, _core: usize) {}

/// Puts the main thread of a process, or this thread, on one core; where there is no such core, it stays where it is.
#[cfg(target_os = "linux")]
fn pin(process: Option<u32>, core: usize) {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    let pid = process.and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
    let _ = rustix::thread::sched_setaffinity(pid, &cores);
}

/// The bare call of each block against that of the next: what two equal things differ by here.
fn block_spread(pairs: &[(f64, f64)]) -> Option<Interval> {
    let neighbours: Vec<(f64, f64)> = pairs.chunks_exact(2).map(|two| (two[0].1, two[1].1)).collect();
    ratio_of_pairs(&neighbours, CONFIDENCE)
}

async fn connect(socket: &Path) -> Result<HealthClient<Channel>> {
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display()))?;
    let start = Instant::now();
    loop {
        match endpoint.connect().await {
            Ok(channel) => return Ok(HealthClient::new(channel)),
            Err(error) if start.elapsed() > Duration::from_secs(10) => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn ask(client: &Client, shape: Shape) -> Result<()> {
    client.get_ratio(shape, None).await?;
    Ok(())
}

async fn check(health: &mut HealthClient<Channel>) -> Result<()> {
    health.check(HealthCheckRequest { service: String::new() }).await?;
    Ok(())
}

/// Times calls, in microseconds.
async fn block(mut call: impl AsyncFnMut() -> Result<()>) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let start = Instant::now();
        call().await?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.remove(0);
    Ok(times)
}

/// The 99th percentile while shapes are being measured: both cores are busy then.
async fn during_calibration(daemon: &Daemon, shape: Shape) -> Result<(Interval, usize)> {
    let client = daemon.client().await?;
    let mut times = Vec::new();
    let calibration = async {
        let shapes = ["2048x2048x2048", "2048x2048x4096", "2048x4096x2048"];
        let shapes: Vec<Shape> = shapes
            .iter()
            .filter_map(|text| Shape::parse(text, WeightFormat::F32, Layout::default()).ok())
            .collect();
        // Whether it finds a quiet moment isn't asked here.
        let _ = daemon.calibrate(&shapes).await;
    };
    let questions = async {
        loop {
            let start = Instant::now();
            if ask(&client, shape).await.is_err() {
                break;
            }
            times.push(start.elapsed().as_secs_f64() * 1e6);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        () = calibration => {}
        () = questions => {}
    }
    times.sort_by(f64::total_cmp);
    let at = times.len().saturating_sub(1) * 99 / 100;
    Ok((Interval::exact(times.get(at).copied().unwrap_or(f64::NAN)), times.len()))
}
