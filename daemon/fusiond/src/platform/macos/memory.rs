//! Mach: memory and processors of the host.

use std::mem::MaybeUninit;
use std::sync::OnceLock;

use crate::sensors::decode::darwin::Pages;

/// What Mach counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryCounts {
    /// Pages by what they hold.
    pub(crate) pages: Pages,
    /// Pages swapped in since the machine started.
    pub(crate) swapped_in_pages: u64,
    /// Bytes of a page.
    pub(crate) page_bytes: u64,
}

/// Counts now; `None` if the kernel refuses.
#[expect(unsafe_code, reason = "Mach is C")]
pub(crate) fn memory_counts() -> Option<MemoryCounts> {
    let mut statistics = MaybeUninit::<libc::vm_statistics64>::zeroed();
    let mut count = libc::HOST_VM_INFO64_COUNT;
    // SAFETY: `kern_return_t host_statistics64(host_t, host_flavor_t, host_info64_t, mach_msg_type_number_t *)` of <mach/mach_host.h> writes
    // at most `count` words of four bytes, which is the size of `vm_statistics64` (<mach/vm_statistics.h>); an older kernel writes fewer.
    let status = unsafe {
        libc::host_statistics64(host(), libc::HOST_VM_INFO64, statistics.as_mut_ptr().cast(), &raw mut count)
    };
    if status != libc::KERN_SUCCESS {
        return None;
    }
    // SAFETY: integers only, all of which were zero at least.
    let statistics = unsafe { statistics.assume_init() };
    Some(MemoryCounts {
        pages: Pages {
            free: statistics.free_count.into(),
            speculative: statistics.speculative_count.into(),
            purgeable: statistics.purgeable_count.into(),
            file_backed: statistics.external_page_count.into(),
        },
        swapped_in_pages: statistics.swapins,
        page_bytes: u64::try_from(rustix::param::page_size()).ok()?,
    })
}

/// Ticks of all processors: user, system, idle, nice; `None` if the kernel refuses.
#[expect(unsafe_code, reason = "Mach is C")]
pub(crate) fn processor_ticks() -> Option<[u32; 4]> {
    let mut load = MaybeUninit::<libc::host_cpu_load_info>::zeroed();
    let mut count = libc::HOST_CPU_LOAD_INFO_COUNT;
    // SAFETY: `kern_return_t host_statistics(host_t, host_flavor_t, host_info_t, mach_msg_type_number_t *)` of <mach/mach_host.h> writes at
    // most `count` words of four bytes, which is the size of `host_cpu_load_info` (<mach/host_info.h>).
    let status = unsafe {
        libc::host_statistics(host(), libc::HOST_CPU_LOAD_INFO, load.as_mut_ptr().cast(), &raw mut count)
    };
    // SAFETY: integers only, all of which were zero at least.
    (status == libc::KERN_SUCCESS).then(|| unsafe { load.assume_init() }.cpu_ticks)
}

/// The host's port. Each `mach_host_self` adds a reference to it, so it is asked for once.
fn host() -> libc::mach_port_t {
    static HOST: OnceLock<libc::mach_port_t> = OnceLock::new();
    *HOST.get_or_init(|| {
        #[expect(deprecated, reason = "libc would rather leave Mach to the mach2 crate; it is one function")]
        #[expect(unsafe_code, reason = "Mach is C")]
        // SAFETY: `mach_port_t mach_host_self(void)` of <mach/mach_init.h>.
        let host = unsafe { libc::mach_host_self() };
        host
    })
}
