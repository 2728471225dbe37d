//! The calls.

use std::num::NonZeroU64;
use std::time::Duration;

use fusion_calibrations::engine::Engine;
use fusion_calibrations::gate::Arm;
use fusion_calibrations::self_test::Pair;
use fusion_calibrations::shape::Shape;
use fusion_calibrations::sharing::TakenAs;
use fusion_calibrations::sharing::bundle::MAX_BUNDLE_BYTES;
use fusion_proto::endpoint::SocketPath;
use fusion_proto::v1::attachment_client::AttachmentClient;
use fusion_proto::v1::calibration_client::CalibrationClient;
use fusion_proto::v1::control_client::ControlClient;
use fusion_proto::v1::doctor_client::DoctorClient;
use fusion_proto::v1::gates_client::GatesClient;
use fusion_proto::v1::ratios_client::RatiosClient;
use fusion_proto::v1::sharing_client::SharingClient;
use fusion_proto::v1::store_client::StoreClient;
use fusion_proto::{MAX_MESSAGE_BYTES, PROTOCOL, v1};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::connection::channel;
use crate::error::from_status;
use crate::{
    AttachedClient, Calibration, ClientError, Deadlines, Estimates, Forgotten, GateScope, Import, KnownGates,
    SelfTest, ServedLayer, VERSION, WorkloadName, sharing,
};

/// What a daemon said of itself when it was connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonVersion {
    /// Its version.
    pub version: String,
    /// Its protocol.
    pub protocol: u32,
}

/// A connection to the daemon of this user. Cheap to clone; clones share the connection.
#[derive(Debug, Clone)]
pub struct Client {
    socket: SocketPath,
    deadlines: Deadlines,
    channel: Channel,
    daemon: DaemonVersion,
}

impl Client {
    /// Connects to the daemon that listens on `socket` and asks who it is, within 1 s.
    ///
    /// # Errors
    /// [`ClientError::NotRunning`], [`ClientError::NotAnswering`], [`ClientError::ForeignSocket`] and
    /// [`ClientError::Socket`]. Another protocol is no error yet: such a daemon can be looked at and stopped.
    pub async fn connect(socket: &SocketPath) -> Result<Self, ClientError> {
        Self::connect_with(socket, Deadlines::default()).await
    }

