//! What a decode step costs through the gate: nothing is decided there, so nothing may be paid.

use anyhow::Result;
use fusion_calibrations::stats::{CONFIDENCE, ratio_of_pairs};

use crate::block::shapes_of;
use crate::calls::{self, Counted};
use crate::daemon::{Daemon, runtime};
use crate::example;
use crate::figure::{Figure, Limit};

/// Rows that went through before each step.
const CONTEXT: &str = "512";
/// Model, blocks, and pairs in each round.
const MODELS: [(&str, &str, &str); 2] = [("qwen2.5-0.5b", "2", "150"), ("llama-3.2-1b", "1", "100")];
/// Rounds.
const ROUNDS: &str = "5";

/// Eager steps and the gate's, side by side. The clock runs from before the gate is asked until the result is there; telling it the time comes after the clock and takes
/// about 100 ns (the group `client`).
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let runtime = runtime()?;
    let daemon = runtime.block_on(Daemon::start(&["--pair", "development"]))?;
    let mut figures = Vec::new();
    for (model, blocks, pairs) in MODELS {
        // One layer is enough: something is known, and the gate has reason to think.
        let shapes: Vec<_> = shapes_of(model, 512)?.into_iter().rev().take(1).collect();
        let (_, failed) = runtime.block_on(daemon.calibrate_patiently(&shapes, 2))?;
        let arguments = [
            model,
            "--development",
            "--blocks",
            blocks,
            "--rows",
            "1",
            "--context",
            CONTEXT,
            "--turns",
            "eager,gate",
            "--rounds",
            ROUNDS,
            "--pairs",
            pairs,
        ];
        let document = example::run(Some(&daemon), &arguments)?;
        let name = format!("decode step of {model}, {blocks} blocks: gate / stock");
        let mut pairs = calls::beside(&document.calls, "eager", Counted::Quiet);
        pairs.iter_mut().for_each(|(stock, gate)| std::mem::swap(stock, gate));
        let own = ratio_of_pairs(&calls::neighbours(&document.calls, Counted::Quiet), CONFIDENCE);
        let limit = Limit::AtMost(1.005);
        let figure = match ratio_of_pairs(&pairs, CONFIDENCE) {
            Some(ratio) => Figure::new(name, ratio, "times", limit, pairs.len(), own)
                .raw(pairs.iter().map(|(gate, stock)| gate / stock).collect()),
            None => Figure::unknown(name, "times", limit).note("every call was disturbed by other programs"),
        };
        let disturbed = document.calls.iter().filter(|call| call.disturbed).count();
        let note = format!("{disturbed} of {} steps disturbed and left out", document.calls.len());
        figures.push(figure.note(note).note(if failed.is_empty() {
            "a layer is known"
        } else {
            "no layer is known"
        }));
    }
    Ok(figures)
}
