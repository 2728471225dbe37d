//! `fusiond._native`: [`fusion_client`] for Python. Every policy is the Rust client's; here are only types that Python can hold, and care for `fork`.
//!
//! What may wait (attaching, explaining, leaving) gives the interpreter's lock away meanwhile. What answers in nanoseconds keeps it: giving it away
//! would cost more than the answer.

mod attachment;
mod layer;
mod region;

use pyo3::prelude::*;

/// The module.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::attachment::Attachment;
    #[pymodule_export]
    use super::layer::{Layer, Lines};
    #[pymodule_export]
    use super::region::{Call, Region};

    use super::{PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, PyModule>) -> PyResult<()> {
        module.add("VERSION", fusion_client::VERSION)?;
        module.add("PROTOCOL", fusion_client::PROTOCOL)?;
        module.add("DECODE_ROWS", fusion_calibrations::lookup::DECODE_ROWS)
    }
}
