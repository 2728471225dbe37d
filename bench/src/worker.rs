//! A worker, asked directly.

use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use fusion_calibrations::sample::is_disturbed;
use fusion_calibrations::shape::Shape;
use fusion_calibrations::stats::{CONFIDENCE, Interval, ratio_of_pairs};
use fusion_frames::{Reply, Request, Timed};

/// Pairs of stock calls that tell whether the machine is quiet.
const SELF_PAIRS: usize = 10;

/// A running worker, ended when dropped.
pub(crate) struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl Worker {
    /// Starts the worker that was built beside this program, and prepares a shape.
    pub(crate) fn start(arguments: &[&str], shape: Shape) -> Result<Self> {
        let mut child = Command::new(crate::daemon::program("fusion-worker")?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting fusion-worker")?;
        let stdin = child.stdin.take().context("the worker has no standard input")?;
        let stdout = child.stdout.take().context("the worker has no standard output")?;
        let mut worker = Self { child, stdin, stdout };
        match worker.receive()? {
            Reply::Hello(_) => {}
            other => bail!("the worker says {other:?} instead of hello"),
        }
        match worker.ask(&Request::Prepare(shape.into()))? {
            Reply::Prepared { .. } => Ok(worker),
            other => bail!("the worker can't prepare {shape}: {other:?}"),
        }
    }

    fn receive(&mut self) -> Result<Reply> {
        fusion_frames::read(&mut self.stdout)?.context("the worker ended")
    }

    fn ask(&mut self, request: &Request) -> Result<Reply> {
        fusion_frames::write(&mut self.stdin, request)?;
        self.receive()
    }

    /// One call, and whether nothing disturbed it.
    pub(crate) fn sample(&mut self, request: &Request) -> Result<(Timed, bool)> {
        match self.ask(request)? {
            Reply::Timed(timed) => {
                let ms = |ns: u64| ns as f64 / 1e6;
                Ok((timed, !is_disturbed(timed.run_delay_ns.map(ms), ms(timed.total_ns))))
            }
            other => bail!("the worker answers {other:?} to {request:?}"),
        }
    }

    /// Stock against itself: pairs of adjacent calls, after one that is thrown away. Tells whether the machine is quiet.
    pub(crate) fn compare_with_itself(&mut self) -> Result<Option<Interval>> {
        self.time(&Request::Stock)?;
        let pairs = (0..SELF_PAIRS)
            .map(|_| Ok((self.time(&Request::Stock)?.0, self.time(&Request::Stock)?.0)))
            .collect::<Result<Vec<_>>>()?;
        Ok(ratio_of_pairs(&pairs, CONFIDENCE))
    }

    /// Milliseconds of one call, and whether nothing disturbed it.
    pub(crate) fn time(&mut self, request: &Request) -> Result<(f64, bool)> {
        let (timed, quiet) = self.sample(request)?;
        Ok((timed.total_ns as f64 / 1e6, quiet))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
