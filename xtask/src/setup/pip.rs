//! Python packages in a folder of their own: `pip install --target` needs neither venv nor root.

use std::{path::Path, process::Command};

use anyhow::{Context, Result};

use crate::process;

/// Whether pip may add the packages that the named ones ask for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dependencies {
    /// Install them too.
    Follow,
    /// Only what is named: the rest is not used.
    Ignore,
}

/// Installs `requirements` (`name==version`) into `folder`, from wheels only.
///
/// # Errors
/// With pip's own words, and what to look at.
pub(super) fn pip_install_into(
    folder: &Path,
    requirements: &[&str],
    dependencies: Dependencies,
) -> Result<()> {
    let mut pip = python();
    pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--no-compile", "--disable-pip-version-check"])
        .args(["--root-user-action", "ignore", "--only-binary", ":all:", "--target"])
        .arg(folder)
        // A user's pip.conf may set it, and it contradicts --target.
        .env("PIP_USER", "0");
    if dependencies == Dependencies::Ignore {
        pip.arg("--no-deps");
    }
    process::capture(pip.args(requirements), "installing Python wheels").map(drop).with_context(|| {
        format!(
            "cannot install {} with pip; is the package index reachable (network, proxy, PIP_INDEX_URL)? \
             Then run this again",
            requirements.join(" ")
        )
    })
}

/// The requirement lines of a requirements file: no comments, no blanks.
pub(super) fn requirements(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.split('#').next())
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect()
}

/// Version and build of the Python that will be used.
///
/// # Errors
/// If there is none.
pub(super) fn python_version() -> Result<String> {
    process::capture(python().args(["-c", "import sys; print(sys.version)"]), "asking Python for its version")
}

pub(super) fn python() -> Command {
    Command::new("python3")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blanks_are_no_requirements() {
        assert_eq!(requirements("# why\n\na==1 # note\n  b==2\n"), ["a==1", "b==2"]);
    }

    #[test]
    fn our_test_requirements_are_all_pinned() {
        let list = include_str!("../../python/requirements-test.txt");
        assert!(requirements(list).iter().all(|line| line.contains("==")));
        assert!(!requirements(list).is_empty());
    }
}
