//! The block example, as a process of its own: it links MLX, and this program doesn't.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use fusion_frames::{LARGE_PAGES, ONE_BLAS_THREAD};

use crate::calls::Document;
use crate::daemon::{Daemon, program};

/// Runs the example with `arguments`, attached to `daemon` if there is one.
pub(crate) fn run(daemon: Option<&Daemon>, arguments: &[&str]) -> Result<Document> {
    let mut command = Command::new(program("examples/prefill")?);
    command.args(arguments).arg("--json").envs([ONE_BLAS_THREAD, LARGE_PAGES]).stdin(Stdio::null());
    if let Some(daemon) = daemon {
        command.arg("--daemon").arg("--socket").arg(daemon.socket().as_path());
        command.env(fusion_proto::state::STATE_VARIABLE, daemon.state());
    }
    let output = command.stderr(Stdio::inherit()).output().context("starting the block example")?;
    if !output.status.success() {
        bail!("the block example failed ({}); its message is above: {arguments:?}", output.status);
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("reading what the block example printed: {arguments:?}"))
}
