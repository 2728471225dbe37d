//! The forms of the files.

use std::time::Duration;

use fusion_calibrations::models::{self, ModelError};
use fusion_calibrations::shape::{Layout, Shape, ShapeError, WeightFormat};
use serde::Deserialize;

use super::{ClientWorkers, DutyShares, Patience};

/// Rows where nothing is said: the chunk that MLX-LM prefills in.
pub(super) const USUAL_ROWS: u32 = 2048;

/// The longest wait that can be asked for: an hour.
const MOST_SECONDS: u64 = 3600;

/// Why a file's content can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// It isn't of the form.
    #[error("{0}")]
    Form(#[from] toml::de::Error),
    /// No such model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// No such shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A share that can't be.
    #[error(
        "'{field}' is {value}, but must be a share of the wall time from 0 to {most}: 0.01 is 1 %",
        most = DutyShares::MOST
    )]
    Share {
        /// Which.
        field: &'static str,
        /// What is written.
        value: f64,
    },
    /// A wait that can't be.
    #[error("'{field}' is {value}, but must be from 0 to {MOST_SECONDS} seconds")]
    Seconds {
        /// Which.
        field: &'static str,
        /// What is written.
        value: u64,
    },
    /// A log filter that can't be read.
    #[error("'log.filter' can't be read: {0}")]
    LogFilter(String),
}

/// `config.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ConfigFile {
    budget: BudgetPart,
    measure: MeasurePart,
    log: LogPart,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BudgetPart {
    on_ac: Option<f64>,
    on_battery: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MeasurePart {
    models: Vec<String>,
    rows: Option<Vec<u32>>,
    format: Option<String>,
    settle_seconds: Option<u64>,
    quiet_seconds: Option<u64>,
    client_workers: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LogPart {
    filter: Option<String>,
}

/// What `config.toml` says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Said {
    pub(super) duty: DutyShares,
    pub(super) patience: Patience,
    pub(super) client_workers: ClientWorkers,
    /// (shape, the model's name).
    pub(super) shapes: Vec<(Shape, String)>,
    /// Rows that checkpoints are calibrated for.
    pub(super) rows: Vec<u32>,
    pub(super) log_filter: Option<String>,
}

impl Default for Said {
    fn default() -> Self {
        Self {
            duty: DutyShares::default(),
            patience: Patience::default(),
            client_workers: ClientWorkers::default(),
            shapes: Vec::new(),
            rows: vec![USUAL_ROWS],
            log_filter: None,
        }
    }
}

/// Reads `config.toml`.
pub(super) fn config(text: &str) -> Result<Said, ContentError> {
    let ConfigFile { budget, measure, log } = toml::from_str(text)?;
    let usual = DutyShares::default();
    let duty = DutyShares {
        on_ac: share("budget.on_ac", budget.on_ac, usual.on_ac)?,
        on_battery: share("budget.on_battery", budget.on_battery, usual.on_battery)?,
    };
    let usual = Patience::default();
    let patience = Patience {
        settle: seconds("measure.settle_seconds", measure.settle_seconds, usual.settle)?,
        quiet: seconds("measure.quiet_seconds", measure.quiet_seconds, usual.quiet)?,
    };
    let client_workers =
        if measure.client_workers == Some(false) { ClientWorkers::Ignored } else { ClientWorkers::Used };
    let rows = measure.rows.unwrap_or_else(|| vec![USUAL_ROWS]);
    let format: WeightFormat = measure.format.as_deref().unwrap_or("f16").parse()?;
    let mut shapes = Vec::new();
    for name in &measure.models {
        let model = models::find(name)?;
        for layer in model.layers(format)? {
            for rows in &rows {
                shapes.push((layer.layer.with_rows(*rows)?, model.name.clone()));
            }
        }
    }
    if let Some(filter) = &log.filter {
        crate::logs::check_filter(filter).map_err(ContentError::LogFilter)?;
    }
    Ok(Said { duty, patience, client_workers, shapes, rows, log_filter: log.filter })
}

fn share(field: &'static str, value: Option<f64>, usual: f64) -> Result<f64, ContentError> {
    match value {
        None => Ok(usual),
        Some(value) if (0.0..=DutyShares::MOST).contains(&value) => Ok(value),
        Some(value) => Err(ContentError::Share { field, value }),
    }
}

fn seconds(field: &'static str, value: Option<u64>, usual: Duration) -> Result<Duration, ContentError> {
    match value {
        None => Ok(usual),
        Some(value) if value <= MOST_SECONDS => Ok(Duration::from_secs(value)),
        Some(value) => Err(ContentError::Seconds { field, value }),
    }
}

/// `shapes/NAME.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShapeSet {
    shapes: Vec<String>,
    #[serde(default = "f16")]
    format: String,
    #[serde(default = "nk")]
    layout: String,
}

fn f16() -> String {
    "f16".to_owned()
}

fn nk() -> String {
    "nk".to_owned()
}

/// Reads a shape set.
pub(super) fn shape_set(text: &str) -> Result<Vec<Shape>, ContentError> {
    let ShapeSet { shapes, format, layout } = toml::from_str(text)?;
    let (format, layout): (WeightFormat, Layout) = (format.parse()?, layout.parse()?);
    shapes.iter().map(|text| Ok(Shape::parse(text, format, layout)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_said_is_as_usual() {
        assert_eq!(config("").unwrap(), Said::default());
    }

    #[test]
    fn clients_workers_can_be_turned_off() {
        let said = |text| config(text).unwrap().client_workers;
        assert_eq!(said("[measure]\nclient_workers = true"), ClientWorkers::Used);
        assert_eq!(said("[measure]\nclient_workers = false"), ClientWorkers::Ignored);
    }

    #[test]
    fn models_become_shapes_for_all_rows() {
        let said = config(
            "[measure]\nmodels = ['qwen2.5-0.5b']\nrows = [512, 2048]\nformat = 'q4/64'\n[budget]\non_ac = 0.02\n[log]\nfilter = 'debug'",
        )
        .unwrap();
        assert_eq!(said.shapes.len(), 8);
        assert_eq!((said.duty.on_ac, said.duty.on_battery), (0.02, 0.001));
        assert!(said.shapes[0].0.to_string().starts_with("512x896x896"), "{}", said.shapes[0].0);
    }

    #[test]
    fn what_can_not_be_is_refused_with_its_name() {
        for (text, word) in [
            ("[budget]\non_ac = 0.5", "budget.on_ac"),
            ("[budget]\non_battery = -1.0", "budget.on_battery"),
            ("[budget]\non_ac = nan", "budget.on_ac"),
            ("[measure]\nmodels = ['qwen2.5-0.6b']", "qwen2.5-0.5b"),
            ("[measure]\nmodels = ['qwen2.5-0.5b']\nrows = [0]", "rows"),
            ("[measure]\nformat = 'f8'", "f8"),
            ("[measur]\n", "measur"),
            ("[measure]\nsettle_seconds = 5000", "measure.settle_seconds"),
            ("[log]\nfilter = 'fusiond=loud'", "log.filter"),
            ("{", "line"),
        ] {
            let error = config(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn shape_sets_have_a_format_and_a_layout() {
        let shapes =
            shape_set("shapes = ['512x896x4864', '64x64x64']\nformat = 'f32'\nlayout = 'kn'").unwrap();
        assert_eq!(shapes.len(), 2);
        assert_eq!(shapes[0].layer().format(), WeightFormat::F32);
        assert!(shape_set("shapes = ['512x0x1']").is_err());
        assert!(shape_set("format = 'f32'").is_err());
    }
}
