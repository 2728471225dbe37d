//! What a person wants measured: models and shapes, as shapes with names.

use fusion_calibrations::models;
use fusion_calibrations::shape::{Layer, Shape};

use crate::arguments::Weights;
use crate::failure::Failure;

/// A shape to measure once, however many names it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The shape.
    pub(crate) shape: Shape,
    /// What it is in the models it was asked for with, "gate,up"; empty for a shape that was given as such.
    pub(crate) names: Vec<String>,
}

/// The distinct shapes behind `words`, in the order of their first mention.
pub(crate) fn expand(words: &[String], rows: i64, weights: Weights) -> Result<Vec<Target>, Failure> {
    // With several models a layer's name alone would not say whose it is.
    let several = words.iter().filter(|word| !is_shape(word)).count() > 1;
    let mut targets: Vec<Target> = Vec::new();
    for word in words {
        let found = if is_shape(word) {
            vec![Target { shape: Shape::parse(word, weights.format, weights.layout)?, names: Vec::new() }]
        } else {
            model(word, rows, weights, several)?
        };
        for target in found {
            match targets.iter_mut().find(|known| known.shape == target.shape) {
                Some(known) => known.names.extend(
                    target.names.into_iter().filter(|n| !known.names.contains(n)).collect::<Vec<_>>(),
                ),
                None => targets.push(target),
            }
        }
    }
    Ok(targets)
}

/// A title for the daemon's queue: "qwen2.5-0.5b at 512 rows, f32".
pub(crate) fn title(words: &[String], rows: i64, weights: Weights) -> String {
    let rows =
        if words.iter().all(|word| is_shape(word)) { String::new() } else { format!(" at {rows} rows") };
    let words = match words {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        all => all.join(", "),
    };
    format!("{words}{rows}, {}", weights.format)
}

/// No model's name starts with a digit; a shape, also a wrong one, does.
fn is_shape(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | '+'))
}

fn model(name: &str, rows: i64, weights: Weights, with_name: bool) -> Result<Vec<Target>, Failure> {
    let model = models::find(name)?;
    let mut targets = Vec::new();
    for known in model.layers(weights.format)? {
        let layer = Layer::new(known.layer.inputs(), known.layer.outputs(), weights.format, weights.layout)?;
        let label = if with_name { format!("{} {}", model.name, known.label()) } else { known.label() };
        targets.push(Target { shape: layer.with_rows(rows)?, names: vec![label] });
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use fusion_calibrations::shape::{Layout, WeightFormat};

    use super::*;

    const WEIGHTS: Weights = Weights { format: WeightFormat::F32, layout: Layout::InputsByOutputs };

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_model_becomes_its_distinct_layers() {
        let targets = expand(&words(&["qwen2.5-0.5b"]), 64, WEIGHTS).unwrap();
        let found: Vec<_> = targets.iter().map(|t| (t.names.join(";"), t.shape.to_string())).collect();
        assert_eq!(found[0], ("q,o".to_owned(), "64x896x896 f32 kn".to_owned()));
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn a_shape_that_is_named_twice_is_measured_once() {
        let targets = expand(&words(&["64x896x896", "qwen2.5-0.5b", "64x896x896"]), 64, WEIGHTS).unwrap();
        assert_eq!(targets.len(), 4);
        assert_eq!(targets[0].names, ["q,o"]);
        let two = expand(&words(&["qwen2.5-0.5b", "gpt2-xl"]), 64, WEIGHTS).unwrap();
        assert_eq!(two[0].names, ["qwen2.5-0.5b q,o"]);
    }

    #[test]
    fn titles_are_short() {
        assert_eq!(title(&words(&["gpt2-xl"]), 64, WEIGHTS), "gpt2-xl at 64 rows, f32");
        let shapes = ["1x1x1", "2x2x2", "3x3x3", "4x4x4", "5x5x5"];
        assert_eq!(title(&words(&shapes), 64, WEIGHTS), "1x1x1, 2x2x2, 3x3x3 and 2 more, f32");
    }

    #[test]
    fn mistakes_are_explained() {
        for (word, text) in [
            ("qwen2.5-0.5", "did you mean"),
            ("0x4x4", "rows is 0"),
            ("4x4", "is not a shape"),
            ("-1x4x4", "rows is -1"),
        ] {
            let error = expand(&words(&[word]), 64, WEIGHTS).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
        let error = expand(&words(&["gpt2-xl"]), -3, WEIGHTS).unwrap_err();
        assert!(error.to_string().contains("rows is -3"), "{error}");
    }
}
