//! On Linux MLX is a shared library, not part of the program: what is linked here (tests, examples) finds it where the set-up prepared it.

use std::env;

/// The directory of MLX's libraries, in the cargo configuration that `cargo xtask setup` writes.
const LIBRARIES: &str = "FUSION_MLX_LIBRARIES";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={LIBRARIES}");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    if let Ok(directory) = env::var(LIBRARIES) {
        // Not "-Wl,-rpath,...": a comma in the path would end it.
        for argument in ["-Xlinker", "-rpath", "-Xlinker", &directory] {
            println!("cargo::rustc-link-arg={argument}");
        }
    }
}
