//! Values of sysctl(3). The program of that name may not be in a LaunchAgent's PATH.

use std::ffi::CStr;

/// A 32-bit value of `sysctlbyname`; `None` if it doesn't exist or has another size.
pub(crate) fn sysctl_i32(name: &CStr) -> Option<i32> {
    sysctl(name).map(i32::from_ne_bytes)
}

/// A 64-bit value of `sysctlbyname`; `None` if it doesn't exist or has another size.
pub(crate) fn sysctl_u64(name: &CStr) -> Option<u64> {
    sysctl(name).map(u64::from_ne_bytes)
}

#[expect(unsafe_code, reason = "sysctlbyname is C")]
fn sysctl<const BYTES: usize>(name: &CStr) -> Option<[u8; BYTES]> {
    let mut value = [0u8; BYTES];
    let mut length = BYTES;
    // SAFETY: `int sysctlbyname(const char *, void *, size_t *, void *, size_t)` of <sys/sysctl.h> writes at most `length` bytes to
    // `value`, which has that many, and reads `name` up to its zero; nothing is set.
    let failed = unsafe {
        libc::sysctlbyname(name.as_ptr(), value.as_mut_ptr().cast(), &raw mut length, std::ptr::null_mut(), 0)
    };
    (failed == 0 && length == BYTES).then_some(value)
}
