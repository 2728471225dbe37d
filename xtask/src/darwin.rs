//! The macOS code is type-checked and linted on every machine. This proves names and types, not behaviour.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::{process, workspace};

const TARGET: &str = "aarch64-apple-darwin";

/// Lints the whole workspace for macOS, without default features: fusionctl's `cloud` has C parts that need Apple's compiler. Without the target, warns loudly and succeeds.
///
/// # Errors
/// If the code does not pass.
pub(crate) fn check() -> Result<()> {
    if !installed()? && !install() {
        eprintln!("{}", warning());
        return Ok(());
    }
    let mut clippy = Command::new(workspace::cargo());
    clippy.current_dir(workspace::root()?).args([
        "clippy",
        "--locked",
        "--workspace",
        "--all-targets",
        "--no-default-features",
    ]);
    process::show(clippy.args(["--target", TARGET, "--", "-D", "warnings"]), "checking the macOS code")
}

fn installed() -> Result<bool> {
    let sysroot =
        process::capture(Command::new("rustc").args(["--print", "sysroot"]), "finding the Rust toolchain")?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).join("lib").is_dir())
}

fn install() -> bool {
    eprintln!("installing the {TARGET} standard library (rustup target add {TARGET})");
    match process::capture(Command::new("rustup").args(["target", "add", TARGET]), "rustup target add") {
        Ok(_) => true,
        Err(error) => {
            eprintln!("{error:#}");
            false
        }
    }
}

fn warning() -> String {
    let rule = "!".repeat(78);
    format!(
        "{rule}\n!! NOT CHECKED: the macOS code.\n!! The target {TARGET} is not installed and could not be added.\n\
         !! Remedy: rustup target add {TARGET}   (needs rustup, https://rustup.rs)\n{rule}"
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_warning_is_loud_and_names_the_remedy() {
        let text = super::warning();
        assert!(text.lines().count() >= 5 && text.contains("rustup target add aarch64-apple-darwin"));
    }
}
