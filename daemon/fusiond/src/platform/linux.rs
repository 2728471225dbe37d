//! Linux: rustix speaks with the kernel; what is left is a promise to tokio.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that tokio watches. Needs a tokio runtime.
#[expect(unsafe_code, reason = "tokio wants the promise that the descriptor stays open")]
pub(crate) fn watched(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is open, and stays open and the same until its owner is dropped; the `AsyncFd` becomes the owner, and lends
    // it out only by shared reference.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, interest) }?)
}
