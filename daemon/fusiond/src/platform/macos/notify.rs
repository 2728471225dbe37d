//! notify(3): names that the system posts changes under, some with a 64-bit state.

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// `NOTIFY_STATUS_OK` of <notify.h>.
const OK: u32 = 0;
/// `NOTIFY_REUSE` of <notify.h>: register a further name for a descriptor that an earlier registration made.
const REUSE: c_int = 1;

#[expect(unsafe_code, reason = "notify(3) is C")]
unsafe extern "C" {
    // <notify.h>, in libSystem.
    fn notify_register_check(name: *const c_char, out_token: *mut c_int) -> u32;
    fn notify_register_file_descriptor(
        name: *const c_char,
        notify_fd: *mut c_int,
        flags: c_int,
        out_token: *mut c_int,
    ) -> u32;
    fn notify_check(token: c_int, check: *mut c_int) -> u32;
    fn notify_get_state(token: c_int, state64: *mut u64) -> u32;
    fn notify_cancel(token: c_int) -> u32;
}

/// A registration; cancelled when dropped.
#[derive(Debug)]
struct Token(c_int);

impl Drop for Token {
    #[expect(unsafe_code, reason = "notify_cancel is C")]
    fn drop(&mut self) {
        // SAFETY: `uint32_t notify_cancel(int token)` of <notify.h>; the token is ours and cancelled once. The last token of a descriptor
        // closes it.
        unsafe { notify_cancel(self.0) };
    }
}

/// A name whose state is read.
#[derive(Debug)]
pub(crate) struct Key(Token);

impl Key {
    /// Registers for a name; `None` if the system refuses. Nothing arrives for it: the state now has to be asked for.
    #[expect(unsafe_code, reason = "notify_register_check is C")]
    pub(crate) fn register(name: &CStr) -> Option<Self> {
        let mut token = 0;
        // SAFETY: `uint32_t notify_register_check(const char *name, int *out_token)` of <notify.h> reads `name` up to its zero and writes
        // one int.
        let status = unsafe { notify_register_check(name.as_ptr(), &raw mut token) };
        (status == OK).then_some(Self(Token(token)))
    }

    /// The state now. 0 also for a name that nobody has set.
    #[expect(unsafe_code, reason = "notify_get_state is C")]
    pub(crate) fn state(&self) -> Option<u64> {
        let mut state = 0;
        // SAFETY: `uint32_t notify_get_state(int token, uint64_t *state64)` of <notify.h>; the token is registered, one u64 is written.
        let status = unsafe { notify_get_state(self.0.0, &raw mut state) };
        (status == OK).then_some(state)
    }

    /// Whether the name was posted since the last time this was asked; at first, and in doubt, yes. A look at shared memory.
    #[expect(unsafe_code, reason = "notify_check is C")]
    pub(crate) fn posted(&self) -> bool {
        let mut check = 1;
        // SAFETY: `uint32_t notify_check(int token, int *check)` of <notify.h>; the token is registered, one int is written.
        let status = unsafe { notify_check(self.0.0, &raw mut check) };
        status != OK || check != 0
    }
}

/// Names whose posts arrive on one file descriptor: four bytes each, which we don't need to tell apart.
#[derive(Debug)]
pub(crate) struct Notifications {
    /// libnotify's: it is closed with the last token, never by us.
    descriptor: RawFd,
    tokens: Vec<Token>,
}

impl Notifications {
    /// Registers for those of the names that the system grants, and hands the descriptor to tokio's care. Needs a tokio runtime.
    pub(crate) fn watched(names: &[&CStr]) -> io::Result<AsyncFd<Self>> {
        let refused = || io::Error::other("notify_register_file_descriptor refuses every name");
        let notifications = Self::register(names).ok_or_else(refused)?;
        let descriptor = notifications.borrow();
        let flags = rustix::fs::fcntl_getfl(descriptor)?;
        rustix::fs::fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)?;
        // Workers have no use for it.
        rustix::io::fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
        notifications.into_watched()
    }

    #[expect(unsafe_code, reason = "notify_register_file_descriptor is C")]
    fn register(names: &[&CStr]) -> Option<Self> {
        let mut descriptor = -1;
        let mut tokens = Vec::new();
        for name in names {
            let (mut token, flags) = (0, if tokens.is_empty() { 0 } else { REUSE });
            // SAFETY: `uint32_t notify_register_file_descriptor(const char *name, int *notify_fd, int flags, int *out_token)` of <notify.h>
            // reads `name` up to its zero and writes two ints; with `NOTIFY_REUSE` it reads the first, which is then one that it made and
            // that lives as long as `tokens`.
            let status = unsafe {
                notify_register_file_descriptor(name.as_ptr(), &raw mut descriptor, flags, &raw mut token)
            };
            if status == OK {
                tokens.push(Token(token));
            }
        }
        (!tokens.is_empty() && descriptor >= 0).then_some(Self { descriptor, tokens })
    }

    #[expect(unsafe_code, reason = "tokio wants the promise that the descriptor stays open")]
    fn into_watched(self) -> io::Result<AsyncFd<Self>> {
        // SAFETY: the descriptor is open as long as one of the tokens is registered, which is until `self` is dropped; the `AsyncFd`
        // becomes its owner and takes it out of the reactor before that.
        Ok(unsafe { AsyncFd::register_with_interest(self, Interest::READABLE) }?)
    }

    #[expect(unsafe_code, reason = "the descriptor is libnotify's")]
    fn borrow(&self) -> BorrowedFd<'_> {
        debug_assert!(!self.tokens.is_empty());
        // SAFETY: the descriptor is open as long as one of the tokens is registered, which they are as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }

    /// Takes what arrived; whether something did. The kernel's buffer for it is small.
    pub(crate) fn take(&self) -> io::Result<bool> {
        let mut tokens = [0u8; 64];
        match rustix::io::read(self.borrow(), &mut tokens) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsRawFd for Notifications {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor
    }
}
