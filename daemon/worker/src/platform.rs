//! Everything here that depends on the operating system. No `unsafe`: rustix and std wrap what is needed.

use std::{fs::File, io, os::fd::AsFd};

/// The real standard output, for frames only. File descriptor 1 becomes standard error, so that nothing that a library
/// prints can get between two frames.
pub(crate) fn take_stdout() -> io::Result<File> {
    let frames = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(File::from(frames))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        env,
        ffi::{OsStr, OsString},
        fs,
        io::{self, Error},
        os::unix::process::CommandExt as _,
        process::Command,
    };

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    /// Each unit of a development pair is one core, so OpenBLAS must not spread a product.
    const BLAS_THREADS: (&str, &str) = ("OPENBLAS_NUM_THREADS", "1");
    /// Settings of the C library's, separated by colons.
    const C_LIBRARY: &str = "GLIBC_TUNABLES";
    /// Memory in pages of 2 MiB, where the system has such: on a virtual machine, whose addresses are translated twice, stock products of 4 ms to 120 ms
    /// take 6 % less, and joining 16 MB takes 2.6 ms instead of 4.0 (Intel, 2 cores). glibc 2.35 and later; others ignore it.
    const LARGE_PAGES: (&str, &str) = ("glibc.malloc.hugetlb", "1");

    /// What a development pair needs is read when libraries are loaded, which is before `main`: so this program starts itself again, unless all is
    /// as it should be. Returns only then.
    pub(crate) fn restart_as_a_development_pair() -> io::Result<()> {
        let missing = missing(|variable| env::var_os(variable));
        if missing.is_empty() {
            // After an exec of /proc/self/exe the process would be listed as "exe".
            let _ = rustix::thread::set_name(c"fusion-worker");
            return Ok(());
        }
        let mut args = env::args_os();
        let name = args.next().unwrap_or_else(|| "fusion-worker".into());
        // Not the path: that may hold another version by now.
        Err(Command::new("/proc/self/exe").arg0(name).args(args).envs(missing).exec())
    }

    /// Variables that have to be set, given what they are. Who chose a size of pages keeps it.
    fn missing(environment: impl Fn(&str) -> Option<OsString>) -> Vec<(&'static str, OsString)> {
        let mut missing = Vec::new();
        let (variable, one) = BLAS_THREADS;
        if environment(variable).as_deref() != Some(OsStr::new(one)) {
            missing.push((variable, one.into()));
        }
        let tunables = environment(C_LIBRARY).unwrap_or_default();
        let (pages, large) = LARGE_PAGES;
        if !tunables.to_string_lossy().contains(pages) {
            let mut with_pages = tunables;
            if !with_pages.is_empty() {
                with_pages.push(":");
            }
            with_pages.push(format!("{pages}={large}"));
            missing.push((C_LIBRARY, with_pages));
        }
        missing
    }

    /// Address space beside operands and results: OpenBLAS keeps 32 MiB for each unit and ends the process if it can't have
    /// them, and the C library reserves 64 MiB for each thread that allocates.
    const WORKING_SPACE_BYTES: u64 = 256 << 20;

    /// Lets this process map `bytes` more than it has mapped by now, and some working space. Libraries and stacks do not count
    /// against `bytes`: they are mostly reserved, not used.
    pub(crate) fn limit_address_space(bytes: u64) -> io::Result<()> {
        let limit = mapped_bytes()?.saturating_add(WORKING_SPACE_BYTES).saturating_add(bytes);
        let maximum = getrlimit(Resource::As).maximum;
        let current = maximum.map_or(limit, |maximum| maximum.min(limit));
        Ok(setrlimit(Resource::As, Rlimit { current: Some(current), maximum })?)
    }

    fn mapped_bytes() -> io::Result<u64> {
        let status = fs::read_to_string("/proc/self/status")?;
        super::status_kib(&status, "VmSize:")
            .map(|kib| kib * 1024)
            .ok_or_else(|| Error::other("/proc/self/status tells no VmSize"))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn missing_of(environment: &[(&str, &str)]) -> Vec<(&'static str, String)> {
            let look_up = |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
            missing(look_up).into_iter().map(|(name, value)| (name, value.into_string().unwrap())).collect()
        }

        #[test]
        fn what_is_missing_is_set_once() {
            let both = [(BLAS_THREADS.0, "1".to_owned()), (C_LIBRARY, "glibc.malloc.hugetlb=1".to_owned())];
            assert_eq!(missing_of(&[]), both);
            assert_eq!(missing_of(&[(both[0].0, &both[0].1), (both[1].0, &both[1].1)]), []);
        }

        #[test]
        fn other_settings_are_kept() {
            let own = [(BLAS_THREADS.0, "4"), (C_LIBRARY, "glibc.malloc.check=1")];
            let set = missing_of(&own);
            assert_eq!(set[0].1, "1");
            assert_eq!(set[1].1, "glibc.malloc.check=1:glibc.malloc.hugetlb=1");
            assert_eq!(missing_of(&[(BLAS_THREADS.0, "1"), (C_LIBRARY, "glibc.malloc.hugetlb=0")]), []);
        }
    }
}

#[cfg(target_os = "linux")]
pub(crate) use linux::{limit_address_space, restart_as_a_development_pair};

#[cfg(not(target_os = "linux"))]
mod other {
    use std::io;

    /// macOS computes on Accelerate and the GPU: there is no OpenBLAS, and no glibc.
    pub(crate) fn restart_as_a_development_pair() -> io::Result<()> {
        Ok(())
    }

    /// macOS does not enforce RLIMIT_AS; MLX's own limit has to do.
    pub(crate) fn limit_address_space(_bytes: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) use other::{limit_address_space, restart_as_a_development_pair};

/// A line of `/proc/self/status` that is given in KiB.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn status_kib(status: &str, field: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(field))?.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_is_read() {
        assert_eq!(status_kib("Name:\tx\nVmSize:\t  123456 kB\n", "VmSize:"), Some(123_456));
        assert_eq!(status_kib("Name:\tx\n", "VmSize:"), None);
    }
}
