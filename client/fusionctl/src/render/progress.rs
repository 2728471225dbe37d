//! Progress, on stderr. indicatif hides it where stderr is no terminal.

use std::cell::RefCell;
use std::time::Duration;

use fusion_client::Event;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::words;
use crate::output::Output;

/// Steps of the bar per shape, so that it moves while a shape is measured.
const STEPS: u64 = 100;
/// How often what moves by itself is drawn.
const TICK: Duration = Duration::from_millis(200);

/// Something that is waited for, and for how long it was.
pub(crate) struct Waiting(ProgressBar);

impl Waiting {
    pub(crate) fn new(what: &'static str, output: Output) -> Self {
        let bar = ProgressBar::with_draw_target(None, target(output));
        if let Ok(style) = ProgressStyle::with_template(" {spinner} {wide_msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(what);
        bar.enable_steady_tick(TICK);
        Self(bar)
    }

    /// Leaves no trace.
    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}

fn target(output: Output) -> ProgressDrawTarget {
    if output.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
}

/// A bar over all shapes of a job.
pub(crate) struct Progress {
    bar: ProgressBar,
    shapes: usize,
    /// The shape being measured.
    now: RefCell<String>,
}

impl Progress {
    pub(crate) fn new(shapes: usize, output: Output) -> Self {
        let bar = ProgressBar::with_draw_target(Some(shapes as u64 * STEPS), target(output));
        // A literal that a test draws with.
        if let Ok(style) = ProgressStyle::with_template(" {spinner} [{bar:24}] {wide_msg} {elapsed}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(TICK);
        Self { bar, shapes, now: RefCell::default() }
    }

    /// Shows what happened.
    pub(crate) fn show(&self, event: &Event) {
        let at = |index: u32| u64::from(index) * STEPS;
        match event {
            Event::Queued(queued) if queued.position > 0 => self.bar.set_message(format!(
                "waiting for {}",
                words::count(queued.position as usize, "earlier job")
            )),
            Event::Queued(_) => self.bar.set_message("starting the worker"),
            Event::Started(started) => self.bar.set_message(started.units.clone()),
            Event::ShapeStarted(started) => {
                let shape =
                    started.shape.as_ref().map(|shape| words::shape(shape, false)).unwrap_or_default();
                *self.now.borrow_mut() = format!("{shape} ({} of {})", started.index + 1, self.shapes);
                self.bar.set_position(at(started.index));
                self.bar.set_message(self.now.borrow().clone());
            }
            Event::ShapeProgress(progress) => {
                let share = u64::from(progress.calls) * STEPS / u64::from(progress.most_calls.max(1));
                self.bar.set_position(at(progress.index) + share.min(STEPS));
                self.bar.set_message(format!(
                    "{}, {}",
                    self.now.borrow(),
                    words::count(progress.calls as usize, "call")
                ));
            }
            Event::ShapeFinished(finished) => self.bar.set_position(at(finished.index + 1)),
            Event::ShapeFailed(failed) => self.bar.set_position(at(failed.index + 1)),
            Event::Finished(_) => {}
        }
    }

    /// Leaves no trace: what counts is on stdout.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