    /// Connects with deadlines of one's own.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn connect_with(socket: &SocketPath, deadlines: Deadlines) -> Result<Self, ClientError> {
        let (socket, channel) = (socket.clone(), channel(socket, &deadlines));
        let daemon = DaemonVersion { version: String::new(), protocol: PROTOCOL };
        let mut client = Self { socket, deadlines, channel, daemon };
        let status = client.status_within(deadlines.connect).await?;
        client.daemon = DaemonVersion { version: status.version, protocol: status.protocol };
        Ok(client)
    }

    /// Where the daemon listens.
    pub fn socket(&self) -> &SocketPath {
        &self.socket
    }

    /// What the daemon said of itself when it was connected to.
    pub fn daemon(&self) -> &DaemonVersion {
        &self.daemon
    }

    /// What the daemon is doing. Works across protocols.
    ///
    /// # Errors
    /// Those of a connection: see [`ClientError`].
    pub async fn status(&self) -> Result<v1::GetStatusReply, ClientError> {
        self.status_within(self.deadlines.call).await
    }

    async fn status_within(&self, deadline: Duration) -> Result<v1::GetStatusReply, ClientError> {
        let request = v1::GetStatusRequest { client_version: VERSION.to_owned(), client_protocol: PROTOCOL };
        let mut control = ControlClient::new(self.channel.clone());
        self.within(deadline, control.get_status(request)).await
    }

    /// Tells the daemon to finish what was acknowledged and to exit; `reason` is for its log. Works across protocols. See
    /// [`crate::wait_until_gone`].
    ///
    /// # Errors
    /// Those of a connection: see [`ClientError`].
    pub async fn drain(&self, reason: &str) -> Result<v1::DrainReply, ClientError> {
        let mut control = ControlClient::new(self.channel.clone());
        let request = v1::DrainRequest { reason: reason.to_owned() };
        self.within(self.deadlines.call, control.drain(request)).await
    }

    /// Tells the daemon to read its configuration now.
    ///
    /// # Errors
    /// [`ClientError::FailedPrecondition`] with the file and what is wrong, if it can't be used: what held before still holds;
    /// [`ClientError::Protocol`], and those of a connection.
    pub async fn reload_configuration(&self) -> Result<v1::ConfigurationStatus, ClientError> {
        self.same_protocol()?;
        let mut control = ControlClient::new(self.channel.clone());
        let request = v1::ReloadConfigurationRequest {};
        let reply = self.within(self.deadlines.call, control.reload_configuration(request)).await?;
        Ok(reply.configuration.unwrap_or_default())
    }

    /// Tells the daemon to measure nothing by itself for so many seconds, or until [`Self::resume`].
    ///
    /// # Errors
    /// [`ClientError::Protocol`], and those of a connection.
    pub async fn pause(&self, seconds: Option<NonZeroU64>) -> Result<v1::PlannerStatus, ClientError> {
        self.same_protocol()?;
        let mut control = ControlClient::new(self.channel.clone());
        let request = v1::PauseRequest { seconds: seconds.map_or(0, NonZeroU64::get) };
        let reply = self.within(self.deadlines.call, control.pause(request)).await?;
        Ok(reply.planner.unwrap_or_default())
    }

    /// Tells the daemon to go on measuring by itself.
    ///
    /// # Errors
    /// [`ClientError::Protocol`], and those of a connection.
    pub async fn resume(&self) -> Result<v1::PlannerStatus, ClientError> {
        self.same_protocol()?;
        let mut control = ControlClient::new(self.channel.clone());
        let reply = self.within(self.deadlines.call, control.resume(v1::ResumeRequest {})).await?;
        Ok(reply.planner.unwrap_or_default())
    }

    /// Changes what the daemon logs, in tracing's filter language; `None` for what its configuration says. What it logs now.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] for a filter that can't be read, [`ClientError::Protocol`], and those of a connection.
    pub async fn set_log_filter(&self, filter: Option<&str>) -> Result<String, ClientError> {
        self.same_protocol()?;
        let mut control = ControlClient::new(self.channel.clone());
        let request = v1::SetLogFilterRequest { filter: filter.unwrap_or_default().to_owned() };
        Ok(self.within(self.deadlines.call, control.set_log_filter(request)).await?.filter)
    }

    /// Past calibrations of `shape` on this chip, at most `limit` of them, the newest first; and how many are kept.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`], [`ClientError::Protocol`], and those of a connection.
    pub async fn history(&self, shape: Shape, limit: u32) -> Result<v1::ListHistoryReply, ClientError> {
        self.same_protocol()?;
        let request = v1::ListHistoryRequest { shape: Some(shape.into()), limit };
        self.within(self.deadlines.call, self.ratios().list_history(request)).await
    }

    /// Whether the daemon says that it serves (grpc.health.v1).
    ///
    /// # Errors
    /// Those of a connection: see [`ClientError`].
    pub async fn health(&self) -> Result<bool, ClientError> {
        let mut health = HealthClient::new(self.channel.clone());
        let request = HealthCheckRequest { service: String::new() };
        let reply = self.within(self.deadlines.call, health.check(request)).await?;
        Ok(reply.status() == ServingStatus::Serving)
    }

    /// The ratio for `shape` under the present conditions, for the `engine` that will run it, or the worker's.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`], [`ClientError::Protocol`], and those of a connection.
    pub async fn get_ratio(
        &self,
        shape: Shape,
        engine: Option<Engine>,
    ) -> Result<v1::GetRatioReply, ClientError> {
        self.same_protocol()?;
        let request =
            v1::GetRatioRequest { shape: Some(shape.into()), engine: engine.as_ref().map(Into::into) };
        self.within(self.deadlines.call, self.ratios().get_ratio(request)).await
    }

    /// How the answer to [`Self::get_ratio`] comes about.
    ///
    /// # Errors
    /// As [`Self::get_ratio`].
    pub async fn explain_ratio(
        &self,
        shape: Shape,
        engine: Option<Engine>,
    ) -> Result<v1::ExplainRatioReply, ClientError> {
        self.same_protocol()?;
        let request =
            v1::ExplainRatioRequest { shape: Some(shape.into()), engine: engine.as_ref().map(Into::into) };
        self.within(self.deadlines.call, self.ratios().explain_ratio(request)).await
    }

    /// Every estimate of this machine, page by page as it is read.
    pub fn list_ratios(&self) -> Estimates {
        Estimates::new(self.clone())
    }

    pub(crate) async fn ratios_page(
        &self,
        page_size: u32,
        page_token: String,
    ) -> Result<v1::ListRatiosReply, ClientError> {
        self.same_protocol()?;
        let request = v1::ListRatiosRequest { page_size, page_token };
        self.within(self.deadlines.call, self.ratios().list_ratios(request)).await
    }

    /// Measures `shapes` one after the other; `title` is what the queue shows. Dropping what this returns cancels the job:
    /// what was committed stays.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`], [`ClientError::ResourceExhausted`], [`ClientError::FailedPrecondition`],
    /// [`ClientError::Draining`], [`ClientError::Protocol`], and those of a connection.
    pub async fn calibrate(
        &self,
        shapes: &[Shape],
        freshness: v1::Freshness,
        title: &str,
    ) -> Result<Calibration, ClientError> {
        self.same_protocol()?;
        let request = v1::CalibrateRequest {
            shapes: shapes.iter().copied().map(Into::into).collect(),
            freshness: freshness.into(),
            title: title.to_owned(),
        };
        let mut calibration =
            CalibrationClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let events = self.within(self.deadlines.call, calibration.calibrate(request)).await?;
        Ok(Calibration::new(self.socket.clone(), events))
    }

    /// Reads the whole store, changes nothing.
    ///
    /// # Errors
    /// [`ClientError::Store`], [`ClientError::Protocol`], and those of a connection.
    pub async fn verify_store(&self) -> Result<v1::VerifyStoreReply, ClientError> {
        self.same_protocol()?;
        self.within(self.deadlines.store, self.store().verify_store(v1::VerifyStoreRequest {})).await
    }

    /// Builds the store's index anew from its record files; the old one is set aside.
    ///
    /// # Errors
    /// [`ClientError::Busy`] while a job runs, [`ClientError::Store`], [`ClientError::Protocol`], and those of a
    /// connection.
    pub async fn rebuild_store(&self) -> Result<v1::RebuildStoreReply, ClientError> {
        self.same_protocol()?;
        self.within(self.deadlines.store, self.store().rebuild_store(v1::RebuildStoreRequest {})).await
    }

    /// Has the daemon start a worker for a self-test.
    ///
    /// # Errors
    /// [`ClientError::Busy`] while a client is busy or a job runs, [`ClientError::FailedPrecondition`] without a worker or where data stands in for
    /// one, [`ClientError::Protocol`], and those of a connection.
    pub async fn self_test(&self) -> Result<SelfTest, ClientError> {
        self.same_protocol()?;
        let (requests, stream) = tokio::sync::mpsc::channel(1);
        let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
        // The worker loads MLX before the first reply.
        let replies = self.within(self.deadlines.worker, self.doctor().self_test(stream)).await?;
        Ok(SelfTest::new(self.socket.clone(), requests, replies, self.deadlines.worker))
    }

    /// Tells the daemon what a self-test found; what it makes of it.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] without a usable round, [`ClientError::Protocol`], and those of a connection.
    pub async fn report_self_test(&self, pairs: &[Pair]) -> Result<v1::SelfTestStatus, ClientError> {
        self.same_protocol()?;
        let wire = |&Pair { terminal_ms, daemon_ms }: &Pair| v1::SelfTestPair { terminal_ms, daemon_ms };
        let request = v1::ReportSelfTestRequest { pairs: pairs.iter().map(wire).collect() };
        let reply = self.within(self.deadlines.call, self.doctor().report_self_test(request)).await?;
        Ok(reply.status.unwrap_or_default())
    }

    /// The current calibrations of a chip, by its key, or of this machine's, as the bytes of a bundle
    /// ([`fusion_calibrations::sharing::bundle`]).
    ///
    /// # Errors
    /// [`ClientError::NotFound`] if nothing is known of that chip, [`ClientError::FailedPrecondition`] while this machine's is unknown,
    /// [`ClientError::TooLarge`], [`ClientError::Protocol`], and those of a connection.
    pub async fn export(&self, chip_key: Option<&str>) -> Result<Vec<u8>, ClientError> {
        self.same_protocol()?;
        let request = v1::ExportRequest { chip_key: chip_key.unwrap_or_default().to_owned() };
        let mut replies = self.within(self.deadlines.call, self.sharing().export(request)).await?;
        let mut bundle = Vec::new();
        loop {
            let piece = timeout(self.deadlines.call, replies.message()).await;
            let piece = piece.map_err(|_| self.not_answering(self.deadlines.call))?;
            match piece.map_err(|status| from_status(&self.socket, &status))? {
                Some(piece) => bundle.extend_from_slice(&piece.bytes),
                None => return Ok(bundle),
            }
            if bundle.len() > MAX_BUNDLE_BYTES {
                return Err(ClientError::TooLarge("more bytes than a bundle has".to_owned()));
            }
        }
    }

    /// Takes the calibrations of a bundle over. Doing it again does what an interrupted import left to do.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] if the bytes are no bundle, [`ClientError::FailedPrecondition`] if it is of another chip,
    /// [`ClientError::Protocol`], and those of a connection.
    pub async fn import(&self, bundle: &[u8], taken: TakenAs) -> Result<Import, ClientError> {
        self.same_protocol()?;
        let requests = tokio_stream::iter(sharing::requests(bundle, taken));
        let events = self.within(self.deadlines.store, self.sharing().import(requests)).await?;
        Ok(Import::new(self.socket.clone(), events))
    }

    /// Writes every current record to the directory `path` of the daemon's machine: absolute, and not there yet.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`], [`ClientError::AlreadyExists`], [`ClientError::Store`],
    /// [`ClientError::Protocol`], and those of a connection.
    pub async fn export_store(&self, path: &str) -> Result<v1::ExportStoreReply, ClientError> {
        self.same_protocol()?;
        let request = v1::ExportStoreRequest { path: path.to_owned() };
        self.within(self.deadlines.store, self.store().export_store(request)).await
    }

    /// What is known of gates: of `workload`, or of all.
    ///
    /// # Errors
    /// [`ClientError::Nonsense`], [`ClientError::Protocol`], and those of a connection.
    pub async fn list_gates(&self, workload: Option<&WorkloadName>) -> Result<KnownGates, ClientError> {
        self.same_protocol()?;
        let workload = workload.map(|name| name.as_str().to_owned()).unwrap_or_default();
        let request = v1::ListGatesRequest { workload };
        let reply = self.within(self.deadlines.call, self.gates().list_gates(request)).await?;
        Ok((&reply).try_into()?)
    }

    /// Forgets what is known of calls, here and in every attached process; a workload that nobody knows is no error.
    ///
    /// # Errors
    /// [`ClientError::Protocol`], and those of a connection.
    pub async fn reset_gate(&self, scope: &GateScope) -> Result<Forgotten, ClientError> {
        self.same_protocol()?;
        let request = v1::ResetGateRequest { workload: scope.workload.to_string(), rows: scope.wire_rows() };
        let reply = self.within(self.deadlines.call, self.gates().reset_gate(request)).await?;
        Ok(Forgotten { regions: reply.regions, clients: reply.clients })
    }

    /// Decides for the gates: always `arm`, until it is unlocked. The number of attached processes that are told; one that can't run
    /// the arm goes on as before. A lock for all rows replaces those for some.
    ///
    /// # Errors
    /// [`ClientError::ResourceExhausted`] with too many locks, [`ClientError::Protocol`], and those of a connection.
    pub async fn lock_gate(&self, scope: &GateScope, arm: Arm) -> Result<u32, ClientError> {
        self.decide(scope, v1::Arm::from(arm)).await
    }

    /// Takes locks away: that of these rows, or all of the workload. The number of attached processes that are told.
    ///
    /// # Errors
    /// [`ClientError::Protocol`], and those of a connection.
    pub async fn unlock_gate(&self, scope: &GateScope) -> Result<u32, ClientError> {
        self.decide(scope, v1::Arm::Unspecified).await
    }

    async fn decide(&self, scope: &GateScope, arm: v1::Arm) -> Result<u32, ClientError> {
        self.same_protocol()?;
        let request = v1::LockGateRequest {
            workload: scope.workload.to_string(),
            rows: scope.wire_rows(),
            arm: arm.into(),
        };
        Ok(self.within(self.deadlines.call, self.gates().lock_gate(request)).await?.clients)
    }

    /// Who is attached, in the order of arrival.
    ///
    /// # Errors
    /// [`ClientError::Nonsense`], [`ClientError::Protocol`], and those of a connection.
    pub async fn list_clients(&self) -> Result<Vec<AttachedClient>, ClientError> {
        let clients = self.clients(None).await?;
        Ok(clients.iter().map(TryInto::try_into).collect::<Result<_, _>>()?)
    }

    /// What answers for each layer of the client with this [`AttachedClient::number`]; `None` if it has left.
    ///
    /// # Errors
    /// As [`Self::list_clients`].
    pub async fn client_layers(&self, number: u64) -> Result<Option<Vec<ServedLayer>>, ClientError> {
        let clients = self.clients(Some(number)).await?;
        let Some(client) = clients.iter().find(|client| client.number == number) else { return Ok(None) };
        let layers = client.served.iter().map(TryInto::try_into).collect::<Result<_, _>>()?;
        Ok(Some(layers))
    }

    async fn clients(&self, layers_of: Option<u64>) -> Result<Vec<v1::ClientStatus>, ClientError> {
        self.same_protocol()?;
        let request = v1::ListClientsRequest { layers_of };
        let mut attachment =
            AttachmentClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        Ok(self.within(self.deadlines.call, attachment.list_clients(request)).await?.clients)
    }

    fn doctor(&self) -> DoctorClient<Channel> {
        DoctorClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn gates(&self) -> GatesClient<Channel> {
        GatesClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn ratios(&self) -> RatiosClient<Channel> {
        RatiosClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn sharing(&self) -> SharingClient<Channel> {
        SharingClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn store(&self) -> StoreClient<Channel> {
        StoreClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// A call's answer, or the reason that there is none after `deadline`. The call is cancelled then.
    async fn within<T>(
        &self,
        deadline: Duration,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, ClientError> {
        match timeout(deadline, call).await {
            Ok(Ok(reply)) => Ok(reply.into_inner()),
            Ok(Err(status)) => Err(from_status(&self.socket, &status)),
            Err(_) => Err(self.not_answering(deadline)),
        }
    }

    fn not_answering(&self, after: Duration) -> ClientError {
        ClientError::NotAnswering { socket: self.socket.as_path().to_owned(), after }
    }

    fn same_protocol(&self) -> Result<(), ClientError> {
        if self.daemon.protocol == PROTOCOL {
            return Ok(());
        }
        Err(ClientError::Protocol {
            daemon_version: self.daemon.version.clone(),
            daemon_protocol: self.daemon.protocol,
            client_version: VERSION,
            client_protocol: PROTOCOL,
        })
    }
}
