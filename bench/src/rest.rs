//! What a daemon costs while nothing happens.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_calibrations::stats::Interval;

use crate::daemon::{Daemon, runtime};
use crate::figure::{Figure, Limit};

/// How long the daemon is watched.
const WATCHED: Duration = Duration::from_secs(60);
/// After the last call: what it still has to do is over then.
const SETTLING: Duration = Duration::from_secs(8);

pub(crate) fn measure() -> Result<Vec<Figure>> {
    runtime()?.block_on(async {
        let shape = Shape::parse("256x512x512", WeightFormat::F32, Layout::default())?;
        let daemon = Daemon::start(&[]).await?;
        // The store must have been written once: its threads start then. A busy machine may need a second try.
        for _ in 0..5 {
            if daemon.calibrate(&[shape]).await.is_ok() {
                break;
            }
        }
        tokio::time::sleep(SETTLING).await;
        let before = wake_ups(daemon.pid())?;
        tokio::time::sleep(WATCHED).await;
        let after = wake_ups(daemon.pid())?;
        figures(daemon.pid(), &before, &after)
    })
}

fn figures(pid: u32, before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Result<Vec<Figure>> {
    let since = |name: &String| after[name].saturating_sub(before.get(name).copied().unwrap_or(0));
    let per_minute = |sled: bool| {
        let total: u64 = after.keys().filter(|name| name.contains("sled") == sled).map(since).sum();
        Interval::exact(total as f64 * 60.0 / WATCHED.as_secs_f64())
    };
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).context("reading the daemon's mappings")?;
    let mapped = maps.lines().filter(|line| line.contains("libmlx")).count();
    let seconds = usize::try_from(WATCHED.as_secs())?;
    let threads = after.len();
    Ok(vec![
        Figure::new(
            "resident memory at rest",
            Interval::exact(resident_mib(pid)?),
            "MiB",
            Limit::AtMost(20.0),
            1,
            None,
        ),
        Figure::new("MLX libraries mapped", Interval::exact(mapped as f64), "", Limit::AtMost(0.0), 1, None),
        Figure::new(
            "wake-ups of own threads",
            per_minute(false),
            "a minute",
            Limit::AtMost(12.0),
            seconds,
            None,
        )
        .note(format!("{threads} threads in all, watched for {seconds} s")),
        Figure::new("wake-ups of sled's threads", per_minute(true), "a minute", Limit::None, seconds, None),
    ])
}

/// Voluntary and forced context switches of every thread, by name and number.
fn wake_ups(pid: u32) -> Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = entry?.path();
        let Ok(status) = fs::read_to_string(path.join("status")) else { continue };
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        let switches = status
            .lines()
            .filter_map(|line| line.split_once("ctxt_switches:"))
            .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
            .sum();
        counts.insert(format!("{} {}", name.trim(), path.display()), switches);
    }
    Ok(counts)
}

pub(crate) fn resident_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no resident size is told")?;
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes / 1024.0)
}
