//! `fusionctl bench`: a Python program makes the calls, since that is where MLX-LM runs; what they mean is worked out here.

pub(crate) mod verdict;

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use fusion_client::{Client, SocketPath, v1};
use serde_json::Value;

use crate::arguments::{Bench, Ttft};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::render;
use verdict::{Measured, Verdict};

/// The module of fusiond-client that measures.
const MODULE: &str = "fusiond.mlx_lm.ttft";
/// Names the Python to run it with.
const PYTHON_VARIABLE: &str = "FUSION_PYTHON";

pub(super) async fn run(command: &Bench, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let Bench::Ttft(ttft) = command;
    let before = status(socket).await;
    if before.is_none() {
        output.tell("no daemon answers: what is accelerated runs as stock, unless its snapshot is there");
    }
    let raw = measure(ttft, socket, output)?;
    let measured: Measured = serde_json::from_value(raw.clone()).map_err(|error| {
        Failure::ended(Exit::BadData, format!("{MODULE} printed something else: {error}"))
    })?;
    let verdicts: Vec<Verdict> = measured.lengths.iter().map(Verdict::from).collect();
    let after = status(socket).await;
    let document = document(&verdicts, [&before, &after], &raw)?;
    if let Some(path) = &ttft.output {
        std::fs::write(path, &document).map_err(|error| {
            Failure::ended(Exit::Io, format!("cannot write '{}': {error}", path.display()))
        })?;
    }
    output.print(
        if output.json { document } else { render::bench::ttft(&measured, &verdicts, output) }.as_str(),
    )?;
    match verdicts.iter().find(|verdict| !verdict.is_faithful()) {
        None => Ok(()),
        Some(wrong) => Err(Failure::ended(
            Exit::Negative,
            format!("the tokens of a prompt of {} differ by more than rounding", wrong.prompt_tokens),
        )),
    }
}

/// What the daemon says of itself; a bench without one is still a bench.
async fn status(socket: &SocketPath) -> Option<v1::GetStatusReply> {
    Client::connect(socket).await.ok()?.status().await.ok()
}

fn document(
    verdicts: &[Verdict],
    [before, after]: [&Option<v1::GetStatusReply>; 2],
    raw: &Value,
) -> Result<String, Failure> {
    let status = |status: &Option<v1::GetStatusReply>| {
        status.as_ref().map(|status| json::status::Status::new(status, None)).map(serde_json::to_value)
    };
    let status = |reply| status(reply).transpose().unwrap_or_default();
    let body = serde_json::json!({
        "fusionctl": fusion_client::VERSION,
        "daemon": { "before": status(before), "after": status(after) },
        "lengths": verdicts,
        "measured": raw,
    });
    json::document(Schema::BenchTtft, &body)
}

/// Runs the Python program; its progress goes to our stderr.
fn measure(ttft: &Ttft, socket: &SocketPath, output: Output) -> Result<Value, Failure> {
    let python = python(ttft);
    let lengths: Vec<String> = ttft.prompt_tokens.iter().map(ToString::to_string).collect();
    let mut program = Command::new(&python);
    program.args(["-m", MODULE, "--model", &ttft.model, "--prompt-tokens", &lengths.join(",")]);
    program.args(["--rounds", &ttft.rounds.to_string(), "--tokens", &ttft.tokens.to_string()]);
    program.arg("--socket").arg(socket.as_path());
    if let Some(directory) = &ttft.state_dir {
        program.arg("--state-dir").arg(directory);
    }
    program.stdin(Stdio::null()).stderr(if output.quiet { Stdio::null() } else { Stdio::inherit() });
    let done = program.output().map_err(|error| {
        let message = format!("cannot run '{}': {error}; name a Python with --python", python.display());
        Failure::ended(Exit::Config, message)
    })?;
    if !done.status.success() {
        let message = format!(
            "'{} -m {MODULE}' failed ({}): it needs fusiond-client and mlx-lm, and a model that mlx-lm can load",
            python.display(),
            done.status
        );
        return Err(Failure::ended(Exit::Config, message));
    }
    serde_json::from_slice(&done.stdout)
        .map_err(|error| Failure::ended(Exit::BadData, format!("{MODULE} printed no JSON: {error}")))
}

fn python(ttft: &Ttft) -> PathBuf {
    let named = || env::var_os(PYTHON_VARIABLE).filter(|named| !named.is_empty()).map(PathBuf::from);
    ttft.python.clone().or_else(named).unwrap_or_else(|| PathBuf::from("python3"))
}
