//! What an inference program in Rust asks: how many rows of each layer go to the CPU, and whether a prefill chunk is split at all.
//!
//!     cargo run -p fusion-client --example shares
//!
//! Without a daemon the answers are "none" and "eager", and come just as fast.

use fusion_calibrations::gate::{Arm, ArmSet};
use fusion_calibrations::shape::{Layer, Layout, ShapeError, WeightFormat};
use fusion_client::SocketPath;
use fusion_client::attach::{Attachment, Options};

/// A chunk of MLX-LM's prefill.
const ROWS: u32 = 2048;
/// Blocks of Qwen2.5-0.5B.
const BLOCKS: u32 = 24;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let layer = |inputs, outputs| Layer::new(inputs, outputs, WeightFormat::F16, Layout::default());
    let layers = [layer(896, 896), layer(896, 128), layer(896, 4864), layer(4864, 896)];
    let layers = layers.into_iter().collect::<Result<Vec<Layer>, ShapeError>>()?;
    let options = Options::new(SocketPath::from_environment()?, "shares example", layers.clone());
    let attachment = Attachment::attach(options);
    println!("basis: {:?}", attachment.basis());
    let handles: Vec<_> = layers.iter().filter_map(|layer| attachment.layer(*layer)).collect();
    for (layer, handle) in layers.iter().zip(&handles) {
        let rows = attachment.secondary_rows(*handle, ROWS);
        println!("{layer}: {rows} of {ROWS} rows on the CPU");
    }
    let parts: Vec<_> =
        handles.iter().zip([2, 2, 2, 1]).map(|(handle, times)| (*handle, times * BLOCKS)).collect();
    let region = attachment.region("qwen2.5-0.5b prefill", ArmSet::mlx_lm(), &parts, 0.0);
    // Around each chunk: the gate decides, and learns from the time until the guard ends.
    let call = region.begin(ROWS);
    match call.arm() {
        Arm::Split => println!("this chunk: each layer's first rows on the CPU"),
        Arm::Compiled | Arm::Eager => println!("this chunk: stock"),
    }
    // Nothing was computed here, so nothing counts.
    call.abandon();
    Ok(())
}
