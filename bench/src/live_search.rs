//! The search on real products: how near it is after four calls, and how many a whole calibration takes.

use anyhow::Result;
use fusion_calibrations::ratio::Ratio;
use fusion_calibrations::sample::{DropReason, Unit};
use fusion_calibrations::search::{Ask, Options, Search, Step};
use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_calibrations::stats::Interval;
use fusion_frames::Request;

use crate::figure::{Figure, Limit};
use crate::random::Random;
use crate::worker::Worker;

/// Shares that the search begins with.
const STARTS: [f64; 3] = [0.1, 0.3, 0.5];
/// Split calls after which it must be near.
const SPLIT_CALLS: usize = 4;
/// How often a disturbed call is made again before the search hears of it. More often than the daemon does: what is judged here is the search,
/// not how quiet the machine is.
const REPETITIONS: usize = 8;

/// For random factors f in [1, 4]: distance from 1/(1+f) after four split calls from each start, and calls until the speed-up is confirmed.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let mut random = Random::from_clock();
    let mut figures = Vec::new();
    for start in STARTS {
        let factor = 1.0 + 3.0 * random.next();
        figures.extend(one(start, format!("{factor:.3}").parse()?)?);
    }
    Ok(figures)
}

fn one(start: f64, factor: f64) -> Result<Vec<Figure>> {
    let shape = Shape::parse("1024x2048x2048", WeightFormat::F32, Layout::default())?;
    let text = factor.to_string();
    let mut worker = Worker::start(&["--pair", "asymmetric", "--secondary-work-factor", &text], shape)?;
    let optimum = 1.0 / (1.0 + factor);
    let options = Options { first_ratio: Some(Ratio::saturating(start)), ..Options::default() };
    let mut search = Search::new(shape, options);
    let (mut splits, mut near, mut disturbed) = (0, None, 0);
    let outcome = loop {
        let ask = match search.next() {
            Step::Done(outcome) => break outcome,
            Step::Measure(ask) => ask,
        };
        let (sample, repeated) = time(&mut worker, ask)?;
        disturbed += repeated;
        search.tell(sample)?;
        splits += usize::from(ask != Ask::Stock);
        if splits <= SPLIT_CALLS
            && let Some(lines) = search.lines()
        {
            near = Some(lines.balanced_ratio().get());
        }
    };
    let own = worker.compare_with_itself()?;
    let distance = near.map_or(f64::NAN, |ratio| (ratio - optimum).abs());
    let calls = f64::from(search.calls());
    let speed_up = outcome.speed_up.map_or_else(String::new, |interval| {
        format!(", speed-up {:.2} [{:.2}, {:.2}]", interval.value, interval.low, interval.high)
    });
    let name = format!("search from {start} at f = {text}");
    Ok(vec![
        Figure::new(
            format!("{name}: distance after 4 calls"),
            Interval::exact(distance),
            "",
            Limit::AtMost(0.02),
            4,
            own,
        )
        .note(format!("optimum {optimum:.3}, {disturbed} disturbed calls made again")),
        Figure::new(
            format!("{name}: calls in all"),
            Interval::exact(calls),
            "calls",
            Limit::AtMost(12.0),
            1,
            own,
        )
        .note(format!("{}{speed_up}; the paper's grid makes 90", outcome.verdict)),
    ])
}

/// One call, again while it is disturbed; and how often that was.
fn time(worker: &mut Worker, ask: Ask) -> Result<(fusion_calibrations::sample::Sample, usize)> {
    let (request, rows, first) = match ask {
        Ask::Stock => (Request::Stock, 0, Unit::Primary),
        Ask::Split { secondary_rows, first_waited } => {
            let secondary_first = first_waited == Unit::Secondary;
            (Request::Split { secondary_rows, secondary_first }, secondary_rows, first_waited)
        }
    };
    for repeated in 0..REPETITIONS {
        let (timed, quiet) = worker.sample(&request)?;
        if quiet {
            return Ok((timed.sample(rows, first), repeated));
        }
    }
    let (timed, quiet) = worker.sample(&request)?;
    let mut sample = timed.sample(rows, first);
    sample.dropped = (!quiet).then_some(DropReason::Disturbed);
    Ok((sample, REPETITIONS))
}
