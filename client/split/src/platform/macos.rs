//! macOS: the GPU and the CPU share the rows; nothing is pinned, and the system tells no run-queue delay.
//! (Type-checked on Linux, not yet run on a Mac.)

use std::{
    env,
    ffi::CStr,
    io,
    path::{Path, PathBuf},
    process::Command,
    ptr,
    time::Duration,
};

use fusion_calibrations::sample::Unit;

use crate::{error::SplitError, identity};

/// Where the build put `mlx.metallib`, if the builder chose a place (see the crate's documentation).
const COMPILED_IN_METAL_PATH: Option<&str> = option_env!("MLX_RS_METAL_PATH");

/// What the system says about the hardware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HardwareFacts {
    pub(crate) brand: Option<String>,
    pub(crate) gpu_cores: Option<u16>,
    pub(crate) memory_bytes: u64,
    pub(crate) model_identifier: Option<String>,
}

pub(crate) fn hardware() -> HardwareFacts {
    HardwareFacts {
        brand: sysctl_text(c"machdep.cpu.brand_string"),
        gpu_cores: gpu_cores(),
        memory_bytes: sysctl_u64(c"hw.memsize").unwrap_or_default(),
        model_identifier: sysctl_text(c"hw.model"),
    }
}

/// The build, "25G83": security updates change it, but not the version.
pub(crate) fn os_build() -> Option<String> {
    sysctl_text(c"kern.osversion")
}

/// mlx-sys links MLX statically, so its version stands for its code; the Metal kernels are a file.
pub(crate) fn engine_files() -> io::Result<Vec<PathBuf>> {
    let beside = env::current_exe()?.parent().map(|folder| folder.join("mlx.metallib"));
    let compiled_in = COMPILED_IN_METAL_PATH.map(|folder| Path::new(folder).join("mlx.metallib"));
    Ok(beside.into_iter().chain(compiled_in).find(|file| file.is_file()).into_iter().collect())
}

/// One brand is sold with several counts. IOKit's registry is asked through its own tool, which takes some 20 ms once.
fn gpu_cores() -> Option<u16> {
    // The full path: under launchd, PATH may lack /usr/sbin.
    let output = Command::new("/usr/sbin/ioreg").args(["-rc", "AGXAccelerator", "-d", "1"]).output().ok()?;
    identity::ioreg_gpu_cores(&String::from_utf8_lossy(&output.stdout))
}

#[allow(unsafe_code)]
fn sysctl(name: &CStr) -> Option<Vec<u8>> {
    let mut length = 0;
    // SAFETY: sysctlbyname(3), <sys/sysctl.h>: with a null buffer it stores the needed size in `length`.
    let status =
        unsafe { libc::sysctlbyname(name.as_ptr(), ptr::null_mut(), &raw mut length, ptr::null_mut(), 0) };
    if status != 0 {
        return None;
    }
    let mut value = vec![0_u8; length];
    // SAFETY: as above; `value` has room for `length` bytes, and `length` becomes what was written, never more.
    let status = unsafe {
        libc::sysctlbyname(name.as_ptr(), value.as_mut_ptr().cast(), &raw mut length, ptr::null_mut(), 0)
    };
    value.truncate(length);
    (status == 0).then_some(value)
}

fn sysctl_text(name: &CStr) -> Option<String> {
    let bytes = sysctl(name)?;
    Some(CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy().into_owned())
}

fn sysctl_u64(name: &CStr) -> Option<u64> {
    sysctl(name)?.try_into().ok().map(u64::from_ne_bytes)
}

/// On macOS the units are not threads of ours.
#[derive(Debug)]
pub(crate) struct UnitThreads;

impl UnitThreads {
    pub(crate) fn none_yet() -> Self {
        Self
    }

    pub(crate) fn watch<T>(
        &mut self,
        _unit: Unit,
        open: impl FnOnce() -> Result<T, SplitError>,
    ) -> Result<T, SplitError> {
        open()
    }

    pub(crate) fn pin(&mut self) -> Result<(), SplitError> {
        Ok(())
    }

    pub(crate) fn description(&self) -> String {
        "not pinned: macOS does not pin threads to cores".to_owned()
    }

    pub(crate) fn run_queue_delay(&self) -> Option<Duration> {
        None
    }
}
