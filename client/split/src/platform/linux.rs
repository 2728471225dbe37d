//! Linux: both units are threads of ours, found and watched through `/proc`.

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString},
    fs, io,
    path::PathBuf,
    time::Duration,
};

use fusion_calibrations::sample::Unit;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

use crate::{error::SplitError, identity};

/// What the system says about the hardware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HardwareFacts {
    pub(crate) brand: Option<String>,
    pub(crate) gpu_cores: Option<u16>,
    pub(crate) memory_bytes: u64,
    pub(crate) model_identifier: Option<String>,
}

pub(crate) fn hardware() -> HardwareFacts {
    let read = |path: &str| fs::read_to_string(path).ok();
    HardwareFacts {
        brand: read("/proc/cpuinfo").and_then(|text| identity::cpuinfo_model(&text)),
        gpu_cores: None,
        memory_bytes: read("/proc/meminfo")
            .and_then(|text| identity::meminfo_total(&text))
            .unwrap_or_default(),
        model_identifier: read("/sys/class/dmi/id/product_name")
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty()),
    }
}

/// The kernel's release: "6.1.0-28-amd64".
pub(crate) fn os_build() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|release| release.trim().to_owned())
}

/// The libraries in this process whose code computes a product.
pub(crate) fn engine_files() -> io::Result<Vec<PathBuf>> {
    Ok(identity::engine_libraries(&fs::read_to_string("/proc/self/maps")?))
}

/// The MLX threads behind the two streams.
#[derive(Debug)]
pub(crate) struct UnitThreads {
    primary: Option<i32>,
    secondary: Option<i32>,
    /// The cores that the primary and the secondary unit are pinned to.
    pinned: Option<(usize, usize)>,
}

impl UnitThreads {
    pub(crate) fn none_yet() -> Self {
        Self { primary: None, secondary: None, pinned: None }
    }

    /// Runs `open`, which must run something on the unit's new stream, and finds the thread that MLX starts for it: a
    /// new thread inherits the name of the one that starts it. A GPU stream has none.
    pub(crate) fn watch<T>(
        &mut self,
        unit: Unit,
        open: impl FnOnce() -> Result<T, SplitError>,
    ) -> Result<T, SplitError> {
        let name = match unit {
            Unit::Primary => c"mlx-primary",
            Unit::Secondary => c"mlx-secondary",
        };
        let before = threads_named(name)?;
        let opened = {
            let _renamed = Renamed::to(name);
            open()?
        };
        let thread = threads_named(name)?.difference(&before).next().copied();
        match unit {
            Unit::Primary => self.primary = thread,
            Unit::Secondary => self.secondary = thread,
        }
        Ok(opened)
    }

    /// Pins each unit to a core of its own, if two are allowed.
    pub(crate) fn pin(&mut self) -> Result<(), SplitError> {
        let (Some(primary), Some(secondary)) = (self.primary, self.secondary) else { return Ok(()) };
        let Some((first, second)) = choose_cores(&allowed_cores()?, siblings) else { return Ok(()) };
        pin(primary, first)?;
        pin(secondary, second)?;
        self.pinned = Some((first, second));
        Ok(())
    }

    pub(crate) fn description(&self) -> String {
        match self.pinned {
            Some((first, second)) => format!("pinned to cores {first} and {second}"),
            None => "not pinned: they have no two cores, or their threads were not found".to_owned(),
        }
    }

    /// How long both threads together have waited for a core since they started.
    pub(crate) fn run_queue_delay(&self) -> Option<Duration> {
        let of = |thread: Option<i32>| {
            let text = fs::read_to_string(format!("/proc/self/task/{}/schedstat", thread?)).ok()?;
            schedstat_delay(&text)
        };
        // A GPU has no thread: what is known of the other unit counts.
        [self.primary, self.secondary].into_iter().filter_map(of).reduce(|sum, delay| sum + delay)
    }
}

/// The calling thread under another name, until this is dropped. A name is a help only: failing to set one is no error.
struct Renamed(Option<CString>);

impl Renamed {
    fn to(name: &CStr) -> Self {
        let before = rustix::thread::name().ok();
        let _ = rustix::thread::set_name(name);
        Self(before)
    }
}

impl Drop for Renamed {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            let _ = rustix::thread::set_name(name);
        }
    }
}

/// Our threads of that name, but for the calling one.
fn threads_named(name: &CStr) -> Result<BTreeSet<i32>, SplitError> {
    let own = gettid().as_raw_nonzero().get();
    let listing = fs::read_dir("/proc/self/task").map_err(|source| SplitError::System {
        doing: "listing our threads in /proc/self/task".to_owned(),
        source,
    })?;
    let named = |thread: &i32| {
        fs::read(format!("/proc/self/task/{thread}/comm"))
            .is_ok_and(|comm| comm.trim_ascii_end() == name.to_bytes())
    };
    let ids = listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(ids.filter(|thread| *thread != own).filter(named).collect())
}

fn allowed_cores() -> Result<Vec<usize>, SplitError> {
    let set = sched_getaffinity(None).map_err(|e| SplitError::System {
        doing: "asking which cores are allowed".to_owned(),
        source: e.into(),
    })?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

fn pin(thread: i32, core: usize) -> Result<(), SplitError> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(Pid::from_raw(thread), &set).map_err(|e| SplitError::System {
        doing: format!("pinning a unit's thread to core {core}"),
        source: e.into(),
    })
}

/// Logical cores that share a physical one with `core`, itself included.
fn siblings(core: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    fs::read_to_string(path).map(|text| parse_cpu_list(&text)).unwrap_or_default()
}

/// Two allowed cores, of different physical cores where possible; `None` if fewer than two are allowed.
fn choose_cores(allowed: &[usize], siblings: impl Fn(usize) -> Vec<usize>) -> Option<(usize, usize)> {
    let (&first, rest) = allowed.split_first()?;
    let shared = siblings(first);
    let second = rest.iter().find(|core| !shared.contains(core)).or(rest.first())?;
    Some((first, *second))
}

/// The kernel's list format: "0-2,5".
fn parse_cpu_list(text: &str) -> Vec<usize> {
    let range = |item: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// The second number of `schedstat`: nanoseconds spent waiting on a run queue.
fn schedstat_delay(text: &str) -> Option<Duration> {
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_physical_cores_come_first() {
        let hyper_threads = |core: usize| vec![core & !1, core | 1];
        assert_eq!(choose_cores(&[0, 1, 2, 3], hyper_threads), Some((0, 2)));
        assert_eq!(choose_cores(&[4, 5], hyper_threads), Some((4, 5)));
        assert_eq!(choose_cores(&[3, 7], |_| vec![]), Some((3, 7)));
        assert_eq!(choose_cores(&[3], hyper_threads), None);
        assert_eq!(choose_cores(&[], hyper_threads), None);
    }

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(parse_cpu_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(parse_cpu_list("7\n"), [7]);
        assert!(parse_cpu_list("\n").is_empty());
    }

    #[test]
    fn the_run_queue_delay_is_the_second_number() {
        assert_eq!(schedstat_delay("123456 7890 12\n"), Some(Duration::from_nanos(7890)));
        assert_eq!(schedstat_delay(""), None);
    }
}
