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

    use fusion_frames::{LARGE_PAGES, ONE_BLAS_THREAD};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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

    /// Variables that have to be set, given what they are. Who chose a size of pages keeps it, and other settings of the C library's, which colons separate.
    fn missing(environment: impl Fn(&str) -> Option<OsString>) -> Vec<(&'static str, OsString)> {
        let mut missing = Vec::new();
        let (variable, one) = ONE_BLAS_THREAD;
        if environment(variable).as_deref() != Some(OsStr::new(one)) {
            missing.push((variable, one.into()));
        }
        let (variable, large) = LARGE_PAGES;
        let mut tunables = environment(variable).unwrap_or_default();
        let pages = large.split('=').next().unwrap_or(large);
        if !tunables.to_string_lossy().contains(pages) {
            if !tunables.is_empty() {
                tunables.push(":");
            }
            tunables.push(large);
            missing.push((variable, tunables));
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
            let look_up =
                |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
            missing(look_up).into_iter().map(|(name, value)| (name, value.into_string().unwrap())).collect()
        }

        #[test]
        fn what_is_missing_is_set_once() {
            let both = [ONE_BLAS_THREAD, LARGE_PAGES];
            assert_eq!(missing_of(&[]), both.map(|(name, value)| (name, value.to_owned())));
            assert_eq!(missing_of(&both), []);
        }

        #[test]
        fn other_settings_are_kept() {
            let own = [(ONE_BLAS_THREAD.0, "4"), (LARGE_PAGES.0, "glibc.malloc.check=1")];
            let set = missing_of(&own);
            assert_eq!(set[0].1, "1");
            assert_eq!(set[1].1, "glibc.malloc.check=1:glibc.malloc.hugetlb=1");
            assert_eq!(
                missing_of(&[(ONE_BLAS_THREAD.0, "1"), (LARGE_PAGES.0, "glibc.malloc.hugetlb=0")]),
                []
            );
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
