//! Recorded machines: published calibration grids, served as if they were measured.
//!
//! A grid is the median time of one shape at a handful of ratios. The shipped ones are FusionML's (`data/recorded`, source file and commit
//! kept per grid). Numbers that come from here carry [`Pair::Recorded`](crate::chip::Pair::Recorded) and never a real chip's key.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::noise::Noise;
use crate::sample::Sample;
use crate::search::Ask;
use crate::shape::{Layer, Layout, Shape, WeightFormat};

const FILES: [&str; 5] = [
    include_str!("../data/recorded/m1.json"),
    include_str!("../data/recorded/m2.json"),
    include_str!("../data/recorded/m3-pro.json"),
    include_str!("../data/recorded/m4.json"),
    include_str!("../data/recorded/m4-pro.json"),
];

/// Why grids can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordedError {
    /// Not JSON, or not of the expected form.
    #[error(
        "not a file of calibration grids ({0}): expected a list of grids, or an object with the key \
         \"calibration_grids\" that holds one; a grid has chip, M, K, N, ratios and median_ms"
    )]
    Form(String),
    /// A grid that can't be: the reason names the field.
    #[error("grid {index} ({name}): {reason}")]
    Grid {
        /// Position in the file, from 0.
        index: usize,
        /// Chip and shape as given.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// No grid at all.
    #[error("the file holds no grid")]
    Empty,
    /// The recorded machine doesn't know the shape.
    #[error("{shape} was never recorded on this machine; recorded are: {recorded}")]
    UnknownShape {
        /// What was asked for.
        shape: String,
        /// What there is.
        recorded: String,
    },
}

/// One recorded calibration grid.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// The chip as the file names it.
    pub chip: String,
    /// FusionML's arm during which it was calibrated (split, dynamic, convergence): tells sessions apart.
    pub arm: String,
    /// The shape; f16, as all of FusionML's grids.
    pub shape: Shape,
    /// Secondary rows (the integer part of M times the ratio, as FusionML computes them), ratio, and median time in ms; by rising ratio.
    pub points: Vec<Point>,
    /// repository@commit:path.
    pub source: String,
}

/// One candidate of a grid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The ratio as it was recorded.
    pub ratio: f64,
    /// Rows of the secondary unit.
    pub secondary_rows: u32,
    /// Median time in ms.
    pub median_ms: f64,
}

/// A file of one recorded machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// "m4-pro", the same as in [`crate::chips`].
    pub name: String,
    /// Its grids.
    pub grids: Vec<Grid>,
}

#[derive(Deserialize)]
struct GridFile {
    chip: String,
    #[serde(default)]
    arm: String,
    #[serde(rename = "M")]
    rows: i64,
    #[serde(rename = "K")]
    inputs: i64,
    #[serde(rename = "N")]
    outputs: i64,
    ratios: Vec<f64>,
    median_ms: Vec<f64>,
    #[serde(default)]
    source: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    Bare(Vec<serde_json::Value>),
    Keyed { calibration_grids: Vec<serde_json::Value> },
}

/// Reads grids from the text of a JSON file: a bare list, or an object with the key `calibration_grids`.
///
/// # Errors
/// [`RecordedError`], naming the grid and the field that is wrong.
pub fn parse(text: &str) -> Result<Vec<Grid>, RecordedError> {
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| RecordedError::Form(error.to_string()))?;
    let Ok(File::Bare(grids) | File::Keyed { calibration_grids: grids }) = serde_json::from_value(value)
    else {
        return Err(RecordedError::Form("neither a list nor that key".to_owned()));
    };
    if grids.is_empty() {
        return Err(RecordedError::Empty);
    }
    grids.into_iter().enumerate().map(|(index, grid)| Grid::from_json(index, grid)).collect()
}

impl Grid {
    fn from_json(index: usize, json: serde_json::Value) -> Result<Self, RecordedError> {
        let file: GridFile = serde_json::from_value(json).map_err(|error| RecordedError::Grid {
            index,
            name: "unreadable".to_owned(),
            reason: error.to_string(),
        })?;
        let wrong = |reason: String| RecordedError::Grid {
            index,
            name: format!("{} {}x{}x{}", file.chip, file.rows, file.inputs, file.outputs),
            reason,
        };
        let shape = Layer::new(file.inputs, file.outputs, WeightFormat::F16, Layout::default())
            .and_then(|layer| layer.with_rows(file.rows))
            .map_err(|error| wrong(error.to_string()))?;
        if file.ratios.len() != file.median_ms.len() {
            return Err(wrong(format!(
                "{} ratios, but {} median_ms: there must be one time per ratio",
                file.ratios.len(),
                file.median_ms.len()
            )));
        }
        if let Some(ratio) = file.ratios.iter().find(|ratio| !(0.0..1.0).contains(*ratio)) {
            return Err(wrong(format!("ratio {ratio} is outside [0, 1)")));
        }
        if let Some(ms) = file.median_ms.iter().find(|ms| !(ms.is_finite() && **ms > 0.0)) {
            return Err(wrong(format!("median_ms {ms} is not a positive time")));
        }
        let mut points: Vec<Point> = file
            .ratios
            .iter()
            .zip(&file.median_ms)
            .map(|(&ratio, &median_ms)| Point {
                ratio,
                secondary_rows: (f64::from(shape.rows()) * ratio + 1e-9) as u32,
                median_ms,
            })
            .collect();
        points.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        if points.windows(2).any(|pair| pair[0].secondary_rows == pair[1].secondary_rows) {
            return Err(wrong("two ratios give the same number of rows".to_owned()));
        }
        if points.len() < 2 || points[0].secondary_rows != 0 {
            return Err(wrong("needs ratio 0 (stock) and at least one split".to_owned()));
        }
        Ok(Self { chip: file.chip, arm: file.arm, shape, points, source: file.source })
    }

