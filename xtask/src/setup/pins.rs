//! The versions this set-up was written for. Raise them together, then run `cargo xtask setup --force` and the tests.

use anyhow::{Result, bail};

/// Upstream MLX; what mlx-sys builds on macOS and what the wheel holds on Linux.
pub(super) const MLX: &str = "0.32.2";

/// Crates in `Cargo.lock` that must match the prepared MLX.
pub(super) const CRATES: [(&str, &str); 2] = [("mlx-rs", "0.33.0"), ("mlx-sys", "0.7.0")];

/// Wheels for Linux: MLX, a fast BLAS for it, and (needed during set-up only) libclang for bindgen.
pub(super) const WHEELS: [&str; 3] =
    ["mlx-cpu==0.32.2", "scipy-openblas32==0.3.34.481.3", "libclang==18.1.1"];

/// Checks `Cargo.lock` (its text) against [`CRATES`].
///
/// # Errors
/// Names the first crate whose locked versions are not exactly the pinned one.
pub(super) fn check(lock: &str) -> Result<()> {
    for (name, pinned) in CRATES {
        let locked = locked_versions(lock, name);
        if locked != [pinned] {
            let found = if locked.is_empty() { "not there".to_owned() } else { locked.join(", ") };
            bail!(
                "Cargo.lock: {name} is {found}, but the prepared MLX {MLX} fits {name} {pinned} only. \
                 Lock that version, or raise xtask/src/setup/pins.rs and xtask/mlx-linux/bindgen together"
            );
        }
    }
    Ok(())
}

fn locked_versions<'a>(lock: &'a str, name: &str) -> Vec<&'a str> {
    let wanted = format!("name = \"{name}\"");
    lock.split("[[package]]")
        .filter(|package| package.lines().any(|line| line == wanted))
        .filter_map(|package| package.lines().find_map(|line| line.strip_prefix("version = ")))
        .map(|version| version.trim_matches('"'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"mlx-rs\"\nversion = \"0.33.0\"\n\
        dependencies = [\n \"mlx-sys\",\n]\n\n[[package]]\nname = \"mlx-sys\"\nversion = \"0.7.0\"\n";

    #[test]
    fn the_pinned_versions_pass() {
        check(LOCK).unwrap();
    }

    #[test]
    fn our_own_lock_files_pass() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        check(&std::fs::read_to_string(format!("{root}/Cargo.lock")).unwrap()).unwrap();
        let bindgen = std::fs::read_to_string(format!("{root}/xtask/mlx-linux/bindgen/Cargo.lock")).unwrap();
        assert_eq!(locked_versions(&bindgen, "mlx-sys"), ["0.7.0"]);
    }

    #[test]
    fn another_version_is_named_with_the_remedy() {
        let error = check(&LOCK.replace("0.7.0", "0.8.1")).unwrap_err().to_string();
        assert!(error.contains("mlx-sys is 0.8.1") && error.contains("pins.rs"), "{error}");
    }

    #[test]
    fn two_versions_or_none_do_not_pass() {
        let twice = format!("{LOCK}\n[[package]]\nname = \"mlx-rs\"\nversion = \"0.34.0\"\n");
        assert!(check(&twice).unwrap_err().to_string().contains("0.33.0, 0.34.0"));
        assert!(check("version = 4\n").unwrap_err().to_string().contains("not there"));
    }
}
