//! macOS: mlx-sys builds MLX by itself and needs three tools for it. (Type-checked, not yet run on a Mac.)

use std::process::Command;

use anyhow::Result;

use super::prerequisites::{Missing, report, succeeds};

/// Checks for the tools, and installs nothing.
///
/// # Errors
/// One line with the remedy for each that is missing.
pub(super) fn run() -> Result<()> {
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
