//! Regions and calls: which arm runs, and how long it took.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use fusion_calibrations::gate::{Arm, ArmSet};
use fusion_client::attach::{CallGuard, RegionHandle};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::attachment::{Attachment, Living};

/// What a region consists of: enough to make it again after a fork.
#[derive(Debug)]
pub(crate) struct Composition {
    pub(crate) name: String,
    /// The place of a layer, and how often it is run in a call.
    pub(crate) parts: Vec<(usize, u32)>,
    /// Work that is never split, in ms for 1 call.
    pub(crate) other_ms: f64,
}

impl Composition {
    fn region(&self, living: &Living) -> PyResult<RegionHandle> {
        let part = |&(place, times): &(usize, u32)| Ok((living.layer(place)?, times));
        let parts = self.parts.iter().map(part).collect::<PyResult<Vec<_>>>()?;
        Ok(living.attachment().region(&self.name, ArmSet::mlx_lm(), &parts, self.other_ms))
    }
}

/// The region of one process.
#[derive(Debug)]
struct Known {
    process: u32,
    region: RegionHandle,
}

/// One workload, whatever its rows: a prefill chunk of one model, say. Made by `Attachment.region`.
#[pyclass(frozen, module = "fusiond")]
#[derive(Debug)]
pub(crate) struct Region {
    attachment: Py<Attachment>,
    composition: Composition,
    known: ArcSwap<Known>,
}

impl Region {
    pub(crate) fn new(
        py: Python<'_>,
        attachment: Py<Attachment>,
        composition: Composition,
    ) -> PyResult<Self> {
        let living = attachment.get().living();
        let region = py.detach(|| composition.region(&living))?;
        let known = ArcSwap::from_pointee(Known { process: std::process::id(), region });
        Ok(Self { attachment, composition, known })
    }

    /// The region of this process, made anew after a fork.
    fn known(&self) -> PyResult<Arc<Known>> {
        let known = self.known.load_full();
        if known.process == std::process::id() {
            return Ok(known);
        }
        let region = self.composition.region(&self.attachment.get().living())?;
        let known = Arc::new(Known { process: std::process::id(), region });
        self.known.store(Arc::clone(&known));
        Ok(known)
    }
}

#[pymethods]
impl Region {
    #[getter]
    fn name(&self) -> &str {
        &self.composition.name
    }

    /// Decides how a call of `rows` rows is executed, and times it until it ends.
    fn begin(&self, rows: u32) -> PyResult<Call> {
        let guard = self.known()?.region.begin_owned(rows);
        Ok(Call { arm: guard.arm(), explores: guard.explores(), guard: Mutex::new(Some(guard)) })
    }

    /// The arm that a call of `rows` rows would get now, without making one.
    fn arm(&self, rows: u32) -> PyResult<String> {
        Ok(self.known()?.region.arm(rows).to_string())
    }

    /// Why calls of `rows` rows are executed as they are; None before the first.
    fn explain(&self, py: Python<'_>, rows: u32) -> PyResult<Option<String>> {
        let (attachment, known) = (self.attachment.get().living(), self.known()?);
        let explanation = py.detach(|| attachment.attachment().explain(&known.region, rows));
        Ok(explanation.map(|explanation| explanation.to_string()))
    }
}

/// A call in the air. It ends once: by `end`, by `abandon`, or with the block that it is the context of.
#[pyclass(frozen, module = "fusiond")]
#[derive(Debug)]
pub(crate) struct Call {
    arm: Arm,
    explores: bool,
    guard: Mutex<Option<CallGuard<'static>>>,
}

impl Call {
    fn open(&self) -> Option<CallGuard<'static>> {
        // A panic elsewhere leaves the guard as it was.
        self.guard.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn take(&self) -> PyResult<CallGuard<'static>> {
        let ended = || PyRuntimeError::new_err("this call has ended already: begin another one");
        self.open().ok_or_else(ended)
    }
}

impl Drop for Call {
    /// One that nobody ended was given up.
    fn drop(&mut self) {
        if let Some(guard) = self.open() {
            guard.abandon();
        }
    }
}

#[pymethods]
impl Call {
    /// How to execute this call: "split" or "eager".
    #[getter]
    fn arm(&self) -> String {
        self.arm.to_string()
    }

    /// Whether this call is made to learn.
    #[getter]
    fn explores(&self) -> bool {
        self.explores
    }

    /// The result is there: the time counts. Call it between materialised boundaries only.
    fn end(&self) -> PyResult<()> {
        self.take()?.end();
        Ok(())
    }

    /// The call was not made, or not as decided: nothing counts.
    fn abandon(&self) -> PyResult<()> {
        self.take()?.abandon();
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        error: Option<&Bound<'_, PyAny>>,
        _value: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if error.is_some() { self.abandon() } else { self.end() }
    }
}
