//! The daemon's life: becomes the one of its socket, serves, and leaves in order.
//!
//! ```text
//! lock + bind -> open store -> serve ----------------> drain -> gone
//!                                |                       |
//!                                +-- identify (once)     +-- health says NOT_SERVING, streams end, no new connections,
//!                                +-- jobs                    after the limit open connections are dropped,
//!                                                            the worker ends, the store closes, the socket goes
//! ```
//!
//! Two things would keep a plain graceful shutdown waiting for ever: a stream that nobody ends, and a connection that never said anything
//! (hyper waits for its preface). Streams end with the drain token; the limit takes care of the rest.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fs_err as fs;
use fusion_proto::v1::attachment_server::AttachmentServer;
use fusion_proto::v1::calibration_server::CalibrationServer;
use fusion_proto::v1::control_server::ControlServer;
use fusion_proto::v1::doctor_server::DoctorServer;
use fusion_proto::v1::gates_server::GatesServer;
use fusion_proto::v1::ratios_server::RatiosServer;
use fusion_proto::v1::sharing_server::SharingServer;
use fusion_proto::v1::store_server::StoreServer;
use fusion_proto::{DESCRIPTORS, MAX_CLIENTS, MAX_MESSAGE_BYTES};
use rustix::process::{Resource, Rlimit};
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::service::InterceptorLayer;
use tonic::transport::Server;

use crate::canary::Canary;
use crate::clients::Clients;
use crate::configuration::{self, Keeper, Reloader};
use crate::instance::{Instance, InstanceError};
use crate::jobs::{Jobs, Workshop};
use crate::knowledge::Knowledge;
use crate::logs;
use crate::machine::is_stand_in;
use crate::measure::unix_ms;
use crate::recalibration::{self, Recalibration};
use crate::self_test::SelfTests;
use crate::sensors::{SensorWatch, Sensors};
use crate::service::{
    AttachmentService, CalibrationService, ControlService, DoctorService, GatesService, Parts, RatiosService,
    SharingService, StoreService, admit_own_user,
};
use crate::settings::Settings;
use crate::snapshot;
use crate::store::{self, CalibrationStore, Scope, StoreError, StoreHandle};
use crate::table::{Identity, Table};

/// Files that may be open: a connection for each client, and as many for everything else.
const OPEN_FILES: u64 = 2 * MAX_CLIENTS as u64;
/// Names that health knows; the empty one is the whole daemon.
const SERVICES: [&str; 9] = [
    "",
    "fusion.v1.Attachment",
    "fusion.v1.Calibration",
    "fusion.v1.Control",
    "fusion.v1.Doctor",
    "fusion.v1.Gates",
    "fusion.v1.Ratios",
    "fusion.v1.Sharing",
    "fusion.v1.Store",
];
/// How long ending the worker and closing the store may take after the last call: a commit takes some 20 ms.
const CLOSING_LIMIT: Duration = Duration::from_secs(2);
/// Calls that one connection may have open.
const STREAMS_PER_CONNECTION: u32 = 64;

/// Why the daemon isn't running.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// It can't be the daemon of its socket.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// The state can't be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The state directory can't be made.
    #[error("the state directory can't be used: {0}; choose another with --state-dir")]
    StateDirectory(#[source] io::Error),
    /// The system refuses a thread or a socket.
    #[error("the system refuses what the daemon needs: {0}")]
    Io(#[from] io::Error),
    /// Serving failed.
    #[error("serving failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}

impl ServerError {
    /// The exit code, in sysexits' numbers.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Instance(InstanceError::Running { .. } | InstanceError::SocketTaken { .. })
            | Self::Store(StoreError::Locked { .. }) => 75,
            Self::Instance(InstanceError::ForeignDirectory { .. }) => 77,
            Self::Instance(_) | Self::StateDirectory(_) => 73,
            Self::Store(_) => 74,
            Self::Io(_) | Self::Transport(_) => 70,
        }
    }
}