    /// Stock's recorded time in ms.
    pub fn stock_ms(&self) -> f64 {
        self.points[0].median_ms
    }

    /// The fastest candidate.
    pub fn best(&self) -> Point {
        self.points
            .iter()
            .skip(1)
            .fold(self.points[0], |best, point| if point.median_ms < best.median_ms { *point } else { best })
    }

    /// The recorded time at `secondary_rows`, in ms.
    pub fn ms_at(&self, secondary_rows: u32) -> Option<f64> {
        self.points.iter().find(|point| point.secondary_rows == secondary_rows).map(|point| point.median_ms)
    }

    /// The secondary rows of all splits.
    pub fn split_rows(&self) -> Vec<u32> {
        self.points.iter().map(|point| point.secondary_rows).filter(|rows| *rows > 0).collect()
    }

    /// Machine time of the paper's calibration: nine calls per candidate, in ms.
    pub fn full_grid_ms(&self) -> f64 {
        9.0 * self.points.iter().map(|point| point.median_ms).sum::<f64>()
    }

    /// One noisy call; `None` for rows that weren't recorded. `deviation` is the relative standard deviation of a call.
    pub fn call(&self, ask: Ask, noise: &mut Noise, deviation: f64) -> Option<Sample> {
        let secondary_rows = ask.secondary_rows();
        Some(Sample {
            secondary_rows,
            total_ms: self.ms_at(secondary_rows)? * noise.call_factor(deviation),
            finish_times: None,
            dropped: None,
        })
    }
}

static MACHINES: LazyLock<Result<Vec<Machine>, RecordedError>> = LazyLock::new(|| {
    FILES
        .iter()
        .map(|text| {
            #[derive(Deserialize)]
            struct Head {
                name: String,
            }
            let head: Head =
                serde_json::from_str(text).map_err(|error| RecordedError::Form(error.to_string()))?;
            Ok(Machine { name: head.name, grids: parse(text)? })
        })
        .collect()
});

/// Every shipped recorded machine.
///
/// # Errors
/// [`RecordedError`] if a shipped file can't be read: a bug of this build that a test rules out.
pub fn all() -> Result<&'static [Machine], RecordedError> {
    MACHINES.as_deref().map_err(Clone::clone)
}

/// The shipped recorded machine called `name` ("m4-pro").
pub fn find(name: &str) -> Option<&'static Machine> {
    all().ok()?.iter().find(|machine| machine.name == name)
}

impl Machine {
    /// The last recorded grid of a shape (layout and weight format are FusionML's: f16).
    ///
    /// # Errors
    /// [`RecordedError::UnknownShape`], naming what was recorded.
    pub fn grid(&self, shape: Shape) -> Result<&Grid, RecordedError> {
        self.grids.iter().rev().find(|grid| grid.shape == shape).ok_or_else(|| {
            let mut recorded: Vec<String> = self.grids.iter().map(|grid| grid.shape.to_string()).collect();
            recorded.sort();
            recorded.dedup();
            RecordedError::UnknownShape { shape: shape.to_string(), recorded: recorded.join(", ") }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_grids_are_there_with_their_sources() {
        let grids: Vec<&Grid> = all().unwrap().iter().flat_map(|machine| &machine.grids).collect();
        assert_eq!(grids.len(), 106);
        for grid in grids {
            assert_eq!(grid.points.len(), 10);
            assert!(grid.source.contains("FusionML@") && grid.best().median_ms <= grid.stock_ms());
        }
        assert!(all().unwrap().iter().all(|machine| crate::chips::find(&machine.name).is_some()));
    }

    #[test]
    fn malformed_files_say_what_is_wrong() {
        let message = |text: &str| parse(text).unwrap_err().to_string();
        assert!(message("{").contains("not a file of calibration grids"));
        assert!(message("{\"grids\": []}").contains("calibration_grids"));
        assert!(message("[]").contains("no grid"));
        assert!(message("[{\"chip\": \"M1\"}]").contains("grid 0"));
        let grid = |ratios: &str, ms: &str| {
            format!("[{{\"chip\":\"X\",\"M\":1000,\"K\":8,\"N\":8,\"ratios\":{ratios},\"median_ms\":{ms}}}]")
        };
        assert!(message(&grid("[0, 0.1]", "[1]")).contains("one time per ratio"));
        assert!(message(&grid("[0, 1.5]", "[1, 1]")).contains("outside"));
        assert!(message(&grid("[0, 0.1]", "[1, 0]")).contains("not a positive time"));
        assert!(message(&grid("[0.1, 0.2]", "[1, 1]")).contains("ratio 0"));
        assert!(message(&grid("[0.1, 0.1]", "[1, 1]")).contains("same number of rows"));
        assert!(message(&grid("[0, 0.1]", "[1, 1]").replace("1000", "-5")).contains("rows is -5"));
        assert_eq!(parse(&grid("[0.1, 0]", "[2, 1]")).unwrap()[0].best().ratio, 0.0);
    }
}
