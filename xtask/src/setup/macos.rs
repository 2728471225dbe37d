//! macOS: mlx-sys builds MLX by itself and needs three tools for it. (Type-checked, not yet run on a Mac.)

use std::{env, ffi::OsString, path::Path, process::Command};

use anyhow::{Result, bail};

use super::prerequisites::{Missing, report, succeeds};

/// Read by mlx-sys's build script: the folder that `mlx.metallib` is written to and, at run time, looked for in.
const METAL_PATH: &str = "MLX_RS_METAL_PATH";

/// Checks for the tools, and installs nothing.
///
/// # Errors
/// One line with the remedy for each that is missing.
pub(super) fn run() -> Result<()> {
    println!("{}", metallib_place(env::var_os(METAL_PATH))?);
    let tools = [
        (
            succeeds(Command::new("xcode-select").arg("-p")),
            Missing::new("Xcode command line tools", "xcode-select --install"),
        ),
        (succeeds(Command::new("cmake").arg("--version")), Missing::new("CMake", "brew install cmake")),
        (
            succeeds(Command::new("xcrun").args(["-f", "metal"])),
            Missing::new(
                "the Metal compiler",
                "xcodebuild -downloadComponent MetalToolchain (with Xcode installed)",
            ),
        ),
    ];
    report(tools.into_iter().filter(|(there, _)| !there).map(|(_, missing)| missing))
}

/// Says where the Metal kernels will lie. An installed worker must find them there, or next to itself.
fn metallib_place(chosen: Option<OsString>) -> Result<String> {
    let Some(folder) = chosen else {
        return Ok(format!(
            "mlx.metallib goes into your home directory; for an installation set {METAL_PATH}=<prefix>/lib/fusiond"
        ));
    };
    // The build runs in another folder, and the worker in yet another.
    if !Path::new(&folder).is_absolute() {
        bail!("{METAL_PATH} is {}, which is relative: give an absolute path", Path::new(&folder).display());
    }
    Ok(format!("mlx.metallib goes into {} ({METAL_PATH})", Path::new(&folder).display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_kernels_is_absolute() {
        assert!(metallib_place(None).unwrap().contains("MLX_RS_METAL_PATH=<prefix>"));
        assert!(metallib_place(Some("/opt/fusiond/lib".into())).unwrap().contains("/opt/fusiond/lib"));
        assert!(metallib_place(Some("lib".into())).unwrap_err().to_string().contains("absolute"));
    }
}
