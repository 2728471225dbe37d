//! Linux: the real MLX (its CPU build) under an unmodified mlx-rs.
//!
//! Everything is written to `.mlx-linux/`: `site/` (unpacked wheels), `lib/libmlxc.so`, `out/bindings.rs`. Then
//! `.cargo/mlx-linux.toml` points cargo to it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{cargo_config, pins, pip, prerequisites, progress::Progress, stamp, stamp::Stamp};
use crate::{process, workspace};

/// Files of `xtask/mlx-linux` that the result depends on.
const INPUTS: [&str; 7] = [
    "linux_shim.c",
    "openblas_forward.c",
    "mlxc_shim.h",
    "half_bindgen.h",
    "bindgen/Cargo.toml",
    "bindgen/Cargo.lock",
    "bindgen/src/main.rs",
];

/// This file is an input as well: it holds the compiler flags.
const RECIPE: &str = include_str!("linux.rs");

struct Places {
    /// `xtask/mlx-linux`.
    assets: PathBuf,
    /// `.mlx-linux`.
    prepared: PathBuf,
    /// `.cargo/mlx-linux.toml`.
    config: PathBuf,
}

impl Places {
    fn of(root: &Path) -> Self {
        Self {
            assets: root.join("xtask/mlx-linux"),
            prepared: root.join(".mlx-linux"),
            config: root.join(".cargo/mlx-linux.toml"),
        }
    }

    fn library(&self) -> PathBuf {
        self.prepared.join("lib/libmlxc.so")
    }

    fn bindings(&self) -> PathBuf {
        self.prepared.join("out/bindings.rs")
    }

    fn site(&self) -> PathBuf {
        self.prepared.join("site")
    }

    fn scratch(&self) -> PathBuf {
        self.prepared.join("scratch")
    }

    /// What must exist for a build; a stamp alone does not make it so.
    fn complete(&self) -> bool {
        let mlx = self.site().join("mlx/lib/libmlx.so");
        [self.library(), self.bindings(), mlx].iter().all(|file| file.is_file())
    }
}

/// Prepares MLX under `root`, unless it is already there.
///
/// # Errors
/// If a prerequisite is missing, the locked versions differ, or a step fails.
pub(super) fn run(root: &Path, force: bool) -> Result<()> {
    let places = Places::of(root);
    let lock = root.join("Cargo.lock");
    pins::check(&fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?)?;
    let _alone = stamp::lock(&places.prepared)?;
    let config = cargo_config::render(&host()?, &places.prepared)?;
    let stamp = stamp(&places, &config)?;
    if force || !stamp.matches(&places.prepared) || !places.complete() {
        prerequisites::report(prerequisites::linux())?;
        prepare(&places)?;
        stamp.write(&places.prepared)?;
    }
    if fs::read_to_string(&places.config).ok().as_deref() != Some(&config) {
        stamp::write_whole(&places.config, &config)?;
    }
    Ok(())
}

fn stamp(places: &Places, config: &str) -> Result<Stamp> {
    // The config holds the absolute path, which what is built refers to, and the versions.
    let mut stamp = Stamp::new().text(config).text(RECIPE).text(&pins::WHEELS.join(" "));
    for input in INPUTS {
        let path = places.assets.join(input);
        stamp = stamp.bytes(&fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?);
    }
    Ok(stamp)
}

fn prepare(places: &Places) -> Result<()> {
    let progress = Progress::start();
    progress.step("preparing MLX for Linux in .mlx-linux/ (once; about half a minute)");
    stamp::clear(&places.prepared)?;
    for folder in [places.scratch(), places.prepared.join("lib"), places.prepared.join("out")] {
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    progress.step(&format!("fetching wheels: {}", pins::WHEELS.join(", ")));
    pip::pip_install_into(&places.site(), &pins::WHEELS, pip::Dependencies::Ignore)?;
    progress.step("fetching the mlx-c sources (part of the crate mlx-sys)");
    let sources = mlx_c_sources(places)?;
    progress.step("generating bindings");
    generate_bindings(places, &sources)?;
    progress.step("building mlx-c");
    build_library(places, &sources)?;
    // Some 150 MB that nothing needs any more.
    stamp::remove(&places.scratch())?;
    stamp::remove(&places.site().join("clang"))?;
    progress.step("done: MLX is ready");
    Ok(())
}

fn host() -> Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let text = process::capture(Command::new(rustc).arg("-vV"), "asking rustc for its host")?;
    let host =
        text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    Ok(host.to_owned())
}

/// Cargo on the bindgen crate, with a target folder of its own.
fn bindgen_cargo(places: &Places, subcommand: &str) -> Command {
    let mut cargo = Command::new(workspace::cargo());
    cargo
        .arg(subcommand)
        .args(["--locked", "--manifest-path"])
        .arg(places.assets.join("bindgen/Cargo.toml"))
        .env("CARGO_TARGET_DIR", places.scratch().join("bindgen"))
        // Flags meant for the product, a coverage run say, would only slow this down.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo
}

fn mlx_c_sources(places: &Places) -> Result<PathBuf> {
    let mut metadata = bindgen_cargo(places, "metadata");
    let text = process::capture(metadata.args(["--format-version", "1"]), "fetching mlx-sys with cargo")?;
    let manifest = manifest_of(&text, "mlx-sys")?;
    let sources = manifest.parent().unwrap_or(&manifest).join("src/mlx-c");
    if !sources.join("mlx/c").is_dir() {
        bail!("mlx-sys has no mlx-c sources at {}", sources.display());
    }
    Ok(sources)
}

