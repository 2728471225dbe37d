//! The sensors of this machine.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod linux_events;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod other;

#[cfg(target_os = "linux")]
pub use linux::SystemSensors;
#[cfg(target_os = "macos")]
pub use macos::SystemSensors;
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub use other::SystemSensors;
