//! What came of a calibration, as far as its events tell.

use fusion_client::{Event, v1};

use crate::targets::Target;

/// What came of a calibration.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Number of the job.
    pub(crate) job: u64,
    /// The chip, as soon as it is known.
    pub(crate) chip: Option<v1::Chip>,
    /// The units, in words.
    pub(crate) units: String,
    /// Shapes that are known now, in the order in which they were done.
    pub(crate) done: Vec<Done>,
    /// Shapes that can't be measured.
    pub(crate) failed: Vec<Failed>,
    /// Whether the job came to its end.
    pub(crate) complete: bool,
    asked: usize,
}

/// A shape that is known now.
#[derive(Debug)]
pub(crate) struct Done {
    /// What it is in the models it was asked for with.
    pub(crate) names: Vec<String>,
    /// What is believed of it.
    pub(crate) estimate: v1::Estimate,
    /// Whether nothing had to be measured.
    pub(crate) from_store: bool,
    /// Machine time in ms.
    pub(crate) machine_ms: f64,
}

/// A shape that can't be measured.
#[derive(Debug)]
pub(crate) struct Failed {
    /// What it is in the models it was asked for with.
    pub(crate) names: Vec<String>,
    /// The shape.
    pub(crate) shape: v1::Shape,
    /// Why.
    pub(crate) reason: String,
}

impl Outcome {
    pub(crate) fn new(asked: usize) -> Self {
        Self { asked, ..Self::default() }
    }

    /// Takes an event in.
    pub(crate) fn take(&mut self, event: Event, targets: &[Target]) {
        match event {
            Event::Queued(queued) => self.job = queued.job,
            Event::Started(started) => {
                self.job = started.job;
                self.chip = started.chip;
                self.units = started.units;
            }
            Event::ShapeFinished(finished) => {
                let estimate = finished.estimate.unwrap_or_default();
                self.done.push(Done {
                    names: names(targets, estimate.shape.as_ref()),
                    estimate,
                    from_store: finished.from_store,
                    machine_ms: finished.machine_ms,
                });
            }
            Event::ShapeFailed(failed) => {
                let names = names(targets, failed.shape.as_ref());
                let shape = failed.shape.unwrap_or_default();
                self.failed.push(Failed { names, shape, reason: failed.reason });
            }
            Event::Finished(_) => self.complete = true,
            Event::ShapeStarted(_) | Event::ShapeProgress(_) => {}
        }
    }

    /// Whether there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.done.is_empty() && self.failed.is_empty()
    }

    /// Shapes that were measured.
    pub(crate) fn measured(&self) -> usize {
        self.done.len() - self.known_before()
    }

    /// Shapes that were answered from the store.
    pub(crate) fn known_before(&self) -> usize {
        self.done.iter().filter(|done| done.from_store).count()
    }

    /// Shapes that the job did not come to.
    pub(crate) fn not_reached(&self) -> usize {
        self.asked.saturating_sub(self.done.len() + self.failed.len())
    }

    /// Machine time in ms.
    pub(crate) fn machine_ms(&self) -> f64 {
        // Not sum(): that of nothing is -0.
        self.done.iter().fold(0.0, |sum, done| sum + done.machine_ms)
    }
}

fn names(targets: &[Target], shape: Option<&v1::Shape>) -> Vec<String> {
    targets
        .iter()
        .find(|target| Some(&v1::Shape::from(target.shape)) == shape)
        .map(|target| target.names.clone())
        .unwrap_or_default()
}
