//! What a split keeps of the two units' speed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fusion_calibrations::live::Observation;
use fusion_calibrations::sample::{FinishTimes, Unit};
use fusion_calibrations::shape::Shape;
use fusion_calibrations::stats::{CONFIDENCE, median, ratio_of_pairs};
use fusion_client::attach::{Attachment, Basis, BusyGuard, LayerHandle, Options};
use fusion_frames::{Request, Timed};

use crate::block::shapes_of;
use crate::daemon::{Daemon, runtime};
use crate::figure::{Figure, Limit};
use crate::worker::Worker;

/// What is measured.
const MODEL: &str = "llama-3.2-1b";
const ROWS: u32 = 512;
/// Pairs of split calls that count, at most.
const PAIRS: usize = 64;
/// Rounds before those that count: the daemon follows what it is told.
const FOLLOWED: usize = 6;
/// Attempts to calibrate a layer: other programs may disturb all calls of one.
const ATTEMPTS: usize = 2;
/// Time for a layer: on a machine that others use, most rounds are disturbed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Every layer of the model, split as the daemon says to a client that is attached and reports its calls.
///
/// *Efficiency* is the ideal time over the measured one. The measured time runs until the joined result is there. The ideal is the time of both units balanced,
/// with nothing lost: `M g c / (g + c)`, g and c the units' times a row *while both work*, from two neighbouring calls that wait for the one and for the other unit first. So it counts what
/// splitting loses: an imbalance, submitting, waiting, joining. It doesn't count that two units at work share memory and so are slower than each
/// alone; a second figure, without a limit, does: there each unit's time a row is of calls in which it worked alone.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let runtime = runtime()?;
    let daemon = runtime.block_on(Daemon::start(&["--pair", "development"]))?;
    let mut figures = Vec::new();
    for shape in shapes_of(MODEL, ROWS)? {
        // Right before it is used, as machines that others use change within a minute.
        runtime.block_on(daemon.calibrate_patiently(&[shape], ATTEMPTS))?;
        figures.extend(one(&Served::attach(&daemon, shape)?)?);
    }
    Ok(figures)
}

/// A layer of an attached client.
struct Served {
    attachment: Attachment,
    layer: LayerHandle,
    shape: Shape,
    /// While it lives, the daemon measures nothing.
    _busy: BusyGuard,
}

impl Served {
    fn attach(daemon: &Daemon, shape: Shape) -> Result<Self> {
        let mut options = Options::new(daemon.socket().clone(), "benchmark", vec![shape.layer()]);
        options.limit = Duration::from_secs(10);
        options.state_directory = Some(daemon.state());
        let attachment = Attachment::attach(options);
        ensure!(attachment.basis() == Basis::Attached, "the daemon does not answer");
        let layer = attachment.layer(shape.layer()).context("the attachment has no such layer")?;
        let busy = attachment.busy();
        Ok(Self { attachment, layer, shape, _busy: busy })
    }

    /// The secondary unit's rows as they are served now, and whether that is a split at all: if not, half of them.
    fn rows(&self) -> (u32, bool) {
        match self.attachment.secondary_rows(self.layer, self.shape.rows()) {
            0 => (self.shape.rows() / 2, false),
            rows => (rows, true),
        }
    }

    /// Reports a split.
    fn observe(&self, secondary_rows: u32, timed: &Timed, first_waited: Unit) -> Result<()> {
        let finish_times = FinishTimes {
            primary_ms: finish_ms(timed, Unit::Primary)?,
            secondary_ms: finish_ms(timed, Unit::Secondary)?,
            first_waited,
        };
        let total_ms = timed.total_ns as f64 / 1e6;
        let rows = self.shape.rows();
        self.attachment.observe(self.layer, Observation { rows, secondary_rows, total_ms, finish_times });
        Ok(())
    }
}

/// Two neighbouring splits, and each unit alone. Times in ms.
struct Round {
    secondary_rows: u32,
    served: bool,
    /// Of the rows of each unit, while both work.
    primary: f64,
    secondary: f64,
    total: f64,
    /// Of all rows.
    primary_alone: f64,
    secondary_alone: f64,
}

impl Round {
    fn primary_a_row(&self, shape: Shape) -> f64 {
        self.primary / f64::from(shape.rows() - self.secondary_rows)
    }

    fn secondary_a_row(&self) -> f64 {
        self.secondary / f64::from(self.secondary_rows)
    }
}