/// Runs the daemon until `drain` is cancelled: by a signal, or by a `Drain` call. It listens on the `inherited` socket of its manager, else on its own.
///
/// # Errors
/// Every [`ServerError`]. What was acknowledged is kept in any case.
pub async fn run(
    settings: Settings,
    sensors: Arc<dyn Sensors>,
    filter: logs::Filter,
    inherited: Option<std::os::unix::net::UnixListener>,
    drain: CancellationToken,
) -> Result<(), ServerError> {
    let (instance, listener) = Instance::acquire(&settings.socket, inherited)?;
    allow_many_connections();
    let listener = UnixListener::from_std(listener)?;
    fs::create_dir_all(&settings.state_directory).map_err(ServerError::StateDirectory)?;
    let (keeper, reloader) = Keeper::start(settings.configuration_directory.clone());
    let configuration = keeper.subscribe();
    let parts = open(settings, sensors, (configuration, reloader), filter.clone(), drain.clone())?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        socket = %parts.settings.socket,
        state = %parts.settings.state_directory.display(),
        estimates = parts.table.counts(None).all,
        "fusiond serves"
    );
    let jobs = tokio::spawn({
        let jobs = Arc::clone(&parts.jobs);
        async move { jobs.run().await }
    });
    let identify = tokio::spawn({
        let jobs = Arc::clone(&parts.jobs);
        async move { jobs.identify().await }
    });
    let look = tokio::spawn({
        let (sensors, busy) = (Arc::clone(&parts.sensors), parts.clients.busy());
        async move { sensors.run(busy).await }
    });
    let recalibrate = tokio::spawn(recalibration::run(Arc::clone(&parts)));
    let tell = tokio::spawn(snapshot::keep(Arc::clone(&parts)));
    let background = [
        tokio::spawn(keeper.run()),
        tokio::spawn(reload_on_hangup(signal(SignalKind::hangup())?, parts.reloader.clone())),
        tokio::spawn(follow_log_filter(parts.configuration.clone(), filter)),
        look,
        tell,
    ];
    let served = serve(Arc::clone(&parts), listener, drain).await;
    background.iter().for_each(tokio::task::JoinHandle::abort);
    snapshot::save(&parts);
    // Dropping the task drops its worker, which ends the process.
    identify.abort();
    let closing = async {
        let _ = recalibrate.await;
        let _ = jobs.await;
        parts.store.close().await;
    };
    if tokio::time::timeout(CLOSING_LIMIT, closing).await.is_err() {
        tracing::warn!("the store was still busy {} s after the last call", CLOSING_LIMIT.as_secs());
    }
    drop(instance);
    tracing::info!("fusiond is gone");
    served
}

async fn reload_on_hangup(mut hangups: Signal, reloader: Reloader) {
    while hangups.recv().await.is_some() {
        reloader.reload().await;
    }
}

async fn follow_log_filter(mut configuration: watch::Receiver<configuration::Current>, filter: logs::Filter) {
    loop {
        let wanted = configuration.borrow_and_update().configuration.log_filter.clone();
        if let Err(error) = filter.set(wanted.as_deref()) {
            tracing::warn!("the log filter stays as it was: {error}");
        }
        if configuration.changed().await.is_err() {
            return;
        }
    }
}

/// Raises the limit of open files to what all clients need, as far as the system lets us: shells often start programs with 256 or 1024.
fn allow_many_connections() {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let wanted = before.maximum.map_or(OPEN_FILES, |most| most.min(OPEN_FILES));
    if before.current.is_some_and(|now| now < wanted)
        && let Err(error) =
            rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..before })
    {
        tracing::warn!("no more than {:?} files can be open: {error}", before.current);
    }
}

