//! Everything here that depends on the operating system. The only `unsafe` of this crate is below this module: calls to
//! C that neither mlx-rs nor rustix wraps.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(target_os = "macos", path = "macos.rs")]
mod system;

pub(crate) use system::{UnitThreads, engine_files, hardware, os_build};

use std::ffi::CStr;

/// MLX's own version, or `None` if it does not tell.
#[allow(unsafe_code)]
pub(crate) fn mlx_version() -> Option<String> {
    // SAFETY: mlx/c/version.h and mlx/c/string.h (mlx-c): mlx_string_new makes an empty string that mlx_version fills on
    // success (0); the data stays valid until mlx_string_free, and it is copied before that.
    unsafe {
        let mut version = mlx_sys::mlx_string_new();
        let status = mlx_sys::mlx_version(&raw mut version);
        let data = mlx_sys::mlx_string_data(version);
        let text =
            (status == 0 && !data.is_null()).then(|| CStr::from_ptr(data).to_string_lossy().into_owned());
        mlx_sys::mlx_string_free(version);
        text
    }
}