fn one(served: &Served) -> Result<Vec<Figure>> {
    let shape = served.shape;
    let mut worker = Worker::start(&["--pair", "development"], shape)?;
    let (mut rounds, mut made) = (Vec::new(), 0);
    let start = Instant::now();
    while rounds.len() < PAIRS && start.elapsed() < PATIENCE {
        let round = round(&mut worker, served, made % 2 == 1)?;
        made += 1;
        if made > FOLLOWED {
            rounds.extend(round);
        }
    }
    let own = worker.compare_with_itself()?;
    let all = f64::from(shape.rows());
    // Half the rows are nearly right on two equal units: what wasn't served as a split says nothing of the daemon.
    let all_served = rounds.iter().all(|round| round.served);
    let figure = |what: &str, pairs: Vec<(f64, f64)>, limit| {
        let name = format!("split of {shape}: ideal {what} / measured");
        let figure = match ratio_of_pairs(&pairs, CONFIDENCE) {
            Some(ratio) if all_served => Figure::new(name, ratio, "", limit, pairs.len(), own)
                .raw(pairs.iter().map(|(ideal, total)| ideal / total).collect()),
            _ => Figure::unknown(name, "", limit),
        };
        figure.note(format!("{} rounds disturbed and dropped", made.saturating_sub(FOLLOWED + rounds.len())))
    };
    let pairs =
        |ideal: &dyn Fn(&Round) -> f64| rounds.iter().map(|round| (ideal(round), round.total)).collect();
    let together = |round: &Round| balanced(all, round.primary_a_row(shape), round.secondary_a_row());
    let apart = |round: &Round| balanced(all, round.primary_alone / all, round.secondary_alone / all);
    Ok(vec![
        figure("of both at work", pairs(&together), Limit::AtLeast(0.95)).note(describe(&rounds, shape)),
        figure("of each alone", pairs(&apart), Limit::None),
    ])
}

/// The time of `all` rows of two units that take so long for a row, balanced.
fn balanced(all: f64, primary_a_row: f64, secondary_a_row: f64) -> f64 {
    all * primary_a_row * secondary_a_row / (primary_a_row + secondary_a_row)
}

/// Where the time went, in the middle.
fn describe(rounds: &[Round], shape: Shape) -> String {
    let middle =
        |of: &dyn Fn(&Round) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN);
    let best_rows = |round: &Round| {
        let (primary, secondary) = (round.primary_a_row(shape), round.secondary_a_row());
        f64::from(shape.rows()) * primary / (primary + secondary)
    };
    let unserved = rounds.iter().filter(|round| !round.served).count();
    let served =
        if unserved == 0 { String::new() } else { format!(" ({unserved} rounds at half: not split)") };
    format!(
        "{:.2} ms in all, {:.2} of them after the later part; {:.0} rows served{served}, {:.0} would have balanced both",
        middle(&|round| round.total),
        middle(&|round| round.total - round.primary.max(round.secondary)),
        middle(&|round| f64::from(round.secondary_rows)),
        middle(&best_rows),
    )
}

/// `None` if another program disturbed it. Every change of what is run is followed by a call that is thrown away.
fn round(worker: &mut Worker, served: &Served, alone_first: bool) -> Result<Option<Round>> {
    let shape = served.shape;
    let before = if alone_first { Some(alone(worker, shape)?) } else { None };
    let (secondary_rows, is_served) = served.rows();
    let split = |secondary_first| Request::Split { secondary_rows, secondary_first };
    worker.time(&split(false))?;
    // In balanced order.
    let (one, one_quiet) = worker.sample(&split(alone_first))?;
    let (other, other_quiet) = worker.sample(&split(!alone_first))?;
    let alone = match before {
        Some(before) => before,
        None => alone(worker, shape)?,
    };
    // The unit that is waited for first is exact.
    let (primary_first, secondary_first) = if alone_first { (&other, &one) } else { (&one, &other) };
    if one_quiet && other_quiet {
        served.observe(secondary_rows, primary_first, Unit::Primary)?;
        served.observe(secondary_rows, secondary_first, Unit::Secondary)?;
    }
    let Some((primary_alone, secondary_alone)) = alone.filter(|_| one_quiet && other_quiet) else {
        return Ok(None);
    };
    Ok(Some(Round {
        secondary_rows,
        served: is_served,
        primary: finish_ms(primary_first, Unit::Primary)?,
        secondary: finish_ms(secondary_first, Unit::Secondary)?,
        total: (one.total_ns as f64).midpoint(other.total_ns as f64) / 1e6,
        primary_alone,
        secondary_alone,
    }))
}

/// When a unit had finished its rows.
fn finish_ms(timed: &Timed, unit: Unit) -> Result<f64> {
    let finish = timed.finish.context("a split has no finish times")?;
    let ns = match unit {
        Unit::Primary => finish.primary,
        Unit::Secondary => finish.secondary,
    };
    Ok(ns as f64 / 1e6)
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
