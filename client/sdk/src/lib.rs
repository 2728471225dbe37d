//! The typed client of fusiond.
//!
//! ```no_run
//! use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
//! use fusion_client::{Client, SocketPath};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect(&SocketPath::from_environment()?).await?;
//! let shape = Shape::parse("512x896x4864", WeightFormat::F32, Layout::default())?;
//! let answer = client.get_ratio(shape, None).await?;
//! println!("{} of {} rows on the secondary unit", answer.secondary_rows, shape.rows());
//! # Ok(())
//! # }
//! ```
//!
//! Every call has a deadline and every error says what, where and what next. Nothing here starts a daemon. A daemon that
//! speaks another protocol can still be looked at and stopped: [`Client::status`] and [`Client::drain`] work, every other
//! call answers [`ClientError::Protocol`].

pub mod attach;
mod calibration;
mod client;
mod clients;
mod connection;
mod deadlines;
mod error;
mod estimates;
mod gates;
mod gone;
mod self_test;
mod sharing;

pub use calibration::{Calibration, Event};
pub use client::{Client, DaemonVersion};
pub use clients::{AttachedClient, ClientActivity, NamedWorker, ServedLayer};
pub use deadlines::Deadlines;
pub use error::ClientError;
pub use estimates::Estimates;
pub use fusion_proto::endpoint::{EndpointError, SOCKET_VARIABLE, SocketPath};
pub use fusion_proto::state::{StateError, state_directory};
pub use fusion_proto::{PROTOCOL, WireError, failures, state, v1};
pub use gates::{
    Forgotten, GateLock, GateRegion, GateScope, KnownGates, RowRange, WorkloadName, WorkloadNameError,
};
pub use gone::wait_until_gone;
pub use self_test::SelfTest;
pub use sharing::{Import, ImportEvent};

/// Version of this client.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
