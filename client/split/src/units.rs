//! The two units, and running a product on them.

use std::time::{Duration, Instant};

use fusion_calibrations::{
    chip::Pair,
    sample::{FinishTimes, Unit},
    shape::Shape,
};
use mlx_rs::{Array, Device, DeviceType, Stream, ops::indexing::IndexOp as _, transforms, with_stream};

use crate::{
    Operands, PairKind, Product, Timing,
    error::{Doing as _, SplitError},
    pair,
    parts::{self, Parts},
    platform::UnitThreads,
    product::{ms_since, to_ms},
};

/// Two MLX streams that share the rows of a product.
///
/// Not `Send`: all MLX objects stay on the thread that opened the units (see the crate's documentation).
#[derive(Debug)]
pub struct Units {
    primary: Stream,
    secondary: Stream,
    kind: PairKind,
    on_gpu: bool,
    threads: UnitThreads,
}

impl Units {
    /// Opens two units. On a development pair each unit's thread is pinned to a core of its own.
    ///
    /// # Errors
    /// [`SplitError::Mlx`] if MLX cannot run even a tiny product on a stream; [`SplitError::System`] if the threads
    /// cannot be looked up or pinned.
    pub fn open(kind: PairKind) -> Result<Self, SplitError> {
        let on_gpu = kind == PairKind::Auto && has_gpu()?;
        let primary_device = if on_gpu { Device::gpu() } else { Device::cpu() };
        let mut threads = UnitThreads::none_yet();
        let primary = threads.watch(Unit::Primary, || open_stream(&primary_device))?;
        let secondary = threads.watch(Unit::Secondary, || open_stream(&Device::cpu()))?;
        if !on_gpu {
            threads.pin()?;
        }
        Ok(Self { primary, secondary, kind, on_gpu, threads })
    }

    /// Which pair this is, as it is recorded.
    pub fn pair(&self) -> Pair {
        self.kind.identity(self.on_gpu)
    }

    /// One line for people: what the units are, and whether each has a core of its own.
    pub fn description(&self) -> String {
        if self.on_gpu {
            return "GPU (primary) and CPU (secondary)".to_owned();
        }
        let pair = self.pair();
        format!("{}; {}", pair.label().unwrap_or("two CPU streams"), self.threads.description())
    }

    /// Whether the primary unit is a GPU.
    pub fn is_on_gpu(&self) -> bool {
        self.on_gpu
    }

    pub(crate) fn primary(&self) -> &Stream {
        &self.primary
    }

    pub(crate) fn secondary(&self) -> &Stream {
        &self.secondary
    }

    /// Fails if measuring `shape` on this pair would take more than `limit_bytes`.
    ///
    /// # Errors
    /// [`SplitError::OutOfMemory`], with both numbers.
    pub fn check_fits(&self, shape: Shape, limit_bytes: u64) -> Result<(), SplitError> {
        let needed_bytes = self.needed_bytes(shape);
        if needed_bytes > limit_bytes {
            return Err(SplitError::OutOfMemory { shape, needed_bytes, limit_bytes });
        }
        Ok(())
    }

    /// Bytes that measuring `shape` takes at most: operands, results and ballast, or the operands while they are made.
    fn needed_bytes(&self, shape: Shape) -> u64 {
        let layer = shape.layer();
        let (rows, inputs, outputs) =
            (u64::from(shape.rows()), u64::from(layer.inputs()), u64::from(layer.outputs()));
        let tall = u64::from(self.worked_rows(shape.rows()));
        let ballast = (tall - rows) * (inputs + outputs) * layer.format().activation_bytes();
        // Random numbers are made in single precision, through random bits of the same size.
        let making = 2 * 4 * (tall * inputs).max(inputs * outputs);
        let running = shape.working_set_bytes() + ballast;
        running.max(making)
    }

    /// The whole product on the primary unit alone: the baseline.
    ///
    /// # Errors
    /// [`SplitError::Mlx`] if MLX fails.
    pub fn stock(&self, operands: &Operands) -> Result<(Timing, Product), SplitError> {
        let delay = self.threads.run_queue_delay();
        let start = Instant::now();
        let whole = with_stream(&self.primary, || operands.product(0..operands.shape().rows()))?;
        self.finished(whole, 0, start, None, delay)
    }

    /// The product with its first `secondary_rows` rows on the secondary unit. Each part is submitted on its own;
    /// and so is their joining on the primary unit; `first` is waited for first, then the other, then the whole. With no
    /// rows this is [`Units::stock`]; with all rows the secondary unit works alone.
    ///
    /// # Errors
    /// [`SplitError::TooManyRows`]; [`SplitError::Mlx`] if MLX fails.
    pub fn split(
        &self,
        operands: &Operands,
        secondary_rows: u32,
        first: Unit,
    ) -> Result<(Timing, Product), SplitError> {
        let rows = operands.shape().rows();
        match secondary_rows {
            0 => self.stock(operands),
            some if some > rows => Err(SplitError::TooManyRows { secondary_rows, shape: operands.shape() }),
            all if all == rows => self.secondary_alone(operands),
            some => self.both(operands, some, first),
        }
    }

