//! A daemon of the benchmark's own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fusion_calibrations::shape::Shape;
use fusion_client::v1::{self, calibrate_event::Event};
use fusion_client::{Client, SocketPath};
use tempfile::TempDir;

/// A program that was built beside this one.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let path = own.parent().context("this program lies nowhere")?.join(name);
    if path.exists() { Ok(path) } else { bail!("{} is missing: run this as 'make bench'", path.display()) }
}

/// A runtime for a client.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// A running daemon with its own socket and state, ended when dropped.
pub(crate) struct Daemon {
    child: Child,
    socket: SocketPath,
    directory: TempDir,
}

impl Daemon {
    /// Starts one whose worker gets `worker_arguments`.
    pub(crate) async fn start(worker_arguments: &[&str]) -> Result<Self> {
        let arguments: Vec<&str> =
            worker_arguments.iter().flat_map(|argument| ["--worker-arg", argument]).collect();
        Self::start_with(&arguments).await
    }

    /// Starts one with more `arguments`.
    pub(crate) async fn start_with(arguments: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let socket = SocketPath::new(directory.path().join("fusiond.sock"))?;
        let mut command = Command::new(program("fusiond")?);
        command.arg("--socket").arg(socket.as_path()).arg("--state-dir").arg(directory.path().join("state"));
        command.args(arguments);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().context("starting fusiond")?;
        let daemon = Self { child, socket, directory };
        let start = Instant::now();
        while daemon.client().await.is_err() {
            if start.elapsed() > Duration::from_secs(20) {
                bail!("fusiond does not answer");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(daemon)
    }

    pub(crate) async fn client(&self) -> Result<Client> {
        Ok(Client::connect(&self.socket).await?)
    }

    pub(crate) fn socket(&self) -> &SocketPath {
        &self.socket
    }

    /// Where it keeps its state.
    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Measures shapes; why the first failed, if one did.
    pub(crate) async fn calibrate(&self, shapes: &[Shape]) -> Result<Vec<v1::ShapeFinished>> {
        let (finished, failed) = self.calibrate_once(shapes).await?;
        match failed.into_iter().next() {
            Some(failed) => bail!("{}", failed.reason),
            None => Ok(finished),
        }
    }

    /// Measures shapes, those that failed again, `attempts` times in all: what was measured, and what failed last.
    pub(crate) async fn calibrate_patiently(
        &self,
        shapes: &[Shape],
        attempts: usize,
    ) -> Result<(Vec<v1::ShapeFinished>, Vec<v1::ShapeFailed>)> {
        let start = Instant::now();
        let (mut finished, mut failed): (Vec<v1::ShapeFinished>, Vec<v1::ShapeFailed>) =
            (Vec::new(), Vec::new());
        let mut left = shapes.to_vec();
        for _ in 0..attempts {
            if left.is_empty() {
                break;
            }
            let (more, fewer) = self.calibrate_once(&left).await?;
            finished.extend(more);
            failed = fewer;
            left = failed
                .iter()
                .map(|failed| {
                    Shape::try_from(failed.shape.as_ref().context("a failure has no shape")?)
                        .map_err(Into::into)
                })
                .collect::<Result<_>>()?;
        }
        let (known, lost) = (finished.len(), failed.len());
        eprintln!("  {known} shapes calibrated in {:.0} s, {lost} failed", start.elapsed().as_secs_f64());
        Ok((finished, failed))
    }

    async fn calibrate_once(
        &self,
        shapes: &[Shape],
    ) -> Result<(Vec<v1::ShapeFinished>, Vec<v1::ShapeFailed>)> {
        let client = self.client().await?;
        let mut calibration = client.calibrate(shapes, v1::Freshness::Remeasure, "benchmark").await?;
        let (mut finished, mut failed) = (Vec::new(), Vec::new());
        while let Some(event) = calibration.next().await? {
            match event {
                Event::ShapeFinished(shape) => finished.push(shape),
                Event::ShapeFailed(shape) => failed.push(shape),
                _ => {}
            }
        }
        Ok((finished, failed))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
