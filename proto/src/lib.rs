//! The wire of fusiond: the messages and services of `fusion.v1`, conversions between them and the domain, and the
//! socket they travel over.
//!
//! The `.proto` files are the reference: every message and field is documented there, with units.

mod convert;
mod convert_gates;
pub mod endpoint;
pub mod failures;
pub mod snapshot;
pub mod state;

pub use convert::{WireError, estimate, sample};
pub use convert_gates::{bucket, gate_state, regions, time};

/// Messages and services of `fusion.v1`, generated from `fusion/v1/*.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::pedantic,
    clippy::all,
    reason = "generated"
)]
pub mod v1 {
    tonic::include_proto!("fusion.v1");
}

/// The encoded descriptors of `fusion.v1`, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Version of the wire. It changes when an old peer would misread a new one; `GetStatus` and `Drain` work across it.
pub const PROTOCOL: u32 = 1;

/// The largest message either side accepts, in bytes: a page of 1000 estimates is below 400 KiB.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// The largest piece of a bundle in one message, in bytes.
pub const MAX_BUNDLE_PIECE_BYTES: usize = 64 << 10;

/// Metadata of a failed call that names the part that failed, where the gRPC code alone doesn't tell: see [`STORE_FAILED`].
pub const REASON_METADATA: &str = "fusion-reason";

/// Value of [`REASON_METADATA`]: the store couldn't do what was asked, because of the disk or its own state.
pub const STORE_FAILED: &str = "store";

/// Layers that one client may name.
pub const MAX_LAYERS_PER_CLIENT: usize = 4096;

/// Clients that may be attached.
pub const MAX_CLIENTS: usize = 4096;

/// Shapes that one `Calibrate` call may name.
pub const MAX_SHAPES_PER_JOB: usize = 1024;

/// Regions that are kept of one chip and engine, and that one report may hold. At about 250 bytes each they fit in a message.
pub const MAX_GATE_REGIONS: usize = 1024;

/// Longest name of a workload, in bytes.
pub const MAX_WORKLOAD_BYTES: usize = 200;

/// Locks of gates.
pub const MAX_GATE_LOCKS: usize = 256;
