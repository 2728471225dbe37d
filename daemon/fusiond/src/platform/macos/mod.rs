//! macOS: libSystem, IOKit, Core Foundation and Core Graphics.
//!
//! IOKit and Core Foundation come from the objc2 crates, whose declarations are generated from Apple's headers and keep the reference
//! counts; the rest is declared here, each by the header it follows. Written and linted for `aarch64-apple-darwin`, never run.

mod activation;
mod clocks;
mod displays;
mod memory;
mod notify;
mod power;
mod registry;
mod sysctl;

pub(crate) use activation::launchd_sockets;
pub(crate) use clocks::clocks;
pub(crate) use displays::displays_asleep;
pub(crate) use memory::{memory_counts, processor_ticks};
pub(crate) use notify::{Key, Notifications};
pub(crate) use power::providing_power_source;
pub(crate) use registry::RegistryEntry;
pub(crate) use sysctl::{sysctl_i32, sysctl_u64};
