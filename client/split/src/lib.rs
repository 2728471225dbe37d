//! Row-split matrix products over two MLX streams: the mechanism that ratios are about.
//!
//! A product `x [M, K] · w` is cut by rows: the first rows go to the secondary unit, the rest to the primary unit, and
//! the two results are joined. [`Units`] holds the two streams, [`Operands`] the inputs; [`Units::stock`] and
//! [`Units::split`] run and time a product.
//!
//! ```no_run
//! use fusion_calibrations::{sample::Unit, shape::{Layout, Shape, WeightFormat}};
//! use fusion_split::{Operands, PairKind, Units};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let units = Units::open(PairKind::Auto)?;
//! let shape = Shape::parse("512x896x4864", WeightFormat::F32, Layout::default())?;
//! let operands = Operands::synthetic(&units, shape, 1)?;
//! let (stock, whole) = units.stock(&operands)?;
//! let (split, joined) = units.split(&operands, 256, Unit::Primary)?;
//! println!("{:.2} times faster, error {:.1e}", stock.total_ms / split.total_ms, units.compare(&joined, &whole)?);
//! # Ok(())
//! # }
//! ```
//!
//! Inside a model, [`split_matmul`] and [`SplitLinear`] do the same with inputs and rows of the caller's. A [`Policy`] decides how a
//! region runs (its [`Arm`]) and how many rows of a layer the secondary unit gets; [`model`] is a stack of decoder blocks that
//! asks one, and `examples/prefill` shows it at work. [`probe`] finds out whether two units run at once at all.
//!
//! # One thread
//! MLX streams and lazy arrays belong to the thread that made them, and every thread that touches MLX costs a
//! worker thread that never ends. So everything here stays on one long-lived thread; the types are not `Send`.
//!
//! # BLAS
//! On Linux each unit is one core. Set `OPENBLAS_NUM_THREADS=1` before the program starts (the library reads it when
//! it is loaded): otherwise each unit's product spreads over both units' cores. `GLIBC_TUNABLES=glibc.malloc.hugetlb=1` takes memory in large pages,
//! as the worker does; on a virtual machine that makes stock and split products faster, and joining by a third.
//!
//! # Where MLX finds its Metal kernels (macOS)
//! MLX looks for `mlx.metallib` in the folder of the executable first, and then at the path that was compiled in. That
//! path is `$MLX_RS_METAL_PATH` at build time, by default a folder in the builder's home directory. For an installed
//! program either build with `MLX_RS_METAL_PATH=<prefix>/lib/fusiond` and install the file there, or install it next to the
//! executable. [`identity::engine`] hashes the file from the same two places.

pub mod identity;
pub mod model;
pub mod probe;

mod error;
mod linear;
mod mlx_memory;
mod operands;
mod pair;
mod parts;
mod platform;
mod policy;
mod product;
mod units;
mod weight;

pub use error::SplitError;
pub use fusion_calibrations::gate::Arm;
pub use linear::{Sampled, SplitLinear, split_matmul, split_matmul_sampled};
pub use mlx_memory::{active_memory_bytes, limit_mlx_memory, release_memory};
pub use operands::Operands;
pub use pair::{PairKind, WorkFactor, WorkFactorError};
pub use policy::{Call, Fixed, Policy};
pub use product::{Product, Timing};
pub use units::{Units, has_gpu};
pub use weight::Weight;
