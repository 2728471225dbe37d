//! What a split keeps of the two units' speed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fusion_calibrations::sample::Unit;
use fusion_calibrations::shape::Shape;
use fusion_calibrations::stats::{CONFIDENCE, median, ratio_of_pairs};
use fusion_frames::Request;

use crate::block::shapes_of;
use crate::daemon::{Daemon, runtime};
use crate::figure::{Figure, Limit};
use crate::worker::Worker;

/// What is measured.
const MODEL: &str = "llama-3.2-1b";
const ROWS: u32 = 512;
/// Pairs of split calls that count, at most.
const PAIRS: usize = 24;
/// Time for a layer: on a machine that others use, most rounds are disturbed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Every layer of the model, split as the daemon says.
///
/// *Efficiency* is the ideal time over the measured one. The measured time runs until the joined result is there. The ideal is the time of both units balanced,
/// with nothing lost: `M g c / (g + c)`, g and c the units' times a row *while both work*, from two neighbouring calls that wait for the one and for the other unit first. So it counts what
/// splitting loses: an imbalance, submitting, waiting, joining. It doesn't count that two units at work share memory and so are slower than each
/// alone; a second figure, without a limit, does: there each unit's time a row is of calls in which it worked alone.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let runtime = runtime()?;
    let shapes = shapes_of(MODEL, ROWS)?;
    let known = runtime.block_on(async {
        let daemon = Daemon::start(&["--pair", "development"]).await?;
        Ok::<_, anyhow::Error>(daemon.calibrate_patiently(&shapes, 2).await?.0)
    })?;
    let mut figures = Vec::new();
    for shape in shapes {
        let rows = known.iter().find(|finished| {
            finished.estimate.as_ref().and_then(|estimate| Shape::try_from(estimate.shape.as_ref()?).ok())
                == Some(shape)
        });
        let rows = rows.and_then(|finished| Some(finished.estimate.as_ref()?.secondary_rows));
        let chosen = rows.filter(|rows| *rows > 0);
        let note = match (rows, chosen) {
            (_, Some(rows)) => format!("{rows} rows, as calibrated"),
            (Some(_), None) => "half the rows: calibrated, and found not worth splitting".to_owned(),
            (None, None) => "half the rows: calibrating failed".to_owned(),
        };
        let of_shape = one(shape, chosen.unwrap_or(ROWS / 2))?;
        figures.extend(of_shape.into_iter().map(|figure| figure.note(&note)));
    }
    Ok(figures)
}

/// Two neighbouring splits, and each unit alone. Times in ms.
struct Round {
    /// Of the rows of each unit, while both work.
    primary: f64,
    secondary: f64,
    total: f64,
    /// Of all rows.
    primary_alone: f64,
    secondary_alone: f64,
}

fn one(shape: Shape, secondary_rows: u32) -> Result<Vec<Figure>> {
    let mut worker = Worker::start(&["--pair", "development"], shape)?;
    let (mut rounds, mut disturbed) = (Vec::new(), 0);
    let start = Instant::now();
    while rounds.len() < PAIRS && start.elapsed() < PATIENCE {
        match round(&mut worker, shape, secondary_rows, (rounds.len() + disturbed) % 2 == 1)? {
            Some(round) => rounds.push(round),
            None => disturbed += 1,
        }
    }
    let own = worker.compare_with_itself()?;
    let all = f64::from(shape.rows());
    let balanced = |primary_a_row: f64, secondary_a_row: f64| {
        all * primary_a_row * secondary_a_row / (primary_a_row + secondary_a_row)
    };
    let (second, first) = (f64::from(secondary_rows), all - f64::from(secondary_rows));
    let together = |round: &Round| (balanced(round.primary / first, round.secondary / second), round.total);
    let apart =
        |round: &Round| (balanced(round.primary_alone / all, round.secondary_alone / all), round.total);
    let figure = |what: &str, pairs: Vec<(f64, f64)>, limit| {
        let name = format!("split of {shape}: ideal {what} / measured");
        match ratio_of_pairs(&pairs, CONFIDENCE) {
            Some(ratio) => Figure::new(name, ratio, "", limit, pairs.len(), own)
                .raw(pairs.iter().map(|(ideal, total)| ideal / total).collect()),
            None => Figure::unknown(name, "", limit),
        }
        .note(format!("{disturbed} rounds disturbed and dropped"))
    };
    let middle =
        |of: fn(&Round) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN);
    let lost = middle(|round| round.total - round.primary.max(round.secondary));
    Ok(vec![
        figure("of both at work", rounds.iter().map(together).collect(), Limit::AtLeast(0.95)).note(format!(
            "{:.2} ms in all, {lost:.2} of them after the later part",
            middle(|round| round.total)
        )),
        figure("of each alone", rounds.iter().map(apart).collect(), Limit::None),
    ])
}

/// `None` if another program disturbed it. Every change of what is run is followed by a call that is thrown away.
fn round(worker: &mut Worker, shape: Shape, secondary_rows: u32, alone_first: bool) -> Result<Option<Round>> {
    let before = if alone_first { Some(alone(worker, shape)?) } else { None };
    let split = |secondary_first| Request::Split { secondary_rows, secondary_first };
    worker.time(&split(false))?;
    // In balanced order.
    let (one, one_quiet) = worker.sample(&split(alone_first))?;
    let (other, other_quiet) = worker.sample(&split(!alone_first))?;
    let alone = match before {
        Some(before) => before,
        None => alone(worker, shape)?,
    };
    let Some((primary_alone, secondary_alone)) = alone.filter(|_| one_quiet && other_quiet) else {
        return Ok(None);
    };
    // The unit that is waited for first is exact.
    let (primary_first, secondary_first) = if alone_first { (other, one) } else { (one, other) };
    let finish = |timed: &fusion_frames::Timed, unit| {
        let finish = timed.finish.context("a split has no finish times")?;
        let ns = match unit {
            Unit::Primary => finish.primary,
            Unit::Secondary => finish.secondary,
        };
        Ok::<_, anyhow::Error>(ns as f64 / 1e6)
    };
    Ok(Some(Round {
        primary: finish(&primary_first, Unit::Primary)?,
        secondary: finish(&secondary_first, Unit::Secondary)?,
        total: (one.total_ns as f64).midpoint(other.total_ns as f64) / 1e6,
        primary_alone,
        secondary_alone,
    }))
}

/// All rows on the one unit, then on the other, in ms.
fn alone(worker: &mut Worker, shape: Shape) -> Result<Option<(f64, f64)>> {
    let secondary = Request::Split { secondary_rows: shape.rows(), secondary_first: true };
    worker.time(&Request::Stock)?;
    let (primary_ms, primary_quiet) = worker.time(&Request::Stock)?;
    worker.time(&secondary)?;
    let (secondary_ms, secondary_quiet) = worker.time(&secondary)?;
    Ok((primary_quiet && secondary_quiet).then_some((primary_ms, secondary_ms)))
}
