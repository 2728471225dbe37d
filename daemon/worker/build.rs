//! On Linux MLX is a shared library, not part of the program: the worker finds it beside itself, where `fusionctl install` puts it, else where the
//! set-up prepared it.

use std::env;

/// What an installation keeps beside the worker: `fusion_service::libraries::FOLDER`, with the libraries in the places that they have below `.mlx-linux`.
const INSTALLED: &str = "$ORIGIN/fusion-mlx/lib";
/// The directory of MLX's libraries, in the cargo configuration that `cargo xtask setup` writes.
const LIBRARIES: &str = "FUSION_MLX_LIBRARIES";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={LIBRARIES}");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    for directory in [Some(INSTALLED.to_owned()), env::var(LIBRARIES).ok()].into_iter().flatten() {
        // Not "-Wl,-rpath,...": a comma in the path would end it.
        for argument in ["-Xlinker", "-rpath", "-Xlinker", &directory] {
            println!("cargo::rustc-link-arg={argument}");
        }
    }
}
