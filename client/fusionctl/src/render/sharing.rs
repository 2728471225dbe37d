//! Calibrations on their way to and from other machines.

use fusion_calibrations::sharing::TakenAs;
use fusion_calibrations::sharing::bundle::Bundle;
use fusion_client::v1;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::table::fields;
use super::words;
use crate::output::Output;

/// The progress of an import, on stderr; leaves no trace when it is gone. indicatif hides it where stderr is no terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(records: usize, output: Output) -> Self {
        let target = if output.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(records as u64), target);
        if let Ok(style) = ProgressStyle::with_template(" [{bar:24}] {pos} of {len} calibrations {elapsed}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    /// So many are done.
    pub(crate) fn show(&self, progress: v1::ImportProgress) {
        self.0.set_position(u64::from(progress.done));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// What was written.
pub(crate) fn exported(location: &str, bundle: &Bundle, bytes: u64) -> String {
    let count = words::count(bundle.records().len(), "calibration");
    let label = bundle.chip().pair.label().map(|label| format!("; {label}")).unwrap_or_default();
    format!("{count} of {} written to {location} ({bytes} bytes{label})\n", bundle.chip())
}

/// What was taken over.
pub(crate) fn imported(
    location: &str,
    taken: TakenAs,
    finished: &v1::ImportFinished,
    output: Output,
) -> String {
    let as_what = match taken {
        TakenAs::Imported => "imported: answer where nothing was measured here",
        TakenAs::Prior => "priors: first guesses, trusted less than anything else",
    };
    let count = |count: u32| (count > 0).then(|| words::count(count as usize, "calibration"));
    let taken = count(finished.taken).map(|count| format!("{count}, as {as_what}"));
    fields(
        &[
            ("from", Some(location.to_owned())),
            ("measured on", finished.chip.as_ref().map(words::chip)),
            ("taken over", Some(taken.unwrap_or_else(|| "nothing".to_owned()))),
            (
                "stays as it is",
                count(finished.known_better).map(|count| format!("{count}: what is known here is better")),
            ),
            ("there before", count(finished.already_there)),
        ],
        output,
    )
}
