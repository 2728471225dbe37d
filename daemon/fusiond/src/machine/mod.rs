//! The measuring side: what times one call after the other.
//!
//! ```text
//! jobs, measure --> Machine --+--> worker process: MLX on this machine
//!                             +--> stand-in: recorded or modelled data, in this process, in virtual time
//! ```
//!
//! Whatever stands behind it, a calibration takes the same way through search, store and service. A stand-in's numbers carry its pair
//! (recorded, modelled) in the chip's key, so they never meet measured ones.

mod choice;
mod stand_in;

use fusion_calibrations::chips;
use fusion_calibrations::sample::{Sample, Unit};
use fusion_calibrations::search::{Ask, Budget, Candidates, Evidence};
use fusion_calibrations::shape::Shape;
use fusion_frames::Request;

use crate::settings::WorkerSettings;
use crate::table::Identity;
use crate::worker::{Worker, WorkerError};

pub use choice::{MachineChoice, MachineChoiceError, is_stand_in};
pub use stand_in::{StandIn, UnknownShape};

/// Why a machine gives no answer.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The worker failed.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// A stand-in has no data of this shape.
    #[error(transparent)]
    UnknownShape(#[from] UnknownShape),
    /// A client's worker has another engine than the client said.
    #[error(
        "'{worker}' measures with {is}, but the client runs {named}: does it load other libraries than that one names?"
    )]
    OtherEngine {
        /// The worker.
        worker: String,
        /// What the client said.
        named: String,
        /// What the worker says.
        is: String,
    },
    /// A client's worker measures another machine or pair than the daemon's own.
    #[error(
        "'{worker}' measures the pair {is}, the daemon's own worker {own}: ratios of two pairs can't be mixed"
    )]
    OtherChip {
        /// The worker.
        worker: String,
        /// What it measures.
        is: String,
        /// What is served.
        own: String,
    },
}

impl MachineError {
    /// Whether the machine can be asked again.
    pub fn machine_survives(&self) -> bool {
        match self {
            Self::Worker(error) => error.worker_survives(),
            Self::UnknownShape(_) => true,
            Self::OtherEngine { .. } | Self::OtherChip { .. } => false,
        }
    }
}

/// What a search may count on for one shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// What a call tells.
    pub evidence: Evidence,
    /// Which row counts can be timed.
    pub candidates: Candidates,
    /// What a calibration may cost.
    pub budget: Budget,
}

impl Terms {
    /// Any row count, and both units' finish times.
    pub fn with_finish_times() -> Self {
        Self { evidence: Evidence::FinishTimes, candidates: Candidates::Any, budget: Budget::default() }
    }
}

/// A timed call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// What was timed, not yet judged.
    pub sample: Sample,
    /// How long threads of the units waited for a core meanwhile, in ms; `None` where nobody tells.
    pub run_delay_ms: Option<f64>,
}

/// What times calls, for one job.
#[derive(Debug)]
pub enum Machine {
    /// This machine, through a worker process.
    Worker(Box<Worker>),
    /// Data.
    StandIn(Box<StandIn>),
}

impl Machine {
    /// Gets the chosen machine ready for job number `job`. A worker may take `memory_limit_bytes` for what it measures.
    ///
    /// # Errors
    /// Those of [`Worker::start`].
    pub async fn start(
        choice: &MachineChoice,
        worker: &WorkerSettings,
        memory_limit_bytes: Option<u64>,
        job: u64,
    ) -> Result<Self, MachineError> {
        Ok(match StandIn::new(choice, job) {
            Some(stand_in) => Self::StandIn(Box::new(stand_in)),
            None => Self::Worker(Box::new(Worker::start(worker, memory_limit_bytes).await?)),
        })
    }

    /// Who measures.
    ///
    /// # Errors
    /// [`WorkerError::Nonsense`] if the worker's hello can't be understood.
    pub fn identity(&self) -> Result<Identity, MachineError> {
        match self {
            Self::Worker(worker) => {
                let hello = worker.hello();
                let mut chip = hello.chip().map_err(WorkerError::from)?;
                chip.cooling = chips::cooling(&chip.model_identifier);
                Ok(Identity { chip, engine: hello.engine(), units: hello.units.clone() })
            }
            Self::StandIn(stand_in) => Ok(stand_in.identity()),
        }
    }

    /// Gets ready for calls of `shape`.
    ///
    /// # Errors
    /// Every [`MachineError`]; [`MachineError::UnknownShape`] names what there is instead.
    pub async fn prepare(&mut self, shape: Shape) -> Result<Terms, MachineError> {
        match self {
            Self::Worker(worker) => {
                worker.prepare(shape.into()).await?;
                Ok(Terms::with_finish_times())
            }
            Self::StandIn(stand_in) => Ok(stand_in.prepare(shape)?),
        }
    }

    /// Times one call of the shape that was prepared.
    ///
    /// # Errors
    /// Every [`MachineError`] but `UnknownShape`.
    pub async fn time(&mut self, ask: Ask) -> Result<Timing, MachineError> {
        match self {
            Self::Worker(worker) => Ok(time(worker, ask).await?),
            Self::StandIn(stand_in) => {
                // A call takes no time, so the daemon's other work gets its turn here.
                tokio::task::yield_now().await;
                Ok(Timing { sample: stand_in.call(ask)?, run_delay_ms: None })
            }
        }
    }

    /// Compares a split's result with the unsplit one: the relative error; `None` where nothing is computed.
    ///
    /// # Errors
    /// Every [`MachineError`] but `UnknownShape`.
    pub async fn check(&mut self, secondary_rows: u32) -> Result<Option<f64>, MachineError> {
        match self {
            Self::Worker(worker) => Ok(Some(worker.check(secondary_rows).await?)),
            Self::StandIn(_) => Ok(None),
        }
    }
}

async fn time(worker: &mut Worker, ask: Ask) -> Result<Timing, WorkerError> {
    let (request, first_waited) = match ask {
        Ask::Stock => (Request::Stock, Unit::Primary),
        Ask::Split { secondary_rows, first_waited } => {
            let secondary_first = first_waited == Unit::Secondary;
            (Request::Split { secondary_rows, secondary_first }, first_waited)
        }
    };
    let timed = worker.time(&request).await?;
    Ok(Timing {
        sample: timed.sample(ask.secondary_rows(), first_waited),
        run_delay_ms: timed.run_delay_ns.map(|ns| ns as f64 / 1e6),
    })
}
