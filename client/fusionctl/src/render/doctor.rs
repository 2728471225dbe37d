//! What the doctor found.

use std::fmt::Write as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::doctor::{Check, Outcome};
use crate::output::Output;

/// The progress of the self-test, on stderr; leaves no trace when it is gone.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(output: Output) -> Self {
        let target = if output.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(1), target);
        if let Ok(style) = ProgressStyle::with_template(
            " [{bar:24}] comparing the daemon's worker with this terminal's {elapsed}",
        ) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(std::time::Duration::from_millis(200));
        Self(bar)
    }

    /// So many rounds are done.
    pub(crate) fn show(&self, done: usize, of: usize) {
        self.0.set_length(of as u64);
        self.0.set_position(done as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A line a check; what it means and the remedy below it, where something is wrong.
pub(crate) fn checks(checks: &[Check], output: Output) -> String {
    let longest = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let word = match check.outcome {
            Outcome::Pass => "pass".to_owned(),
            Outcome::Warn => output.yellow("warn"),
            Outcome::Fail => output.red("FAIL"),
        };
        let _ = writeln!(text, " {word}  {:longest$}  {}", check.id, check.found);
        for (label, said) in [("means", &check.meaning), ("do", &check.remedy)] {
            if let Some(said) = said {
                let _ = writeln!(text, "       {:longest$}  {label}: {said}", "");
            }
        }
    }
    let count = |outcome| checks.iter().filter(|check| check.outcome == outcome).count();
    let _ = writeln!(
        text,
        "\n {} passed, {} to know of, {} failed",
        count(Outcome::Pass),
        count(Outcome::Warn),
        count(Outcome::Fail)
    );
    text
}
