//! Where and when the figures were measured.

use std::fs;
use std::process::Command;

use serde::Serialize;

/// Everything that a reader of the figures may ask about the machine.
#[derive(Debug, Serialize)]
pub(crate) struct Environment {
    processor: String,
    cores: usize,
    memory_mib: u64,
    available_memory_mib: u64,
    operating_system: String,
    mlx: &'static str,
    fusiond: &'static str,
    git_revision: String,
    load_average: String,
    power: String,
    thermal: &'static str,
    time: String,
}

/// Reads the environment; what can't be read is "unknown".
pub(crate) fn read() -> Environment {
    let system = rustix::system::uname();
    Environment {
        processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        memory_mib: kibibytes("MemTotal") / 1024,
        available_memory_mib: kibibytes("MemAvailable") / 1024,
        operating_system: format!(
            "{} {}",
            system.sysname().to_string_lossy(),
            system.release().to_string_lossy()
        ),
        mlx: "0.32.2, two CPU streams (development pair)",
        fusiond: env!("CARGO_PKG_VERSION"),
        git_revision: revision(),
        load_average: fs::read_to_string("/proc/loadavg")
            .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned()),
        power: if fs::read_dir("/sys/class/power_supply").is_ok_and(|mut supplies| supplies.next().is_some())
        {
            "see /sys/class/power_supply".to_owned()
        } else {
            "AC (no battery)".to_owned()
        },
        thermal: "unknown",
        time: jiff::Timestamp::now().to_string(),
    }
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kibibytes(name: &str) -> u64 {
    field("/proc/meminfo", name).and_then(|text| text.trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

/// The commit, with a mark if the tree differs from it.
fn revision() -> String {
    Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .map_or_else(
            || "unknown".to_owned(),
            |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        )
}
