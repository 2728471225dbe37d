//! Finding rows in this process, as one without a daemon must.

use std::time::Instant;

use anyhow::Result;
use fusion_calibrations::{
    sample::{DropReason, Sample, is_disturbed},
    search::{Ask, Options, Search, Step},
    shape::{Layer, Shape},
};
use fusion_split::{Operands, Timing, Units};
use serde::Serialize;

/// What finding one layer's rows took.
#[derive(Debug, Serialize)]
pub(crate) struct Calibrated {
    #[serde(skip)]
    pub(crate) layer: Layer,
    /// The layer and the rows, as people write them.
    shape: String,
    pub(crate) secondary_rows: u32,
    /// Wall time with making the operands.
    pub(crate) ms: f64,
    calls: u32,
}

/// The same search that the daemon runs, over one layer.
pub(crate) fn calibrate(units: &Units, shape: Shape) -> Result<Calibrated> {
    let start = Instant::now();
    let operands = Operands::synthetic(units, shape, 1)?;
    let mut search = Search::new(shape, Options::default());
    let outcome = loop {
        let ask = match search.next() {
            Step::Done(outcome) => break outcome,
            Step::Measure(ask) => ask,
        };
        let timing = match ask {
            Ask::Stock => units.stock(&operands)?.0,
            Ask::Split { secondary_rows, first_waited } => {
                units.split(&operands, secondary_rows, first_waited)?.0
            }
        };
        search.tell(sample(&timing))?;
    };
    Ok(Calibrated {
        layer: shape.layer(),
        shape: shape.to_string(),
        secondary_rows: outcome.secondary_rows,
        ms: start.elapsed().as_secs_f64() * 1e3,
        calls: search.calls(),
    })
}

fn sample(timing: &Timing) -> Sample {
    Sample {
        secondary_rows: timing.secondary_rows,
        total_ms: timing.total_ms,
        finish_times: timing.finish_times,
        dropped: is_disturbed(timing.run_queue_delay_ms, timing.total_ms).then_some(DropReason::Disturbed),
    }
}

impl Calibrated {
    /// For people.
    pub(crate) fn line(&self) -> String {
        format!(
            "{}: {} rows found in {:.0} ms and {} calls",
            self.shape, self.secondary_rows, self.ms, self.calls
        )
    }
}
