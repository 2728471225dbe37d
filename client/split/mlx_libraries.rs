//! For build scripts: where the programs that they link look for MLX's libraries.

use std::env;

/// The directory of MLX's libraries, in the cargo configuration that `cargo xtask setup` writes.
const PREPARED: &str = "FUSION_MLX_LIBRARIES";

/// In `first`, then where the set-up prepared them.
pub(crate) fn look_in(first: Option<&str>) {
    println!("cargo::rerun-if-env-changed={PREPARED}");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    for directory in [first.map(str::to_owned), env::var(PREPARED).ok()].into_iter().flatten() {
        // Not "-Wl,-rpath,...": a comma in the path would end it.
        for argument in ["-Xlinker", "-rpath", "-Xlinker", &directory] {
            println!("cargo::rustc-link-arg={argument}");
        }
    }
}
