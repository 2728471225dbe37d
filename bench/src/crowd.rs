//! A thousand attached clients: how soon a changed ratio reaches all, and what each costs the daemon.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fusion_calibrations::lines::Lines;
use fusion_calibrations::shape::Shape;
use fusion_calibrations::stats::Interval;
use fusion_client::v1::attach_reply::Message as Told;
use fusion_client::v1::attach_request::Message as Said;
use fusion_client::v1::attachment_client::AttachmentClient;
use fusion_client::{PROTOCOL, v1};
use rustix::process::{Resource, Rlimit};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::daemon::Daemon;
use crate::figure::{Figure, Limit};
use crate::rest::resident_mib;

/// Clients.
const CROWD: usize = 1000;
/// Changes of the ratio.
const ROUNDS: usize = 20;
/// How long a change may take at all.
const PATIENCE: Duration = Duration::from_secs(10);

struct Member {
    say: mpsc::Sender<v1::AttachRequest>,
    told: Streaming<v1::AttachReply>,
    snapshot: v1::Snapshot,
}

impl Member {
    async fn attach(daemon: &Daemon, shape: Shape) -> Result<Self> {
        let (say, requests) = mpsc::channel(4);
        let layers = vec![shape.layer().into()];
        let hello = v1::Hello { pid: std::process::id(), protocol: PROTOCOL, layers, ..Default::default() };
        say.send(v1::AttachRequest { message: Some(Said::Hello(hello)) }).await?;
        let mut client = AttachmentClient::connect(format!("unix://{}", daemon.socket())).await?;
        let mut told = client.attach(ReceiverStream::new(requests)).await?.into_inner();
        match told.message().await?.and_then(|reply| reply.message) {
            Some(Told::Snapshot(snapshot)) => Ok(Self { say, told, snapshot }),
            other => bail!("no snapshot but {other:?}"),
        }
    }
}

pub(crate) async fn measure(daemon: &Daemon, shape: Shape) -> Result<Vec<Figure>> {
    allow_connections(CROWD as u64 + 100)?;
    let before = resident_mib(daemon.pid())?;
    let runner = Member::attach(daemon, shape).await?;
    let (tell, mut heard) = mpsc::channel(CROWD);
    for _ in 0..CROWD {
        let mut member = Member::attach(daemon, shape).await?;
        let tell = tell.clone();
        tokio::spawn(async move {
            // It stays attached as long as it can speak.
            let _say = member.say;
            while let Ok(Some(reply)) = member.told.message().await {
                let news = matches!(reply.message, Some(Told::Delta(delta)) if !delta.layers.is_empty());
                if news && tell.send(Instant::now()).await.is_err() {
                    return;
                }
            }
        });
    }
    let per_client_kib = (resident_mib(daemon.pid())? - before) * 1024.0 / CROWD as f64;
    let times = updates(&runner, &mut heard, shape).await?;
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    let figure = |name: &str, value: f64, unit, limit, samples| {
        Figure::new(name, Interval::exact(value), unit, limit, samples, None)
    };
    Ok(vec![
        figure("a changed ratio reaches 1,000 clients, p50", at(50), "ms", Limit::None, times.len()),
        figure("a changed ratio reaches 1,000 clients, p99", at(99), "ms", Limit::AtMost(100.0), times.len())
            .note("all clients in one thread of this program")
            .raw(times.clone()),
        figure("daemon's memory a client", per_client_kib, "KiB", Limit::AtMost(64.0), CROWD),
    ])
}

/// Times from what one client sees until the others know, in ms, sorted.
async fn updates(runner: &Member, heard: &mut mpsc::Receiver<Instant>, shape: Shape) -> Result<Vec<f64>> {
    let known = runner.snapshot.layers.first().and_then(|layer| layer.lines.as_ref());
    let lines = Lines::from(known.context("the layer has no lines")?);
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let slower = if round % 2 == 0 { 1.4 } else { 1.0 };
        let start = Instant::now();
        // Corrections are damped: two calls are always news.
        let splits = vec![observation(&lines, slower, shape); 2];
        let said = Said::Observations(v1::Observations { splits });
        runner.say.send(v1::AttachRequest { message: Some(said) }).await?;
        let mut arrived = Vec::new();
        while arrived.len() < CROWD {
            let at = tokio::time::timeout(PATIENCE, heard.recv()).await;
            let at = at.with_context(|| format!("round {round}: {} heard of it", arrived.len()))?;
            arrived.push(at.context("everybody left")?);
        }
        times.extend(arrived.iter().map(|at| at.duration_since(start).as_secs_f64() * 1e3));
        tokio::time::sleep(Duration::from_millis(200)).await;
        while heard.try_recv().is_ok() {}
    }
    ensure!(!times.is_empty(), "nothing was told");
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// A split call of a machine whose secondary unit is `slower` than its lines.
fn observation(lines: &Lines, slower: f64, shape: Shape) -> v1::SplitObservation {
    let rows = shape.rows();
    let secondary_rows = rows / 4;
    let primary = lines.primary_ms_per_row * f64::from(rows - secondary_rows);
    let secondary = lines.secondary_ms_per_row * slower * f64::from(secondary_rows);
    v1::SplitObservation {
        layer: Some(shape.layer().into()),
        rows,
        secondary_rows,
        total_ms: primary.max(secondary),
        primary_finish_ms: primary,
        secondary_finish_ms: secondary,
        // The one that ends first is waited for first: both times are exact.
        secondary_waited_first: secondary < primary,
    }
}

/// Raises this program's limit of open files.
fn allow_connections(wanted: u64) -> Result<()> {
    let before = rustix::process::getrlimit(Resource::Nofile);
    if before.current.is_none_or(|now| now >= wanted) {
        return Ok(());
    }
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..before })
        .context("raising the limit of open files")
}
