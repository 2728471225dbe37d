//! On Linux MLX is a shared library, not part of the program: what is linked here (tests, examples) finds it where the set-up prepared it.

#[path = "mlx_libraries.rs"]
mod mlx_libraries;

fn main() {
    mlx_libraries::look_in(None);
}
