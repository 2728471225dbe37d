//! Between the wire's plain fields and the domain's types.

use fusion_calibrations::chip::{Chip, Cooling, PairError};
use fusion_calibrations::engine::Engine;
use fusion_calibrations::sample::{FinishTimes, Sample, Unit};
use fusion_calibrations::shape::{Layer, Shape, ShapeError};

use crate::{FinishNanoseconds, Hello, Timed, WireShape};

/// A well-formed message whose content can't be.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// A shape that can't be.
    #[error("the message names an impossible shape: {0}")]
    Shape(#[from] ShapeError),
    /// A pair of units that this version doesn't know.
    #[error("the worker's units can't be told: {0}")]
    Pair(#[from] PairError),
}

impl From<Shape> for WireShape {
    fn from(shape: Shape) -> Self {
        let layer = shape.layer();
        Self {
            rows: shape.rows(),
            inputs: layer.inputs(),
            outputs: layer.outputs(),
            format: layer.format().to_string(),
            layout: layer.layout().to_string(),
        }
    }
}

impl TryFrom<&WireShape> for Shape {
    type Error = ContentError;

    fn try_from(wire: &WireShape) -> Result<Self, ContentError> {
        let layer = Layer::new(wire.inputs, wire.outputs, wire.format.parse()?, wire.layout.parse()?)?;
        Ok(layer.with_rows(wire.rows)?)
    }
}

impl Hello {
    /// The chip that the worker runs on. Cooling is not the worker's to know.
    ///
    /// # Errors
    /// [`ContentError::Pair`].
    pub fn chip(&self) -> Result<Chip, ContentError> {
        const GIB: u64 = 1 << 30;
        Ok(Chip {
            brand: self.brand.clone(),
            gpu_cores: self.gpu_cores,
            memory_gib: u32::try_from((self.memory_bytes + GIB / 2) / GIB).unwrap_or(u32::MAX),
            model_identifier: self.model_identifier.clone(),
            cooling: Cooling::Unknown,
            pair: self.pair.parse()?,
        })
    }

    /// The engine that the worker measures with.
    pub fn engine(&self) -> Engine {
        Engine {
            os_build: self.os_build.clone(),
            mlx_version: self.mlx_version.clone(),
            library_hash: self.library_hash.clone(),
        }
    }
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

impl Timed {
    /// The call as a sample, not yet judged. `secondary_rows` is 0 for stock.
    pub fn sample(&self, secondary_rows: u32, first_waited: Unit) -> Sample {
        Sample {
            secondary_rows,
            total_ms: milliseconds(self.total_ns),
            finish_times: self.finish.map(|FinishNanoseconds { primary, secondary }| FinishTimes {
                primary_ms: milliseconds(primary),
                secondary_ms: milliseconds(secondary),
                first_waited,
            }),
            dropped: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_shape_is_refused() {
        let wire =
            WireShape { rows: 0, inputs: 1, outputs: 1, format: "f32".to_owned(), layout: "nk".to_owned() };
        assert!(Shape::try_from(&wire).unwrap_err().to_string().contains("rows is 0"));
    }
}