fn open(
    settings: Settings,
    sensors: Arc<dyn Sensors>,
    (configuration, reloader): (watch::Receiver<configuration::Current>, Reloader),
    log_filter: logs::Filter,
    drain: CancellationToken,
) -> Result<Arc<Parts>, ServerError> {
    let opened = store::SledStore::open(&settings.state_directory)?;
    if let store::Health::Degraded { reason, .. } = &opened.health {
        tracing::warn!("the store was repaired: {reason}");
    }
    let records = opened.store.latest(Scope::All)?;
    let identity = match settings.machine.stand_in() {
        Some(stand_in) => Some(stand_in),
        None => last_worker(&opened.store)?,
    };
    let table = Arc::new(Table::new(records.into_iter().map(|stored| stored.record)));
    let store = StoreHandle::spawn(opened.store)?;
    let clients = Arc::new(Clients::default());
    let sensors = Arc::new(SensorWatch::new(sensors));
    let workshop = Workshop {
        machine: settings.machine,
        worker: settings.worker.clone(),
        busy: clients.busy(),
        sensors: Arc::clone(&sensors),
        canary: Canary::open(&settings.state_directory),
        table: Arc::clone(&table),
        store: store.clone(),
        identity: watch::Sender::new(identity),
    };
    let recalibration = Recalibration::open(&settings.state_directory, sensors.last().conditions());
    let gates = snapshot::restore_gates(&settings.state_directory);
    let knowledge = Arc::new(Knowledge::new(Arc::clone(&table)));
    let self_tests = SelfTests::new(Arc::clone(&table));
    Ok(Arc::new(Parts {
        settings,
        clients,
        gates,
        knowledge,
        table,
        configuration,
        log_filter,
        reloader,
        recalibration,
        jobs: Jobs::new(workshop, drain.clone()),
        self_tests,
        sensors,
        store,
        store_health: opened.health,
        started_at_unix_ms: unix_ms(SystemTime::now()),
        drain,
    }))
}

/// Who the last worker was. A stand-in is not what a worker will be.
fn last_worker(store: &impl CalibrationStore) -> Result<Option<Identity>, StoreError> {
    let last = store.last_identity()?.filter(|last| !is_stand_in(&last.chip));
    Ok(last.map(|store::Identity { chip, engine }| Identity { chip, engine, units: String::new() }))
}

async fn serve(
    parts: Arc<Parts>,
    listener: UnixListener,
    drain: CancellationToken,
) -> Result<(), ServerError> {
    let limit = parts.settings.drain_limit;
    let (reporter, health) = tonic_health::server::health_reporter();
    for service in SERVICES {
        reporter.set_service_status(service, tonic_health::ServingStatus::Serving).await;
    }
    let valid = "the descriptors of this build are valid";
    let attachment = AttachmentServer::new(AttachmentService(Arc::clone(&parts)));
    let calibration = CalibrationServer::new(CalibrationService(Arc::clone(&parts)));
    let control = ControlServer::new(ControlService(Arc::clone(&parts)));
    let doctor = DoctorServer::new(DoctorService(Arc::clone(&parts)));
    let gates = GatesServer::new(GatesService(Arc::clone(&parts)));
    let ratios = RatiosServer::new(RatiosService(Arc::clone(&parts)));
    let sharing = SharingServer::new(SharingService(Arc::clone(&parts)));
    let store = StoreServer::new(StoreService(parts));
    let serving = Server::builder()
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .layer(InterceptorLayer::new(admit_own_user))
        .add_service(health)
        // grpcurl asks for either version of reflection, depending on its age.
        .add_service(reflection().build_v1().expect(valid))
        .add_service(reflection().build_v1alpha().expect(valid))
        .add_service(attachment.max_decoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(calibration.max_decoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(control.max_decoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(doctor.max_decoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(gates.max_decoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(ratios.max_decoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(sharing.max_decoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(store.max_decoding_message_size(MAX_MESSAGE_BYTES))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), drain.clone().cancelled_owned());
    let overdue = async {
        drain.cancelled().await;
        for service in SERVICES {
            reporter.set_service_status(service, tonic_health::ServingStatus::NotServing).await;
        }
        tokio::time::sleep(limit).await;
    };
    tokio::select! {
        served = serving => Ok(served?),
        () = overdue => {
            tracing::warn!("connections were still open {} s after the drain began and are dropped", limit.as_secs_f32());
            Ok(())
        }
    }
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}
