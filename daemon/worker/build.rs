//! On Linux MLX is a shared library, not part of the program: the worker finds it beside itself, where `fusionctl install` puts it, else where the
//! set-up prepared it.

#[path = "../../client/split/mlx_libraries.rs"]
mod mlx_libraries;

/// What an installation keeps beside the worker: `fusion_service::libraries::FOLDER`, with the libraries in the places that they have below `.mlx-linux`.
const INSTALLED: &str = "$ORIGIN/fusion-mlx/lib";

fn main() {
    mlx_libraries::look_in(Some(INSTALLED));
}
