//! Compiles the protocol buffers with protox: nobody needs protoc.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

const FILES: [&str; 9] = [
    "fusion/v1/attachment.proto",
    "fusion/v1/calibration.proto",
    "fusion/v1/control.proto",
    "fusion/v1/doctor.proto",
    "fusion/v1/gates.proto",
    "fusion/v1/ratios.proto",
    "fusion/v1/sharing.proto",
    "fusion/v1/store.proto",
    "fusion/v1/types.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=fusion");
    let mut compiler = protox::Compiler::new(["."])?;
    compiler.include_source_info(true).include_imports(true).open_files(FILES)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Served by reflection.
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
