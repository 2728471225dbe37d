//! What steers and shows measuring without being asked.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use jiff::{Span, SpanRelativeTo};

use super::OneShape;

/// Most past calibrations that the daemon tells at a time: `ListHistoryRequest.limit`.
const MOST_PAST: i64 = 1000;
/// Between two looks at the daemon, in s: a look costs it some 100 us, and a person reads no faster.
const SHORTEST_INTERVAL: f64 = 0.1;
/// The longest time between two looks, in s: beyond it, it's no live view.
const LONGEST_INTERVAL: f64 = 3600.0;

/// How long to pause.
#[derive(Debug, Args)]
pub(crate) struct Pause {
    /// Go on after so long: 30m, 2h, '1d 12h' [default: not before 'fusionctl resume']
    #[arg(long = "for", value_name = "DURATION", value_parser = seconds)]
    pub(crate) seconds: Option<NonZeroU64>,
}

/// The configuration directory.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// What it says: where it is, what is wanted, what can't be split and why, what is wrong
    #[command(after_help = "Example:\n  fusionctl config show --json | jq '.skipped[]'")]
    Show,
    /// Read it now, as after SIGHUP; a file that can't be used is named, and what held before still holds
    #[command(after_help = "Example:\n  fusionctl config reload\n\nExits with 78 if a file can't be used.")]
    Reload,
}

/// Whose past to show.
#[derive(Debug, Args)]
pub(crate) struct History {
    #[command(flatten)]
    pub(crate) shape: OneShape,
    /// At most so many, the newest
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=MOST_PAST))]
    pub(crate) limit: u32,
    /// Draw ratio and speed-up over time, too: a file ending with .svg or .png; replaced if it exists
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,
}

/// How to watch.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Seconds between two looks at the daemon
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,
}

/// "30m", "2h", "1d 12h", in whole seconds.
fn seconds(text: &str) -> Result<NonZeroU64, String> {
    let span: Span = text.parse().map_err(|_| "write for example 30m, 2h or '1d 12h'".to_owned())?;
    let duration = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| "months and years differ in length: write days, 30d".to_owned())?;
    u64::try_from(duration.as_secs())
        .ok()
        .and_then(NonZeroU64::new)
        .ok_or_else(|| "a pause takes at least 1s".to_owned())
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write seconds, 0.5 or 2".to_owned())?;
    if (SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("write {SHORTEST_INTERVAL} to {LONGEST_INTERVAL} seconds"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_written_as_people_do() {
        let cases = [
            ("30m", 1800),
            ("2h", 7200),
            ("1d", 86_400),
            ("1d 12h", 129_600),
            ("90 seconds", 90),
            ("PT5M", 300),
            ("2w", 1_209_600),
        ];
        for (text, expected) in cases {
            assert_eq!(seconds(text).map(NonZeroU64::get), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_pause_is_refused_with_a_remedy() {
        let cases = [
            ("30", "30m"),
            ("", "30m"),
            ("soon", "30m"),
            ("1mo", "write days"),
            ("1y", "write days"),
            ("0s", "at least 1s"),
            ("999ms", "at least 1s"),
            ("-5m", "at least 1s"),
            ("5m ago", "at least 1s"),
        ];
        for (text, says) in cases {
            let error = seconds(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn an_interval_is_neither_nothing_nor_for_ever() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "NaN", "inf", "3601", "1s"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
