//! Events of Linux that come without privileges: memory pressure (a trigger on /proc/pressure/memory), and devices of power and heat (the
//! kernel's uevent socket). The rest has none, and is read when there is a reason to.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::pin::Pin;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, netlink, recv, socket_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::platform::watched;
use crate::sensors::Events;
use crate::sensors::decode::{pressure, uevent};

/// The group of messages that come from the kernel itself; udev repeats them in another.
const KERNEL_GROUP: u32 = 1;
/// The kernel's messages have at most 2 KiB of variables (`UEVENT_BUFFER_SIZE`) behind a path.
const MESSAGE_BYTES: usize = 8 << 10;

/// The events of this machine.
pub(super) struct LinuxEvents {
    pressure: Option<AsyncFd<OwnedFd>>,
    devices: Option<AsyncFd<OwnedFd>>,
}

impl LinuxEvents {
    /// Asks for what the kernel lets us have. Needs a tokio runtime.
    pub(super) fn open() -> Self {
        Self {
            pressure: granted("memory pressure", pressure("/proc/pressure/memory", pressure::WARN_TRIGGER)),
            devices: granted("devices", devices()),
        }
    }
}

impl Events for LinuxEvents {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            tokio::select! {
                event = pressed(self.pressure.as_ref()) => if let Err(error) = event {
                    tracing::warn!("no more events of memory pressure: {error}");
                    self.pressure = None;
                },
                event = changed(self.devices.as_ref()) => if let Err(error) = event {
                    tracing::warn!("no more events of devices: {error}");
                    self.devices = None;
                },
            }
        })
    }
}

/// A source of events, or a word in the log: kernels before 6.5 refuse triggers, sandboxes refuse sockets.
fn granted<Source>(of: &str, source: io::Result<Source>) -> Option<Source> {
    source.inspect_err(|error| tracing::info!("no events of {of}, which are read on demand: {error}")).ok()
}

fn pressure(of: &str, trigger: &[u8]) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let mut file = File::options().read(true).write(true).custom_flags(flags).open(of)?;
    file.write_all(trigger)?;
    watched(file.into(), Interest::PRIORITY)
}

fn devices() -> io::Result<AsyncFd<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::KOBJECT_UEVENT))?;
    bind(&socket, &netlink::SocketAddrNetlink::new(0, KERNEL_GROUP))?;
    watched(socket, Interest::READABLE)
}

/// Waits until tasks waited for memory; for ever without a source. The kernel tells it at most once in the trigger's window.
async fn pressed(source: Option<&AsyncFd<OwnedFd>>) -> io::Result<()> {
    let Some(source) = source else { return std::future::pending().await };
    source.ready(Interest::PRIORITY).await?.clear_ready();
    Ok(())
}

/// Waits for news of power or heat; for ever without a source.
async fn changed(source: Option<&AsyncFd<OwnedFd>>) -> io::Result<()> {
    let Some(source) = source else { return std::future::pending().await };
    loop {
        let mut ready = source.readable().await?;
        match ready.try_io(|socket| receive(socket.get_ref())) {
            Ok(Ok(true)) => return Ok(()),
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => return Err(error),
        }
    }
}

/// Takes one message; whether it concerns the conditions.
fn receive(socket: impl AsFd) -> io::Result<bool> {
    let mut message = [0; MESSAGE_BYTES];
    match recv(socket, &mut message, RecvFlags::empty()) {
        Ok((bytes, _)) => Ok(uevent::concerns_conditions(&message[..bytes])),
        // So many that some were lost.
        Err(Errno::NOBUFS) => Ok(true),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    /// 20 ms of waiting within 2 s.
    const SOON: &[u8] = b"some 20000 2000000\0";

    /// Memory can't be made scarce for a test, but cores can.
    #[tokio::test]
    async fn tasks_that_wait_wake_whoever_asked() {
        let source = match pressure("/proc/pressure/cpu", SOON) {
            Ok(source) => source,
            Err(error) => return eprintln!("SKIPPED: this kernel refuses triggers: {error}"),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let threads = thread::available_parallelism().unwrap().get() * 2 + 1;
        let spinning: Vec<_> = (0..threads)
            .map(|_| Arc::clone(&stop))
            .map(|stop| thread::spawn(move || while !stop.load(Ordering::Relaxed) {}))
            .collect();
        for _ in 0..2 {
            pressed(Some(&source)).await.unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        for thread in spinning {
            thread.join().unwrap();
        }
    }
}
