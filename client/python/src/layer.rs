//! Layers and lines, as Python holds them.

use fusion_calibrations::lines;
use fusion_calibrations::shape::{self, WeightFormat};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// One linear map: its inputs, outputs, weight format and layout.
#[pyclass(frozen, eq, hash, module = "fusiond", from_py_object)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Layer(pub(crate) shape::Layer);

#[pymethods]
impl Layer {
    #[new]
    #[pyo3(signature = (inputs, outputs, format, layout = "nk"))]
    fn new(inputs: u32, outputs: u32, format: &str, layout: &str) -> PyResult<Self> {
        let impossible = |error: shape::ShapeError| PyValueError::new_err(error.to_string());
        let format: WeightFormat = format.parse().map_err(impossible)?;
        let layout = layout.parse().map_err(impossible)?;
        shape::Layer::new(inputs, outputs, format, layout).map(Self).map_err(impossible)
    }

    #[getter]
    fn inputs(&self) -> u32 {
        self.0.inputs()
    }

    #[getter]
    fn outputs(&self) -> u32 {
        self.0.outputs()
    }

    #[getter]
    fn format(&self) -> String {
        self.0.format().to_string()
    }

    #[getter]
    fn layout(&self) -> String {
        self.0.layout().to_string()
    }

    /// The largest relative difference between a split product and the unsplit one that is rounding.
    #[getter]
    fn relative_error_bound(&self) -> f64 {
        self.0.format().relative_error_bound(self.0.inputs())
    }

    /// Bytes that measuring `rows` rows takes: input, weights, and three results.
    fn working_set_bytes(&self, rows: u32) -> PyResult<u64> {
        let shape = self.0.with_rows(rows).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(shape.working_set_bytes())
    }

    fn __repr__(&self) -> String {
        let layer = self.0;
        format!(
            "Layer({}, {}, \"{}\", \"{}\")",
            layer.inputs(),
            layer.outputs(),
            layer.format(),
            layer.layout()
        )
    }
}

/// The fitted time of each unit for one layer.
#[pyclass(frozen, get_all, module = "fusiond")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    primary_ms_per_row: f64,
    secondary_ms_per_row: f64,
    overhead_ms: f64,
    stock_ms_per_row: f64,
}

impl From<lines::Lines> for Lines {
    fn from(lines: lines::Lines) -> Self {
        let lines::Lines { primary_ms_per_row, secondary_ms_per_row, overhead_ms, stock_ms_per_row } = lines;
        Self { primary_ms_per_row, secondary_ms_per_row, overhead_ms, stock_ms_per_row }
    }
}
