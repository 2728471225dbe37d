//! Requests in, replies out, one at a time.

use std::io::{Read, Write};

use anyhow::{Context, Result};
use fusion_calibrations::{
    sample::{FinishTimes, Unit},
    shape::Shape,
};
use fusion_frames::{FinishNanoseconds, FrameError, Hello, PROTOCOL, Reply, Request, Timed, WireShape};
use fusion_split::{Operands, SplitError, Timing, Units, identity};

/// Any number will do: operands only have to differ from zero and from each other.
const SEED: u64 = 0x5eed;

/// The worker's side of the conversation: two units, and the operands of the shape it was last asked to prepare.
pub(crate) struct Conversation {
    units: Units,
    memory_limit_bytes: u64,
    operands: Option<Operands>,
}

/// Why a request is refused. The worker lives on.
#[derive(Debug)]
struct Refusal(String);

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl Conversation {
    pub(crate) fn new(units: Units, memory_limit_bytes: u64) -> Self {
        Self { units, memory_limit_bytes, operands: None }
    }

    /// Says hello, then answers requests until the other side closes the pipe.
    ///
    /// # Errors
    /// If the pipe breaks, or the other side does not speak frames.
    pub(crate) fn hold(mut self, requests: &mut impl Read, mut replies: impl Write) -> Result<()> {
        fusion_frames::write(&mut replies, &Reply::Hello(self.hello()?)).context("cannot say hello")?;
        loop {
            let reply = match fusion_frames::read::<Request>(requests) {
                Ok(None) => return Ok(()),
                Ok(Some(request)) => self.answer(request),
                // The frame's length was right, so the next frame can be read.
                Err(error @ FrameError::Malformed { .. }) => Reply::Refused { reason: error.to_string() },
                Err(error) => return Err(error).context("cannot read a request"),
            };
            fusion_frames::write(&mut replies, &reply).context("cannot reply")?;
        }
    }

    fn hello(&self) -> Result<Hello> {
        let (chip, engine) = (identity::chip(&self.units), identity::engine()?);
        Ok(Hello {
            protocol: PROTOCOL,
            worker_version: env!("CARGO_PKG_VERSION").to_owned(),
            brand: chip.brand,
            gpu_cores: chip.gpu_cores,
            memory_bytes: identity::memory_bytes(),
            model_identifier: chip.model_identifier,
            pair: chip.pair.to_string(),
            units: self.units.description(),
            os_build: engine.os_build,
            mlx_version: engine.mlx_version,
            library_hash: engine.library_hash,
        })
    }

    fn answer(&mut self, request: Request) -> Reply {
        let reply = match request {
            Request::Prepare(shape) => self.prepare(&shape),
            Request::Stock => self.stock(),
            Request::Split { secondary_rows, secondary_first } => self.split(secondary_rows, secondary_first),
            Request::Check { secondary_rows } => self.check(secondary_rows),
        };
        reply.unwrap_or_else(|Refusal(reason)| Reply::Refused { reason })
    }

    fn prepare(&mut self, wire: &WireShape) -> Result<Reply, Refusal> {
        let shape = Shape::try_from(wire)?;
        self.units.check_fits(shape, self.memory_limit_bytes)?;
        // The old ones go first: two shapes at once may not fit where each does.
        self.operands = None;
        fusion_split::release_memory()?;
        let operands = Operands::synthetic(&self.units, shape, SEED)?;
        self.warm_up(&operands)?;
        self.operands = Some(operands);
        Ok(Reply::Prepared { active_bytes: fusion_split::active_memory_bytes()? })
    }

    /// Both arms once, untimed: pages are touched, kernels loaded. Cliffs are powers of two, so an odd count is none.
    fn warm_up(&self, operands: &Operands) -> Result<(), SplitError> {
        self.units.stock(operands)?;
        self.units.split(operands, (operands.shape().rows() / 2) | 1, Unit::Primary)?;
        Ok(())
    }

    fn stock(&self) -> Result<Reply, Refusal> {
        let (timing, _) = self.units.stock(self.prepared()?)?;
        Ok(Reply::Timed(timed(&timing)))
    }

    fn split(&self, secondary_rows: u32, secondary_first: bool) -> Result<Reply, Refusal> {
        let operands = self.prepared()?;
        some_rows(secondary_rows)?;
        let first = if secondary_first { Unit::Secondary } else { Unit::Primary };
        let (timing, _) = self.units.split(operands, secondary_rows, first)?;
        Ok(Reply::Timed(timed(&timing)))
    }

    fn check(&self, secondary_rows: u32) -> Result<Reply, Refusal> {
        let operands = self.prepared()?;
        some_rows(secondary_rows)?;
        let (_, joined) = self.units.split(operands, secondary_rows, Unit::Primary)?;
        let (_, whole) = self.units.stock(operands)?;
        Ok(Reply::Checked { relative_error: self.units.compare(&joined, &whole)? })
    }

    fn prepared(&self) -> Result<&Operands, Refusal> {
        self.operands.as_ref().ok_or_else(|| Refusal("nothing is prepared: send Prepare first".to_owned()))
    }
}

fn some_rows(secondary_rows: u32) -> Result<(), Refusal> {
    if secondary_rows == 0 {
        return Err(Refusal(
            "a split gives the secondary unit at least 1 row: ask for Stock instead".to_owned(),
        ));
    }
    Ok(())
}

fn timed(timing: &Timing) -> Timed {
    Timed {
        total_ns: nanoseconds(timing.total_ms),
        finish: timing.finish_times.map(|FinishTimes { primary_ms, secondary_ms, .. }| FinishNanoseconds {
            primary: nanoseconds(primary_ms),
            secondary: nanoseconds(secondary_ms),
        }),
        run_delay_ns: timing.run_queue_delay_ms.map(nanoseconds),
    }
}

fn nanoseconds(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}
