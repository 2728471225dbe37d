//! Who measured: the hardware and the engine.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use fusion_calibrations::{
    chip::{Chip, Cooling},
    engine::Engine,
};

use crate::{SplitError, Units, platform};

/// What mlx-rs 0.33.0 stands on, should MLX not tell.
const PINNED_MLX: &str = "0.32.2";

/// The hardware, with the pair that `units` are. What the system does not tell is "unknown". Cooling is left unknown: it
/// comes from the chip files, which the daemon has.
pub fn chip(units: &Units) -> Chip {
    let facts = platform::hardware();
    let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    Chip {
        brand: known(facts.brand),
        gpu_cores: facts.gpu_cores,
        memory_gib: rounded_gib(facts.memory_bytes),
        model_identifier: known(facts.model_identifier),
        cooling: Cooling::Unknown,
        pair: units.pair(),
    }
}

/// What picks the code of a product in this process. Call it after [`Units::open`], when all libraries are loaded.
///
/// The library hash is a CRC-32 over whole files: on Linux the mapped libraries that compute (MLX and OpenBLAS, 45 MB, some
/// 10 ms; mlx-c only forwards, and holds the path it was built in); on macOS, where MLX is part of the executable,
/// `mlx.metallib`. "none" where there is no such file.
///
/// # Errors
/// [`SplitError::System`] if a library cannot be read.
pub fn engine() -> Result<Engine, SplitError> {
    let system = |doing: String| move |source| SplitError::System { doing, source };
    let files =
        platform::engine_files().map_err(system("listing the MLX libraries of this process".to_owned()))?;
    let mut hash = crc32fast::Hasher::new();
    for file in &files {
        hash_file(&mut hash, file).map_err(system(format!("reading {}", file.display())))?;
    }
    Ok(Engine {
        os_build: platform::os_build().unwrap_or_else(|| "unknown".to_owned()),
        mlx_version: platform::mlx_version().unwrap_or_else(|| PINNED_MLX.to_owned()),
        library_hash: if files.is_empty() { "none".to_owned() } else { format!("{:08x}", hash.finalize()) },
    })
}

/// In pieces: a worker's memory is capped, and a library is large.
fn hash_file(hash: &mut crc32fast::Hasher, path: &Path) -> io::Result<()> {
    let (mut file, mut piece) = (File::open(path)?, vec![0; 256 * 1024]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(()),
            length => hash.update(&piece[..length]),
        }
    }
}

/// Installed memory of this machine in bytes; 0 if the system does not tell.
pub fn memory_bytes() -> u64 {
    platform::hardware().memory_bytes
}

fn rounded_gib(bytes: u64) -> u32 {
    let gib = 1_u64 << 30;
    u32::try_from((bytes + gib / 2) / gib).unwrap_or(u32::MAX)
}

/// The first "model name" of `/proc/cpuinfo`. Arm kernels have none.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) fn cpuinfo_model(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// "MemTotal" of `/proc/meminfo`, in bytes.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The files in `/proc/self/maps` whose code computes products, sorted by name.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) fn engine_libraries(maps: &str) -> Vec<PathBuf> {
    let computes = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        ["libmlx.so", "libscipy_openblas"].iter().any(|start| name.starts_with(start))
    };
    // Five fields without blanks, then the path, which may hold some.
    let paths = maps.lines().filter_map(|line| line.find('/').map(|start| PathBuf::from(&line[start..])));
    let mut files: Vec<PathBuf> = paths.filter(|path| computes(path)).collect();
    files.sort();
    files.dedup();
    files
}

/// `gpu-core-count` in what ioreg prints for AGXAccelerator.
#[cfg_attr(not(target_os = "macos"), allow(dead_code))]
pub(crate) fn ioreg_gpu_cores(text: &str) -> Option<u16> {
    let line = text.lines().find(|line| line.contains("\"gpu-core-count\""))?;
    line.split_once('=')?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_files_are_read() {
        let cpuinfo =
            "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Some CPU @ 2.00GHz\nmodel name\t: other\n";
        assert_eq!(cpuinfo_model(cpuinfo).as_deref(), Some("Some CPU @ 2.00GHz"));
        assert_eq!(cpuinfo_model("processor : 0\n"), None);
        assert_eq!(meminfo_total("MemTotal:       24689764 kB\nMemFree: 1 kB\n"), Some(24_689_764 * 1024));
        assert_eq!(meminfo_total("nothing"), None);
    }

    #[test]
    fn only_what_computes_is_part_of_the_engine() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 42   /opt/my code/lib/libmlxc.so\n\
                    7f01-7f02 r--p 00000000 08:01 42   /opt/my code/lib/libmlxc.so\n\
                    7f02-7f03 r-xp 00000000 08:01 43   /opt/my code/a/libmlx.so\n\
                    7f02-7f03 r--p 00000000 08:01 43   /opt/my code/a/libmlx.so\n\
                    7f02-7f03 r-xp 00000000 08:01 45   /opt/b/libscipy_openblas.so\n\
                    7f03-7f04 r-xp 00000000 08:01 44   /usr/lib/libc.so.6\n\
                    7f04-7f05 rw-p 00000000 00:00 0    [heap]\n";
        assert_eq!(
            engine_libraries(maps),
            [Path::new("/opt/b/libscipy_openblas.so"), Path::new("/opt/my code/a/libmlx.so")]
        );
    }

    #[test]
    fn the_gpus_cores_are_found() {
        assert_eq!(
            ioreg_gpu_cores("  |   \"model\" = \"Apple M4 Pro\"\n  |   \"gpu-core-count\" = 20\n"),
            Some(20)
        );
        assert_eq!(ioreg_gpu_cores(""), None);
    }

    #[test]
    fn memory_is_rounded_to_whole_gib() {
        assert_eq!(rounded_gib(24_689_764 * 1024), 24);
        assert_eq!(rounded_gib(16 << 30), 16);
    }
}
