//! launch_activate_socket(3): the sockets that launchd holds for this agent.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

#[expect(unsafe_code, reason = "launch_activate_socket is C")]
unsafe extern "C" {
    // <launch.h>, in libSystem.
    fn launch_activate_socket(name: *const c_char, fds: *mut *mut c_int, count: *mut usize) -> c_int;
}

/// The descriptors under `name` in the agent's property list; none without such a name, and in a process that launchd didn't start.
///
/// # Errors
/// What `launch_activate_socket` answers otherwise.
#[expect(unsafe_code, reason = "launch_activate_socket is C")]
pub(crate) fn launchd_sockets(name: &CStr) -> io::Result<Vec<OwnedFd>> {
    let (mut descriptors, mut count) = (std::ptr::null_mut::<c_int>(), 0_usize);
    // SAFETY: `int launch_activate_socket(const char *name, int **fds, size_t *cnt)` of <launch.h> reads `name` up to its zero, and on
    // success writes the address of an array that the caller frees, and its length.
    let error = unsafe { launch_activate_socket(name.as_ptr(), &raw mut descriptors, &raw mut count) };
    match error {
        0 => {}
        // "There was no socket of the specified name", and "the calling process is not managed by launchd".
        libc::ENOENT | libc::ESRCH => return Ok(Vec::new()),
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    // SAFETY: on success `descriptors` points to `count` descriptors, open and nobody else's: each is taken over once.
    let taken = (0..count).map(|place| unsafe { OwnedFd::from_raw_fd(*descriptors.add(place)) }).collect();
    // SAFETY: the array is malloc's, and the caller's to free, by <launch.h>; it isn't used after this.
    unsafe { libc::free(descriptors.cast::<c_void>()) };
    Ok(taken)
}
