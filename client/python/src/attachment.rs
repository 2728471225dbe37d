//! An attachment that survives `fork`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::live::Observation;
use fusion_calibrations::sample::{FinishTimes, Unit};
use fusion_client::SocketPath;
use fusion_client::attach::{self, Basis, ClientWorker, LayerHandle, Options};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::layer::{Layer, Lines};
use crate::region::{Composition, Region};

/// The attachment of one process. A forked child inherits its memory, but neither its thread nor its right to the connection: there it is left as it is,
/// for ever, because dropping it would wait for a thread that doesn't exist.
#[derive(Debug)]
pub(crate) struct Living {
    process: u32,
    attachment: Option<attach::Attachment>,
    layers: Vec<LayerHandle>,
}

impl Living {
    fn attach(options: Options) -> Self {
        let layers = options.layers.clone();
        let attachment = attach::Attachment::attach(options);
        let layers = layers.iter().filter_map(|layer| attachment.layer(*layer)).collect();
        Self { process: std::process::id(), attachment: Some(attachment), layers }
    }

    fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    pub(crate) fn attachment(&self) -> &attach::Attachment {
        self.attachment.as_ref().expect("it is taken only while this is dropped")
    }

    pub(crate) fn layer(&self, place: usize) -> PyResult<LayerHandle> {
        let known = || {
            PyValueError::new_err(format!("there is no layer {place}: {} are attached", self.layers.len()))
        };
        self.layers.get(place).copied().ok_or_else(known)
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            std::mem::forget(self.attachment.take());
        }
    }
}

/// What a process shares with the daemon, by way of the Rust client. Made by `fusiond.attach`.
#[pyclass(frozen, module = "fusiond")]
#[derive(Debug)]
pub(crate) struct Attachment {
    options: Options,
    living: ArcSwap<Living>,
}

impl Attachment {
    /// The attachment of this process. The first question after a fork attaches anew, which takes no longer than the first time; a daemon that isn't
    /// there means stock.
    pub(crate) fn living(&self) -> Arc<Living> {
        let living = self.living.load_full();
        if living.is_of_this_process() {
            return living;
        }
        let anew = Arc::new(Living::attach(self.options.clone()));
        // Another thread may have been faster: then its attachment stays, and ours leaves.
        self.living.compare_and_swap(&living, anew);
        self.living.load_full()
    }
}

fn milliseconds(ms: f64, what: &str) -> PyResult<f64> {
    if ms.is_finite() && ms >= 0.0 {
        return Ok(ms);
    }
    Err(PyValueError::new_err(format!("{what} is {ms}, but must be a time in ms")))
}

#[pymethods]
impl Attachment {
    #[new]
    #[pyo3(signature = (name, layers, *, socket = None, state_directory = None, engine = None, worker = None, typical_rows = 0,
        working_set_bytes = None, limit_seconds = 0.25))]
    #[allow(clippy::too_many_arguments, reason = "they are Python's keyword arguments")]
    fn new(
        py: Python<'_>,
        name: &str,
        layers: Vec<Layer>,
        socket: Option<PathBuf>,
        state_directory: Option<PathBuf>,
        engine: Option<(String, String, String)>,
        worker: Option<(PathBuf, BTreeMap<String, String>)>,
        typical_rows: u32,
        working_set_bytes: Option<u64>,
        limit_seconds: f64,
    ) -> PyResult<Self> {
        let unusable = |error: fusion_client::EndpointError| PyValueError::new_err(error.to_string());
        let socket = socket.map_or_else(SocketPath::from_environment, SocketPath::new).map_err(unusable)?;
        let limit = Duration::try_from_secs_f64(limit_seconds)
            .map_err(|error| PyValueError::new_err(format!("limit_seconds: {error}")))?;
        let mut options = Options::new(socket, name, layers.into_iter().map(|layer| layer.0).collect());
        if state_directory.is_some() {
            options.state_directory = state_directory;
        }
        options.engine = engine.map(|(os_build, mlx_version, library_hash)| Engine {
            os_build,
            mlx_version,
            library_hash,
        });
        options.worker = worker.map(|(interpreter, environment)| ClientWorker { interpreter, environment });
        options.typical_rows = typical_rows;
        options.working_set_bytes = working_set_bytes;
        options.limit = limit;
        let living = py.detach(|| Living::attach(options.clone()));
        Ok(Self { options, living: ArcSwap::from_pointee(living) })
    }

    /// What the answers rest on: "attached", "snapshot" or "stock".
    #[getter]
    fn basis(&self) -> &'static str {
        match self.living().attachment().basis() {
            Basis::Attached => "attached",
            Basis::Snapshot => "snapshot",
            Basis::Stock => "stock",
        }
    }

    /// The conditions as the daemon saw them last, in words; None if it has not said.
    #[getter]
    fn conditions(&self) -> Option<String> {
        self.living().attachment().conditions().map(|conditions| conditions.to_string())
    }

    /// Says that something short runs, such as a decode step: the process counts as busy until nothing has run for a quarter of a second, or up to twice that.
    fn touch(&self) {
        self.living().attachment().touch();
    }

    /// The secondary unit's rows for `rows` rows of the layer at `place`; 0 is stock.
    fn secondary_rows(&self, place: usize, rows: u32) -> PyResult<u32> {
        let living = self.living();
        Ok(living.attachment().secondary_rows(living.layer(place)?, rows))
    }

    /// The same for rows that go through all layers at `places` before they are joined.
    #[allow(clippy::needless_pass_by_value, reason = "Python's list is copied on the way")]
    fn secondary_rows_through(&self, places: Vec<usize>, rows: u32) -> PyResult<u32> {
        let living = self.living();
        let layers = places.iter().map(|place| living.layer(*place)).collect::<PyResult<Vec<_>>>()?;
        Ok(living.attachment().secondary_rows_through(&layers, rows))
    }

    /// The lines that the layer at `place` is believed to follow; None if nothing is known.
    fn lines(&self, place: usize) -> PyResult<Option<Lines>> {
        let living = self.living();
        Ok(living.attachment().lines(living.layer(place)?).map(Into::into))
    }

    /// One workload that is executed as a whole, split or eager; see `Region`.
    #[pyo3(signature = (name, parts, other_ms = 0.0))]
    fn region(
        slf: &Bound<'_, Self>,
        name: String,
        parts: Vec<(usize, u32)>,
        other_ms: f64,
    ) -> PyResult<Region> {
        let other_ms = milliseconds(other_ms, "other_ms")?;
        let composition = Composition { name, parts, other_ms };
        Region::new(slf.py(), slf.clone().unbind(), composition)
    }

    /// Reports a split call whose units were waited for one after the other; whether it was taken.
    fn observe(
        &self,
        place: usize,
        rows: u32,
        secondary_rows: u32,
        total_ms: f64,
        finish_ms: (f64, f64),
        secondary_waited_first: bool,
    ) -> PyResult<bool> {
        let (primary_ms, secondary_ms) = finish_ms;
        let first_waited = if secondary_waited_first { Unit::Secondary } else { Unit::Primary };
        let finish_times = FinishTimes {
            primary_ms: milliseconds(primary_ms, "the primary unit's time")?,
            secondary_ms: milliseconds(secondary_ms, "the secondary unit's time")?,
            first_waited,
        };
        let total_ms = milliseconds(total_ms, "total_ms")?;
        let living = self.living();
        let layer = living.layer(place)?;
        let observation = Observation { rows, secondary_rows, total_ms, finish_times };
        Ok(living.attachment().observe(layer, observation))
    }
}
