//! The built-in models.

use fusion_calibrations::models::{Model, ModelLayer};
use fusion_calibrations::shape::WeightFormat;

use super::table::{Column, fields, table};
use crate::failure::Failure;
use crate::output::Output;

/// Every model.
pub(crate) fn list(models: &[Model], output: Output) -> String {
    let stacks = [
        (
            Column::text("name", |model: &Model| model.name.clone()),
            Some(Column::text("title", |model: &Model| model.title.clone())),
        ),
        (Column::number("blocks", |model| model.blocks.to_string()), None),
        (Column::number("hidden", |model| model.hidden.to_string()), None),
        (Column::number("intermediate", |model| model.intermediate.to_string()), None),
    ];
    table(models, &stacks, output)
}

/// The layers of one model.
pub(crate) fn show(model: &Model, output: Output) -> Result<String, Failure> {
    let layers = model.layers(WeightFormat::F32)?;
    let aliases = (!model.aliases.is_empty()).then(|| model.aliases.join(", "));
    let size = format!(
        "{} blocks, hidden {}, intermediate {}, {} heads of {} ({} for keys and values)",
        model.blocks, model.hidden, model.intermediate, model.heads, model.head_dim, model.kv_heads
    );
    let fields = fields(
        &[
            ("name", Some(model.name.clone())),
            ("also", aliases),
            ("size", Some(size)),
            ("evidence", Some(model.evidence.clone())),
            ("note", model.note.clone()),
        ],
        output,
    );
    let stacks = [
        (Column::text("layer", ModelLayer::label), None),
        (Column::number("inputs K", |known: &ModelLayer| known.layer.inputs().to_string()), None),
        (Column::number("outputs N", |known| known.layer.outputs().to_string()), None),
        (Column::number("per block", |known| known.per_block().to_string()), None),
    ];
    Ok(format!(" {}\n{fields}\n{}", output.bold(&model.title), table(&layers, &stacks, output)))
}
