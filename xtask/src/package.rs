//! `cargo xtask package`: the programs of a release and what goes beside them, in `target/package`. dist archives that folder, and
//! `fusionctl install` can be run from it.
//!
//! ```text
//! target/package/fusiond fusion-worker fusionctl mlx.metallib
//! target/package/man completions     made by each program from its one definition
//! ```

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::programs::{self, PROGRAMS};
use crate::{process, workspace};

/// Set by dist: the target that it packs for.
const TARGET: &str = "CARGO_DIST_TARGET";
/// Read by mlx-sys's build script on macOS: where it puts MLX's kernels.
const METAL_PATH: &str = "MLX_RS_METAL_PATH";
const KERNELS: &str = "mlx.metallib";
/// How each program is asked for its manual and its completions.
const DOCUMENTS: [Documents; PROGRAMS.len()] =
    [Documents::BY_VERBS, Documents::BY_OPTIONS, Documents::BY_VERBS];
/// Shells, and what is around the program's name in that of the file that they look for.
const SHELLS: [(&str, &str, &str); 3] = [("bash", "", ""), ("zsh", "_", ""), ("fish", "", ".fish")];

/// How a program is asked for its manual, which it writes into a directory, and for its completions, which it prints for a shell.
struct Documents {
    man: &'static str,
    completions: &'static str,
}

impl Documents {
    const BY_VERBS: Self = Self { man: "man", completions: "completions" };
    /// A program without verbs.
    const BY_OPTIONS: Self = Self { man: "--man", completions: "--completions" };
}

/// Builds the programs in release and gathers them with manual and completions.
///
/// # Errors
/// If a step fails, with the step and its own words.
pub(crate) fn run() -> Result<()> {
    let root = workspace::root()?;
    let built = programs::released_for(env::var_os(TARGET).as_deref())?;
    let package = root.join("target/package");
    empty(&package)?;
    for program in PROGRAMS {
        copy(&built.join(program), &package.join(program))?;
    }
    documents(&built, &package)?;
    match kernels(env::consts::OS, env::var_os(METAL_PATH))? {
        Some(kernels) => copy(&kernels, &package.join(KERNELS))?,
        None => eprintln!(
            "no {KERNELS}: MLX has no Metal here; its libraries stay in this checkout until 'fusionctl install' copies them"
        ),
    }
    println!("{}", package.display());
    Ok(())
}

/// `cargo xtask dist-assets`: manual and completions only.
///
/// # Errors
/// As [`run`].
pub(crate) fn assets_only() -> Result<()> {
    let built = programs::developed()?;
    let assets = workspace::root()?.join("target/dist-assets");
    empty(&assets)?;
    documents(&built, &assets)?;
    println!("{}", assets.display());
    Ok(())
}

/// Has the programs in `built` write their manual and completions into `man` and `completions` below `folder`, where 'fusionctl install' looks for them
/// if the programs lie there, too.
///
/// # Errors
/// If a program or the disk fails.
pub(crate) fn documents(built: &Path, folder: &Path) -> Result<()> {
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    empty(&man)?;
    empty(&completions)?;
    for (name, documents) in PROGRAMS.iter().zip(DOCUMENTS) {
        let program = || Command::new(built.join(name));
        process::capture(program().arg(documents.man).arg(&man), "writing the manual")?;
        for (shell, before, after) in SHELLS {
            let script =
                process::capture(program().args([documents.completions, shell]), "writing completions")?;
            let path = completions.join(format!("{before}{name}{after}"));
            fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// MLX's kernels, without which a worker does nothing on macOS; `None` on other systems.
fn kernels(system: &str, folder: Option<OsString>) -> Result<Option<PathBuf>> {
    if system != "macos" {
        return Ok(None);
    }
    let folder = folder.with_context(|| {
        format!("{METAL_PATH} isn't set: set it to an absolute folder, so that {KERNELS} is built there, and run this again")
    })?;
    let file = Path::new(&folder).join(KERNELS);
    ensure!(
        file.is_file(),
        "{} isn't there: it is built with mlx-sys; 'cargo clean -p mlx-sys', then run this again",
        file.display()
    );
    Ok(Some(file))
}

fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_macos_package_has_its_kernels_or_is_none() {
        assert_eq!(kernels("linux", None).unwrap(), None);
        assert!(kernels("macos", None).unwrap_err().to_string().contains(METAL_PATH));
        let missing = kernels("macos", Some("/nonexistent".into())).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/mlx.metallib"), "{missing}");
    }

    #[test]
    fn a_release_is_of_the_workspaces_version_and_holds_the_programs() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let read = |name: &str| -> toml::Table {
            fs::read_to_string(format!("{root}/{name}")).unwrap().parse().unwrap()
        };
        let (cargo, package, release) =
            (read("Cargo.toml"), read("release/dist.toml"), read("dist-workspace.toml"));
        assert_eq!(package["package"]["version"], cargo["workspace"]["package"]["version"]);
        let binaries: Vec<&str> = package["package"]["binaries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        assert_eq!(binaries, PROGRAMS);
        assert_eq!(package["package"]["out-dir"].as_str(), Some("../target/package"));
        let included = release["dist"]["include"].as_array().unwrap();
        for name in [KERNELS, "man", "completions"] {
            assert!(
                included.iter().any(|path| path.as_str().unwrap() == format!("target/package/{name}")),
                "{name}"
            );
        }
    }
}
