//! The block example, as a process of its own: it links MLX, and this program doesn't.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::calls::Document;
use crate::daemon::{Daemon, program};

/// What the worker gives itself on a development pair: a core for each unit, and large pages.
pub(crate) const DEVELOPMENT_PAIR: [(&str, &str); 2] =
    [("OPENBLAS_NUM_THREADS", "1"), ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")];

/// Runs the example with `arguments`, attached to `daemon` if there is one.
pub(crate) fn run(daemon: Option<&Daemon>, arguments: &[&str]) -> Result<Document> {
    let mut command = Command::new(program("examples/prefill")?);
    command.args(arguments).arg("--json").envs(DEVELOPMENT_PAIR).stdin(Stdio::null());
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
