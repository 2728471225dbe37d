//! Writes Rust bindings for every mlx-c header: `mlxc-bindgen MLX_C_DIR OUTPUT [CLANG_ARG...]`.

use std::{error::Error, ffi::OsString, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(root), Some(output)) = (args.next(), args.next()) else {
        return Err("usage: mlxc-bindgen MLX_C_DIR OUTPUT [CLANG_ARG...]".into());
    };
    bindings(PathBuf::from(root), args)?.write_to_file(PathBuf::from(output))?;
    Ok(())
}

fn bindings(
    root: PathBuf,
    clang_args: impl Iterator<Item = OsString>,
) -> Result<bindgen::Bindings, Box<dyn Error>> {
    let mut headers: Vec<PathBuf> = fs::read_dir(root.join("mlx/c"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, std::io::Error>>()?;
    headers.retain(|path| path.extension().is_some_and(|extension| extension == "h"));
    headers.sort();
    let mut builder = bindgen::Builder::default()
        // What mlx-sys's own build script asks for.
        .rust_target("1.73.0".parse().map_err(|e| format!("{e:?}"))?)
        .clang_arg(format!("-I{}", root.display()))
        .blocklist_function("malloc")
        .blocklist_function("realloc");
    for arg in clang_args {
        builder = builder.clang_arg(arg.to_string_lossy());
    }
    for header in headers {
        builder = builder.header(header.to_string_lossy());
    }
    Ok(builder.generate()?)
}
