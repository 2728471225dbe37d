//! Chip, system, MLX and the tools that build it.

use fusion_client::v1;

use crate::doctor::Check;
use crate::doctor::facts::{Facts, Ran};
use crate::doctor::transcripts;
use crate::render::words;

pub(super) fn chip(facts: &Facts) -> Check {
    let known = facts.daemon.as_ref().ok().and_then(|status| status.chip.as_ref());
    match known {
        None => Check::warn(
            "chip",
            "not known",
            "no worker of this daemon has told which chip this is",
            "start the daemon; see the checks 'daemon' and 'mlx'",
        ),
        Some(chip) if !chip.pair_label.is_empty() => Check::warn(
            "chip",
            format!("{}; {}", words::chip(chip), chip.pair_label),
            "the numbers of this machine say nothing about a Mac's GPU and CPU",
            "fine for developing; on a Mac with Apple silicon MLX finds the GPU by itself",
        ),
        Some(chip) => Check::pass("chip", words::chip(chip)),
    }
}

pub(super) fn release(facts: &Facts) -> Check {
    let found = match &facts.release {
        Ran::Ended { code: 0, said } => transcripts::release(said),
        _ => None,
    };
    match found {
        Some(release) => Check::pass("os", release),
        None => Check::warn(
            "os",
            "the system doesn't say which it is",
            "reports of this machine lack it",
            "add it by hand to what you report",
        ),
    }
}

pub(super) fn mlx(facts: &Facts) -> Check {
    const REMEDY: &str = "'fusion-worker --self-test' shows the trouble in full; in a checkout 'make setup' says what is missing";
    let status = match (&facts.daemon, &facts.worker) {
        (Ok(status), _) => status,
        (Err(_), Some(Ok(engine))) => {
            return Check::pass(
                "mlx",
                format!("{}, as the worker says that no daemon started", words::engine(engine)),
            );
        }
        (Err(_), Some(Err(why))) => {
            return Check::fail("mlx", why, "the worker fails, so nothing can be measured", REMEDY);
        }
        (Err(_), None) => {
            return Check::warn("mlx", "not known", "neither a daemon nor a worker was there to ask", REMEDY);
        }
    };
    let worker = status.worker.clone().unwrap_or_default();
    if worker.health() == v1::Health::Failed {
        return Check::fail("mlx", worker.detail, "the worker fails, so nothing can be measured", REMEDY);
    }
    match &status.engine {
        Some(engine) => Check::pass("mlx", words::engine(engine)),
        None => {
            Check::warn("mlx", "not known yet", "no worker has run since the daemon was installed", REMEDY)
        }
    }
}

/// What building MLX needs. An installed fusiond needs neither.
pub(super) fn build_tools(facts: &Facts) -> Vec<Check> {
    const MEANING: &str = "MLX can't be built from source here; an installed fusiond doesn't mind";
    let tool = |id, ran: &Ran, missing: &str, remedy| match transcripts::found_path(ran) {
        Some(path) => Check::pass(id, path),
        None => Check::warn(id, missing, MEANING, remedy),
    };
    let xcode =
        facts.xcode.as_ref().map(|ran| tool("xcode", ran, "no Xcode tools", "xcode-select --install"));
    let metal = facts.metal.as_ref().map(|ran| {
        tool(
            "metal-compiler",
            ran,
            "no Metal compiler",
            "install Xcode, then xcodebuild -downloadComponent MetalToolchain",
        )
    });
    xcode.into_iter().chain(metal).collect()
}