/// Where the manifest of `package` lies, from the output of `cargo metadata`.
fn manifest_of(metadata: &str, package: &str) -> Result<PathBuf> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata did not print JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let found = packages.iter().find(|p| p["name"] == package);
    let manifest = found.and_then(|p| p["manifest_path"].as_str());
    manifest.map(PathBuf::from).with_context(|| format!("cargo metadata does not list {package}"))
}

fn generate_bindings(places: &Places, sources: &Path) -> Result<()> {
    process::capture(bindgen_cargo(places, "build").arg("--quiet"), "building bindgen")?;
    let headers = process::capture(
        Command::new("g++").arg("-print-file-name=include"),
        "asking g++ for its header folder",
    )?;
    let mut bindgen = Command::new(places.scratch().join("bindgen/debug/mlxc-bindgen"));
    bindgen
        .env("LIBCLANG_PATH", places.site().join("clang/native"))
        .args([sources.as_os_str(), places.bindings().as_os_str()])
        .arg(format!("-I{}", headers.trim()))
        .arg("-include")
        .arg(places.assets.join("half_bindgen.h"));
    process::capture(&mut bindgen, "generating bindings for mlx-c").map(drop)
}

fn build_library(places: &Places, sources: &Path) -> Result<()> {
    let mut objects = vec![compile_mlx_c(places, sources)?];
    for name in ["linux_shim", "openblas_forward"] {
        let object = places.scratch().join(name).with_extension("o");
        let source = places.assets.join(name).with_extension("c");
        let mut compiler = Command::new("g++");
        compiler.args(["-x", "c", "-O2", "-fPIC", "-c"]).arg(source).arg("-o").arg(&object);
        process::capture(&mut compiler, "building mlx-c's helpers")?;
        objects.push(object);
    }
    process::capture(&mut linker(places, &objects), "linking libmlxc.so").map(drop)
}

fn compile_mlx_c(places: &Places, sources: &Path) -> Result<PathBuf> {
    let (unit, object) = (places.scratch().join("mlxc.cpp"), places.scratch().join("mlxc.o"));
    fs::write(&unit, single_unit(&cpp_files(&sources.join("mlx/c"))?))
        .with_context(|| format!("cannot write {}", unit.display()))?;
    let mut compiler = Command::new("g++");
    compiler
        .args(["-std=c++20", "-O1", "-w", "-fPIC", "-include"])
        .arg(places.assets.join("mlxc_shim.h"))
        .arg("-I")
        .arg(sources)
        .arg("-isystem")
        .arg(places.site().join("mlx/include"))
        .arg("-c")
        .args([unit.as_os_str(), "-o".as_ref(), object.as_os_str()]);
    process::capture(&mut compiler, "building mlx-c")?;
    Ok(object)
}

fn cpp_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "cpp"));
    files.sort();
    Ok(files)
}

/// One translation unit for all: five times cheaper than 26 that parse mlx.h again each.
fn single_unit(files: &[PathBuf]) -> String {
    files.iter().map(|file| format!("#include \"{}\"\n", file.display())).collect()
}

fn linker(places: &Places, objects: &[PathBuf]) -> Command {
    let site = places.site();
    let mut linker = Command::new("g++");
    linker.args(["-shared", "-o"]).arg(places.library()).args(objects);
    // Who links it says where it is (build.rs of fusion-split and fusion-worker), so that an installed worker finds its own copy.
    linker.arg("-Wl,-soname,libmlxc.so");
    linker.args(["-Wl,-z,defs", "-Wl,--no-as-needed"]);
    linker.arg("-L").arg(site.join("mlx/lib")).arg("-lmlx");
    linker.arg("-L").arg(site.join("scipy_openblas32/lib")).arg("-l:libscipy_openblas.so");
    linker.arg("-Wl,-rpath,$ORIGIN/../site/mlx/lib:$ORIGIN/../site/scipy_openblas32/lib");
    linker
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_is_found_in_cargos_words() {
        let text = r#"{"packages":[{"name":"a","manifest_path":"/x/a/Cargo.toml"},
                                   {"name":"mlx-sys","manifest_path":"/with space/mlx-sys/Cargo.toml"}]}"#;
        assert_eq!(manifest_of(text, "mlx-sys").unwrap(), Path::new("/with space/mlx-sys/Cargo.toml"));
        assert!(manifest_of(text, "mlx-rs").unwrap_err().to_string().contains("mlx-rs"));
        assert!(manifest_of("oops", "mlx-rs").is_err());
    }

    #[test]
    fn one_unit_includes_every_source() {
        let unit = single_unit(&[PathBuf::from("/a b/array.cpp"), PathBuf::from("/a b/ops.cpp")]);
        assert_eq!(unit, "#include \"/a b/array.cpp\"\n#include \"/a b/ops.cpp\"\n");
    }

    #[test]
    fn every_input_exists() {
        let places = Places::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        let first = stamp(&places, "config").unwrap();
        assert_eq!(first.to_string(), stamp(&places, "config").unwrap().to_string());
        assert_ne!(first.to_string(), stamp(&places, "another path").unwrap().to_string());
    }
}
