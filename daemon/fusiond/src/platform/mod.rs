//! What only the operating system knows, and what only it promises. The one module of this crate that is unsafe.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
pub(crate) use linux::watched;
#[cfg(target_os = "macos")]
pub(crate) use macos::*;
