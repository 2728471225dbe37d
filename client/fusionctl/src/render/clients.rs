//! Who is attached.

use fusion_client::{ClientActivity, ServedLayer, v1};

use super::table::{Column, Field, Stack, fields, table};
use super::words;
use crate::commands::clients::Shown;
use crate::output::Output;

const LEGEND: &str = "layers: how many, and what answers for them: exact, or the nearest fallback (none: stock); \
saved: against stock's reference times, since it attached; observed: calls that taught the daemon; explores: \
holds the lease to try other arms";

/// Every client, and its layers where they were asked for.
pub(crate) fn list(shown: &[Shown], output: Output) -> String {
    if shown.is_empty() {
        return "no client is attached\n".to_owned();
    }
    let mut text = table(shown, &stacks(), output);
    let engines = shown.iter().filter_map(|shown| other_engine(shown, output));
    let remarks: Vec<Field> = engines.chain(shown.iter().filter_map(|shown| worker(shown, output))).collect();
    if !remarks.is_empty() {
        text += &format!("\n{}", fields(&remarks, output));
    }
    for Shown { client, layers } in shown {
        let Some(layers) = layers else { continue };
        let title = format!("process {}, {}", client.pid, words::plain(&client.name));
        text += &format!("\n {}\n", output.bold(&title));
        text += &if layers.is_empty() {
            " it named no layers\n".to_owned()
        } else {
            table(layers, &layer_stacks(), output)
        };
    }
    text + &format!("\n{}", fields(&[("columns", Some(LEGEND.to_owned()))], output))
}

fn stacks() -> Vec<Stack<Shown>> {
    vec![
        (
            Column::number("process", |shown: &Shown| shown.client.pid.to_string()),
            Some(Column::number("observed", |shown| shown.client.observations.to_string())),
        ),
        (
            Column::text("name", |shown| words::plain(&shown.client.name)),
            Some(Column::text("library", |shown| words::plain(&shown.client.version))),
        ),
        (
            Column::text("state", |shown| activity(shown).to_owned()),
            Some(Column::text("explores", |shown| {
                if shown.client.explores { "explores" } else { "-" }.to_owned()
            })),
        ),
        (
            Column::text("layers", layers),
            Some(Column::text("attached", |shown| words::moment(shown.client.attached_at_unix_ms))),
        ),
        (
            Column::number("saved", |shown| match shown.client.split_calls {
                0 => "-".to_owned(),
                _ => words::saved(shown.client.saved_ms),
            }),
            Some(Column::number("split calls", |shown| shown.client.split_calls.to_string())),
        ),
    ]
}

fn activity(shown: &Shown) -> &'static str {
    match shown.client.activity {
        ClientActivity::Busy => "busy",
        ClientActivity::Idle => "idle",
    }
}

/// "7 exact, 2 other rows": every layer is answered for by one source.
fn layers(shown: &Shown) -> String {
    let sources = &shown.client.sources;
    let parts: Vec<String> = sources.iter().map(|(source, layers)| format!("{layers} {source}")).collect();
    if parts.is_empty() { shown.client.layers.to_string() } else { parts.join(", ") }
}

fn other_engine(shown: &Shown, output: Output) -> Option<Field> {
    let engine = v1::Engine::from(shown.client.other_engine.as_ref()?);
    let text =
        format!("process {} runs another: {}", shown.client.pid, words::plain(&words::engine(&engine)));
    Some(("engine", Some(output.yellow(&text))))
}

/// What measures for a client beside the daemon's own worker, or why it doesn't.
fn worker(shown: &Shown, output: Output) -> Option<Field> {
    let worker = shown.client.worker.as_ref()?;
    let program = words::plain(&worker.program);
    let text = match &worker.unused_because {
        None => format!("process {} is measured for by '{program}'", shown.client.pid),
        Some(why) => {
            let text = format!("process {} named '{program}': {}", shown.client.pid, words::plain(why));
            output.yellow(&text)
        }
    };
    Some(("worker", Some(text)))
}

fn layer_stacks() -> Vec<Stack<ServedLayer>> {
    vec![
        (Column::text("layer", |layer: &ServedLayer| words::shape(&layer.shape.into(), true)), None),
        (Column::text("served from", |layer| layer.source.to_string()), None),
        (
            Column::text("numbers", |layer| {
                words::provenance_word(layer.provenance, layer.stale_reason.is_some())
            }),
            None,
        ),
    ]
}
