//! The Python client: its wheel is built, installed into `target/python/`, linted, type-checked and tested.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail};

use crate::{process, programs, workspace};

struct Places {
    root: PathBuf,
    /// The package's source.
    package: PathBuf,
    /// What the tests need, from PyPI.
    packages: PathBuf,
    wheels: PathBuf,
    /// The wheel, installed.
    site: PathBuf,
    /// A library that lends MLX a fast BLAS.
    blas: PathBuf,
}

impl Places {
    fn of(root: PathBuf) -> Self {
        let target = root.join("target/python");
        Self {
            package: root.join("client/python"),
            packages: root.join(".python/site"),
            wheels: target.join("wheels"),
            site: target.join("site"),
            blas: target.join("libfastblas.so"),
            root,
        }
    }

    /// Runs a module of Python in the package's folder, with the wheel and what it needs in reach.
    fn python(&self, module: &str) -> Result<Command> {
        let mut python = Command::new("python3");
        let search = env::join_paths([&self.site, &self.packages])?;
        python.current_dir(&self.package).args(["-m", module]).env("PYTHONPATH", search);
        // The tools that others install as programs lie there.
        let mut path: Vec<PathBuf> = vec![self.packages.join("bin")];
        path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
        python.env("PATH", env::join_paths(path)?);
        Ok(python)
    }
}

/// How the wheel's extension is compiled.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Profile {
    /// Soon, for tests.
    Dev,
    /// As it is shipped: what is measured.
    Release,
}

/// Builds the wheel and installs it into `target/python/site`; on Linux also the library that lends MLX a fast BLAS.
///
/// # Errors
/// If a tool is missing, or fails.
pub(crate) fn install(profile: Profile) -> Result<()> {
    let places = Places::of(workspace::root()?);
    if !places.packages.join("maturin").is_dir() {
        bail!("maturin is missing: run 'cargo xtask python-deps' first");
    }
    build_wheel(&places, profile)?;
    install_wheel(&places)?;
    if cfg!(target_os = "linux") { build_blas(&places) } else { Ok(()) }
}

/// [`install`], then ruff, mypy and pytest.
///
/// # Errors
/// If something is not as it should be.
pub(crate) fn test() -> Result<()> {
    install(Profile::Dev)?;
    let places = Places::of(workspace::root()?);
    programs::tested()?;
    process::show(places.python("ruff")?.args(["check", "--quiet", "."]), "ruff")?;
    process::show(places.python("ruff")?.args(["format", "--quiet", "--check", "."]), "ruff format")?;
    process::show(&mut places.python("mypy")?, "mypy")?;
    pytest(&places)
}

/// All tests, those of quantised weights beside the others: MLX multiplies such on one core, and takes as long for them as for all else.
fn pytest(places: &Places) -> Result<()> {
    // Not the system's own place: macOS's takes half of the 103 bytes that a socket's path may have.
    let scratch = PathBuf::from(format!("/tmp/fusion-pytest-{}", std::process::id()));
    fs::create_dir(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    let only = |tests: &str, folder: &str| -> Result<Command> {
        let mut pytest = places.python("pytest")?;
        pytest.args(["-p", "no:cacheprovider", "-k", tests, "--basetemp"]).arg(scratch.join(folder));
        pytest.env("FUSION_REQUIRE_PROGRAMS", "1").envs(fast_blas(places));
        Ok(pytest)
    };
    let (mut quantised, mut others) = (only("q4", "q4")?, only("not q4", "others")?);
    let passed = std::thread::scope(|scope| {
        let quantised = scope.spawn(|| process::capture(&mut quantised, "pytest of quantised weights"));
        let others = process::show(&mut others, "pytest");
        print!("{}", quantised.join().expect("no test program panics this one")?);
        others
    });
    // What a failed run leaves is there to be looked at.
    passed?;
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

/// The variables that make MLX fast on Linux: the wheel's own BLAS is the reference one, 20 times slower.
fn fast_blas(places: &Places) -> Vec<(&'static str, OsString)> {
    if !places.blas.is_file() {
        return Vec::new();
    }
    // Each unit of a development pair is one core.
    vec![("LD_PRELOAD", places.blas.clone().into()), ("OPENBLAS_NUM_THREADS", "1".into())]
}

fn build_wheel(places: &Places, profile: Profile) -> Result<()> {
    if places.wheels.is_dir() {
        fs::remove_dir_all(&places.wheels)
            .with_context(|| format!("cannot remove {}", places.wheels.display()))?;
    }
    let mut maturin = Command::new(places.packages.join("bin/maturin"));
    let profile = match profile {
        Profile::Dev => "dev",
        Profile::Release => "release",
    };
    maturin.current_dir(&places.package).args(["build", "--quiet", "--locked", "--profile", profile]);
    process::capture(maturin.arg("--out").arg(&places.wheels), "building the wheel of fusiond-client")
        .map(drop)
}

fn install_wheel(places: &Places) -> Result<()> {
    let wheel = only_wheel(&places.wheels)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--upgrade", "--no-compile"]);
    pip.args(["--disable-pip-version-check", "--root-user-action", "ignore", "--target"]);
    pip.arg(&places.site).arg(wheel).env("PIP_USER", "0");
    process::capture(&mut pip, "installing the wheel of fusiond-client").map(drop)
}

fn only_wheel(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut wheels: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    wheels.retain(|path| path.extension().is_some_and(|extension| extension == "whl"));
    match wheels.as_slice() {
        [wheel] => Ok(wheel.clone()),
        _ => bail!("{} holds {} wheels, not one", folder.display(), wheels.len()),
    }
}

/// The names that MLX's wheel imports from its BLAS, each a jump to OpenBLAS: whoever is preloaded is found first.
fn build_blas(places: &Places) -> Result<()> {
    let openblas = places.root.join(".mlx-linux/site/scipy_openblas32/lib");
    let openblas =
        fs::canonicalize(&openblas).context("there is no OpenBLAS: run 'cargo xtask setup' first")?;
    let mut compiler = Command::new("g++");
    compiler.args(["-x", "c", "-O2", "-fPIC", "-shared", "-o"]).arg(&places.blas);
    compiler.arg(places.root.join("xtask/mlx-linux/openblas_forward.c")).args(["-x", "none", "-L"]);
    compiler.arg(&openblas).arg("-l:libscipy_openblas.so");
    compiler.arg(format!("-Wl,-rpath,{}", openblas.display()));
    process::capture(&mut compiler, "building the library that lends MLX a fast BLAS").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_wheel_is_installed() {
        let folder = env::temp_dir().join(format!("fusion-xtask-wheels-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert!(only_wheel(&folder).unwrap_err().to_string().contains("0 wheels"));
        fs::write(folder.join("a.whl"), "").unwrap();
        fs::write(folder.join("b.txt"), "").unwrap();
        assert_eq!(only_wheel(&folder).unwrap(), folder.join("a.whl"));
        fs::write(folder.join("c.whl"), "").unwrap();
        assert!(only_wheel(&folder).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