    fn both(
        &self,
        operands: &Operands,
        secondary_rows: u32,
        first: Unit,
    ) -> Result<(Timing, Product), SplitError> {
        let delay = self.threads.run_queue_delay();
        let start = Instant::now();
        let parts = Parts::submit(
            self,
            || operands.product(secondary_rows..operands.shape().rows()),
            || self.secondary_work(operands, secondary_rows),
        )?;
        let joined = parts.submit_join(self)?;
        let finish_times = parts.wait(start, first)?;
        self.finished(joined, secondary_rows, start, Some(finish_times), delay)
    }

    fn secondary_alone(&self, operands: &Operands) -> Result<(Timing, Product), SplitError> {
        let rows = operands.shape().rows();
        let delay = self.threads.run_queue_delay();
        let start = Instant::now();
        let whole = with_stream(&self.secondary, || self.secondary_work(operands, rows))?;
        self.finished(whole, rows, start, None, delay)
    }

    /// The first `rows` rows, with the ballast of an asymmetric pair, on the stream in scope.
    fn secondary_work(&self, operands: &Operands, rows: u32) -> Result<Array, SplitError> {
        let worked = self.worked_rows(rows);
        let product = operands.product(0..worked)?;
        Ok(if worked == rows { product } else { product.index(0..rows as i32) })
    }

    /// Computes `result` and stops the clock.
    fn finished(
        &self,
        result: Array,
        secondary_rows: u32,
        start: Instant,
        finish_times: Option<FinishTimes>,
        delay_before: Option<Duration>,
    ) -> Result<(Timing, Product), SplitError> {
        parts::wait(&result)?;
        let total_ms = ms_since(start);
        let run_queue_delay_ms = self.delay_since(delay_before);
        Ok((Timing { secondary_rows, total_ms, finish_times, run_queue_delay_ms }, Product(result)))
    }

    /// How long the units' threads have waited for a core so far, if the system tells.
    pub(crate) fn run_queue_delay(&self) -> Option<Duration> {
        self.threads.run_queue_delay()
    }

    /// The same since an earlier reading, in ms.
    pub(crate) fn delay_since(&self, before: Option<Duration>) -> Option<f64> {
        let (after, before) = self.run_queue_delay().zip(before)?;
        Some(to_ms(after.saturating_sub(before)))
    }

    /// Waits until both units have done all that was submitted: each works through its stream in order.
    pub(crate) fn drain(&self) -> Result<(), SplitError> {
        warm_up(&self.primary)?;
        warm_up(&self.secondary)
    }

    /// The rows that the secondary unit multiplies for `rows` rows of result.
    pub(crate) fn worked_rows(&self, rows: u32) -> u32 {
        pair::worked_rows(rows, self.kind.work_factor())
    }

    /// How far `result` is from `reference`: max|a - b| / max|b|, no unit. Infinite if a number is not finite.
    ///
    /// # Errors
    /// [`SplitError::DifferentShapes`]; [`SplitError::Mlx`] if MLX fails.
    pub fn compare(&self, result: &Product, reference: &Product) -> Result<f64, SplitError> {
        let (a, b) = (&result.0, &reference.0);
        if a.shape() != b.shape() {
            return Err(SplitError::DifferentShapes { left: a.shape().to_vec(), right: b.shape().to_vec() });
        }
        self.relative_error(a, b)
    }

    /// The same for two arrays of one shape.
    ///
    /// # Errors
    /// [`SplitError::Mlx`] if MLX fails.
    pub fn relative_error(&self, result: &Array, reference: &Array) -> Result<f64, SplitError> {
        with_stream(&self.primary, || relative_error(result, reference)).doing("comparing results")
    }
}

fn relative_error(a: &Array, b: &Array) -> mlx_rs::error::Result<f64> {
    let (a, b) = (a.as_type::<f32>()?, b.as_type::<f32>()?);
    let (difference, largest) = (a.subtract(&b)?.abs()?.max(None)?, b.abs()?.max(None)?);
    transforms::eval([&difference, &largest])?;
    let (difference, largest) =
        (f64::from(difference.item_exact::<f32>()), f64::from(largest.item_exact::<f32>()));
    let error = if difference == 0.0 { 0.0 } else { difference / largest };
    // Infinity in a result makes the quotient NaN or zero, and neither may pass as close.
    Ok(if error.is_finite() && largest.is_finite() { error } else { f64::INFINITY })
}

/// Whether MLX reports a GPU, so that [`PairKind::Auto`] is GPU and CPU. Opens nothing.
///
/// # Errors
/// [`SplitError::Mlx`] if MLX does not tell.
pub fn has_gpu() -> Result<bool, SplitError> {
    let device = Device::try_default().doing("asking for the default device")?;
    Ok(matches!(device.get_type().doing("asking for the default device")?, DeviceType::Gpu))
}

fn open_stream(device: &Device) -> Result<Stream, SplitError> {
    let stream = Stream::new_with_device(device);
    warm_up(&stream)?;
    Ok(stream)
}

/// A tiny product: the first one starts the stream's thread, and proves that the device works at all.
fn warm_up(stream: &Stream) -> Result<(), SplitError> {
    with_stream(stream, || {
        let one = Array::from_slice(&[1.0_f32], &[1, 1]);
        one.matmul(&one)?.eval()
    })
    .doing("running a tiny product")
}
