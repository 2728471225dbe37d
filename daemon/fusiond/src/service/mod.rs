//! The gRPC services: from the wire's messages to the daemon's parts and back. No decision is made here.

mod attachment;
mod calibration;
mod clients;
mod control;
mod doctor;
mod explain;
mod gates;
mod ratios;
mod sharing;
mod store;

use std::sync::Arc;
use std::time::Duration;

use fusion_calibrations::engine::Engine;
use fusion_calibrations::shape::Shape;
use fusion_proto::{WireError, v1};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Status};

use crate::clients::{Clients, Introduction};
use crate::configuration;
use crate::gates::Gates;
use crate::jobs::{Jobs, Measurer};
use crate::knowledge::Knowledge;
use crate::logs::Filter;
use crate::recalibration::Recalibration;
use crate::self_test::SelfTests;
use crate::sensors::SensorWatch;
use crate::settings::Settings;
use crate::store::{Health, StoreHandle};
use crate::table::{Identity, Table};

pub use attachment::AttachmentService;
pub use calibration::CalibrationService;
pub use control::ControlService;
pub use doctor::DoctorService;
pub use gates::GatesService;
pub use ratios::RatiosService;
pub use sharing::SharingService;
pub use store::{StoreService, verified};

/// How long a question waits for the first worker to say who it is, before it is answered with nothing known.
const IDENTITY_PATIENCE: Duration = Duration::from_secs(2);

/// What every service works with.
pub struct Parts {
    /// What the daemon was told.
    pub settings: Settings,
    /// What is served.
    pub table: Arc<Table>,
    /// Who is attached.
    pub clients: Arc<Clients>,
    /// What they are told.
    pub knowledge: Arc<Knowledge>,
    /// What their gates know.
    pub gates: Gates,
    /// What the user wants.
    pub configuration: watch::Receiver<configuration::Current>,
    /// Changes what is logged.
    pub log_filter: Filter,
    /// Reads it anew.
    pub reloader: configuration::Reloader,
    /// What measures without being asked.
    pub recalibration: Arc<Recalibration>,
    /// The queue.
    pub jobs: Arc<Jobs>,
    /// Whether the worker is throttled.
    pub self_tests: SelfTests,
    /// The state of the machine.
    pub sensors: Arc<SensorWatch>,
    /// What is kept.
    pub store: StoreHandle,
    /// How the store was found at the start.
    pub store_health: Health,
    /// When the daemon started, in ms since 1970.
    pub started_at_unix_ms: u64,
    /// Cancelled once the daemon is about to exit.
    pub drain: CancellationToken,
}

impl Parts {
    /// Who measures; waits a little for the first worker of a new installation.
    async fn identity(&self) -> Option<Identity> {
        let mut identity: watch::Receiver<Option<Identity>> = self.jobs.identity();
        let known = identity.borrow_and_update().clone();
        if known.is_some() {
            return known;
        }
        let known = tokio::time::timeout(IDENTITY_PATIENCE, identity.wait_for(Option::is_some)).await;
        known.ok().and_then(Result::ok).and_then(|identity| identity.clone())
    }
}

impl Parts {
    /// Who measures for a client; and why it isn't the worker that it named, if it named one.
    pub fn measurer(&self, client: &Introduction) -> (Measurer, Option<String>) {
        let workers = self.configuration.borrow().configuration.client_workers;
        self.recalibration.measurer(client, self.jobs.identity().borrow().as_ref(), workers)
    }
}

/// Admits the daemon's own user and nobody else, for every service.
///
/// # Errors
/// `PERMISSION_DENIED` for another user, and for a peer whose user the system doesn't tell.
pub fn admit_own_user(request: Request<()>) -> Result<Request<()>, Status> {
    let peer = request
        .extensions()
        .get::<UdsConnectInfo>()
        .and_then(|info| info.peer_cred)
        .map(|credentials| credentials.uid());
    let own = rustix::process::geteuid().as_raw();
    match peer {
        Some(uid) if uid == own => Ok(request),
        Some(uid) => Err(Status::permission_denied(format!(
            "this fusiond serves user {own}, you are user {uid}: start one of your own"
        ))),
        None => Err(Status::permission_denied("the system doesn't tell which user asks")),
    }
}

fn shape(wire: Option<&v1::Shape>) -> Result<Shape, Status> {
    let wire = wire.ok_or_else(|| invalid(&WireError::Missing { field: "shape" }))?;
    Shape::try_from(wire).map_err(|error| invalid(&error))
}

fn invalid(error: &WireError) -> Status {
    Status::invalid_argument(error.to_string())
}

/// The engine that is asked for: the worker's unless another is named.
fn engine(wire: Option<v1::Engine>, identity: &Identity) -> Engine {
    wire.map_or_else(|| identity.engine.clone(), Engine::from)
}
