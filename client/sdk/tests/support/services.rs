//! The services, answering from the script.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fusion_client::v1;
use fusion_client::v1::attachment_server::AttachmentServer;
use fusion_client::v1::calibrate_event::Event;
use fusion_client::v1::calibration_server::{Calibration, CalibrationServer};
use fusion_client::v1::control_server::{Control, ControlServer};
use fusion_client::v1::gates_server::GatesServer;
use fusion_client::v1::ratios_server::{Ratios, RatiosServer};
use fusion_client::v1::store_server::{Store, StoreServer};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};

use super::{Ending, Script, Seen, canned};

#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) script: Arc<Script>,
    pub(super) seen: Arc<Seen>,
    pub(super) stop: Arc<Mutex<Option<oneshot::Sender<()>>>>,
    pub(super) socket: PathBuf,
}

pub(super) fn add(server: &mut Server, service: &Service) -> Router {
    let (_, health) = tonic_health::server::health_reporter();
    server
        .add_service(ControlServer::new(service.clone()))
        .add_service(RatiosServer::new(service.clone()))
        .add_service(CalibrationServer::new(service.clone()))
        .add_service(StoreServer::new(service.clone()))
        .add_service(GatesServer::new(service.clone()))
        .add_service(AttachmentServer::new(service.clone()))
        .add_service(health)
}

impl Service {
    pub(super) fn refused(&self) -> Result<(), Status> {
        self.script.refusal.as_ref().map_or(Ok(()), |(code, message)| Err(Status::new(*code, message)))
    }

    fn die(&self) {
        if let Some(stop) = self.stop.lock().unwrap().take() {
            let _ = stop.send(());
        }
    }

    /// What it measures by itself, paused or not.
    fn planner(&self) -> Option<v1::PlannerStatus> {
        let planner = self.script.planner.clone()?;
        Some(match *self.seen.pause.lock().unwrap() {
            Some(seconds) => v1::PlannerStatus {
                paused: true,
                paused_until_unix_ms: canned::paused_until(seconds),
                ..planner
            },
            None => planner,
        })
    }

    fn answer(&self, shape: Option<&v1::Shape>) -> v1::GetRatioReply {
        let known = self.script.estimates.iter().find(|estimate| estimate.shape.as_ref() == shape).cloned();
        v1::GetRatioReply {
            ratio: known.as_ref().map_or(0.0, |estimate| estimate.ratio),
            secondary_rows: known.as_ref().map_or(0, |estimate| estimate.secondary_rows),
            lines: known.as_ref().and_then(|estimate| estimate.lines),
            source: if known.is_some() { v1::Source::Exact } else { v1::Source::None }.into(),
            stale_reason: known.as_ref().map(|e| e.stale_reason.clone()).unwrap_or_default(),
            estimate: known,
            conditions: Some(canned::conditions()),
            chip: Some(canned::chip()),
        }
    }

    /// What a calibration of `shapes` says, as far as the script lets it come.
    fn events(&self, shapes: &[v1::Shape]) -> Vec<Event> {
        let stop = self.script.stop_after.unwrap_or(shapes.len());
        let mut events = vec![
            Event::Queued(v1::JobQueued { position: 1, job: 7 }),
            Event::Started(v1::JobStarted {
                job: 7,
                shapes: shapes.len() as u32,
                chip: Some(canned::chip()),
                units: "two CPU streams".to_owned(),
            }),
        ];
        for (place, shape) in shapes.iter().enumerate().take(stop) {
            events.extend(self.shape_events(place, shape));
        }
        if stop >= shapes.len() {
            let failed = self.script.failing.len() as u32;
            let done = shapes.len() as u32 - failed;
            let (measured, from_store) = if self.script.from_store { (0, done) } else { (done, 0) };
            let machine_ms = 321.0 * f64::from(measured);
            events.push(Event::Finished(v1::JobFinished { measured, from_store, failed, machine_ms }));
        }
        events
    }

    fn shape_events(&self, place: usize, shape: &v1::Shape) -> Vec<Event> {
        let index = place as u32;
        let from_store = self.script.from_store;
        let progress = |calls| Event::ShapeProgress(v1::ShapeProgress { index, calls, most_calls: 40 });
        let mut events = vec![Event::ShapeStarted(v1::ShapeStarted { shape: Some(shape.clone()), index })];
        if self.script.failing.contains(&place) {
            let reason = "the worker ended (signal 9): see the log of fusiond".to_owned();
            events.push(Event::ShapeFailed(v1::ShapeFailed { index, shape: Some(shape.clone()), reason }));
            return events;
        }
        if !from_store {
            events.extend([progress(10), progress(28)]);
        }
        let machine_ms = if from_store { 0.0 } else { 321.0 };
        let estimate = Some(canned::estimate(shape));
        events.push(Event::ShapeFinished(v1::ShapeFinished { index, estimate, from_store, machine_ms }));
        events
    }
}

#[tonic::async_trait]
impl Control for Service {
    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusReply>, Status> {
        *self.seen.status.lock().unwrap() = Some(request.into_inner());
        let running = v1::JobStatus {
            job: 7,
            title: "qwen2.5-0.5b at 512 rows".to_owned(),
            shapes: 4,
            done: 1,
            shape: "512x896x128 f32 nk".to_owned(),
        };
        let waiting = v1::JobStatus { job: 8, title: "64x64x64".to_owned(), shapes: 1, ..Default::default() };
        let last = v1::JobStatus {
            job: 6,
            title: "gpt2-xl at 64 rows".to_owned(),
            shapes: 3,
            done: 2,
            ..Default::default()
        };
        let ok = |detail: &str| v1::PartStatus { health: v1::Health::Ok.into(), detail: detail.to_owned() };
        Ok(Response::new(v1::GetStatusReply {
            version: self.script.version.to_owned(),
            protocol: self.script.protocol,
            pid: 4242,
            started_at_unix_ms: canned::THEN,
            socket: self.socket.display().to_string(),
            state_directory: format!("/var/fusion{}", "x".repeat(self.script.padding)),
            chip: Some(canned::chip()),
            engine: Some(canned::engine()),
            units: "two CPU streams, one core each".to_owned(),
            conditions: Some(canned::conditions()),
            running: Some(running),
            waiting: vec![waiting],
            last_job: Some(v1::EndedJob {
                job: Some(last),
                outcome: "cancelled".to_owned(),
                ended_at_unix_ms: canned::THEN,
            }),
            store: Some(v1::StoreStatus {
                state: Some(v1::PartStatus {
                    health: v1::Health::Degraded.into(),
                    detail: "rebuilt from 3 record files after corruption; the old one lies in /var/fusion/set-aside"
                        .to_owned(),
                }),
                estimates: 3,
                current_estimates: 2,
                stale_estimates: 1,
            }),
            worker: Some(ok("")),
            draining: false,
            clients: self.script.summary,
            configuration: self.script.configuration.clone(),
            planner: self.planner(),
            conditions_since_unix_ms: self.script.conditions_since_unix_ms,
            readings: self.script.readings.clone(),
            last_worker_trouble: self.script.readings.is_some().then(|| v1::WorkerTrouble {
                reason: "the worker was ended by signal 9".to_owned(),
                at_unix_ms: canned::THEN,
            }),
        }))
    }

    async fn reload_configuration(
        &self,
        _: Request<v1::ReloadConfigurationRequest>,
    ) -> Result<Response<v1::ReloadConfigurationReply>, Status> {
        self.refused()?;
        self.seen.reloaded.fetch_add(1, Ordering::SeqCst);
        let configuration = self.script.configuration.clone();
        match configuration.as_ref().and_then(|known| known.state.as_ref()) {
            Some(state) if state.health() != v1::Health::Ok => {
                let message = format!("the configuration stays as it was: {}", state.detail);
                Err(Status::failed_precondition(message))
            }
            _ => Ok(Response::new(v1::ReloadConfigurationReply { configuration })),
        }
    }

    async fn pause(&self, request: Request<v1::PauseRequest>) -> Result<Response<v1::PauseReply>, Status> {
        self.refused()?;
        *self.seen.pause.lock().unwrap() = Some(request.into_inner().seconds);
        Ok(Response::new(v1::PauseReply { planner: self.planner() }))
    }

    async fn resume(&self, _: Request<v1::ResumeRequest>) -> Result<Response<v1::ResumeReply>, Status> {
        self.refused()?;
        self.seen.resumed.fetch_add(1, Ordering::SeqCst);
        *self.seen.pause.lock().unwrap() = None;
        Ok(Response::new(v1::ResumeReply { planner: self.planner() }))
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Result<Response<v1::DrainReply>, Status> {
        *self.seen.drain.lock().unwrap() = Some(request.into_inner().reason);
        let service = self.clone();
        if !self.script.stubborn {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(60)).await;
                service.die();
            });
        }
        Ok(Response::new(v1::DrainReply {
            pid: 4242,
            deadline_ms: if self.script.stubborn { 200 } else { 5000 },
        }))
    }
}

#[tonic::async_trait]
impl Ratios for Service {
    async fn get_ratio(
        &self,
        request: Request<v1::GetRatioRequest>,
    ) -> Result<Response<v1::GetRatioReply>, Status> {
        self.refused()?;
        Ok(Response::new(self.answer(request.into_inner().shape.as_ref())))
    }

    /// Two a page, whatever is asked for.
    async fn list_ratios(
        &self,
        request: Request<v1::ListRatiosRequest>,
    ) -> Result<Response<v1::ListRatiosReply>, Status> {
        self.refused()?;
        self.seen.pages.fetch_add(1, Ordering::SeqCst);
        let start: usize = request.into_inner().page_token.parse().unwrap_or(0);
        let estimates: Vec<_> = self.script.estimates.iter().skip(start).take(2).cloned().collect();
        let next = start + estimates.len();
        let total = self.script.estimates.len();
        let next_page_token = if next < total { next.to_string() } else { String::new() };
        Ok(Response::new(v1::ListRatiosReply { estimates, next_page_token, total: total as u64 }))
    }

    async fn explain_ratio(
        &self,
        request: Request<v1::ExplainRatioRequest>,
    ) -> Result<Response<v1::ExplainRatioReply>, Status> {
        self.refused()?;
        let answer = self.answer(request.into_inner().shape.as_ref());
        let considered = |chosen, reason: &str| v1::Considered {
            estimate: answer.estimate.clone(),
            chosen,
            reason: reason.to_owned(),
        };
        Ok(Response::new(v1::ExplainRatioReply {
            summary: "measured here under these conditions".to_owned(),
            considered: vec![considered(true, "exact"), considered(false, "another engine")],
            samples: canned::samples(),
            break_even_rows: Some(37.5),
            speed_up_any_session: Some(v1::Interval { low: 1.5, value: 1.76, high: 2.06 }),
            balanced_ratio: Some(canned::BALANCE),
            predicted: answer.estimate.as_ref().map(canned::predicted).unwrap_or_default(),
            points: answer.estimate.as_ref().map(canned::points).unwrap_or_default(),
            not_counted: canned::not_counted(),
            cliffs: canned::cliffs(),
            answer: Some(answer),
        }))
    }

    async fn list_history(
        &self,
        request: Request<v1::ListHistoryRequest>,
    ) -> Result<Response<v1::ListHistoryReply>, Status> {
        self.refused()?;
        let request = request.into_inner();
        *self.seen.history.lock().unwrap() = Some(request.limit);
        let kept = canned::history(&request.shape.unwrap_or_default(), self.script.past);
        let total = kept.len() as u32;
        let limit = if request.limit == 0 { 100 } else { request.limit };
        let estimates = kept.into_iter().take(limit as usize).collect();
        Ok(Response::new(v1::ListHistoryReply { estimates, total }))
    }
}

#[tonic::async_trait]
impl Calibration for Service {
    type CalibrateStream = Pin<Box<dyn Stream<Item = Result<v1::CalibrateEvent, Status>> + Send>>;

    async fn calibrate(
        &self,
        request: Request<v1::CalibrateRequest>,
    ) -> Result<Response<Self::CalibrateStream>, Status> {
        self.refused()?;
        let request = request.into_inner();
        let events = self.events(&request.shapes);
        *self.seen.calibrate.lock().unwrap() = Some(request);
        let (send, receive) = mpsc::channel(1);
        let service = self.clone();
        tokio::spawn(async move {
            for event in events {
                if send.send(Ok(v1::CalibrateEvent { event: Some(event) })).await.is_err() {
                    service.seen.cancelled.fetch_add(1, Ordering::SeqCst);
                    return;
                }
            }
            match service.script.ending {
                Ending::Close => {}
                Ending::Hang => {
                    send.closed().await;
                    service.seen.cancelled.fetch_add(1, Ordering::SeqCst);
                }
                Ending::Freeze => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    std::thread::sleep(Duration::from_secs(2));
                }
                Ending::Die => {
                    // What was sent shall arrive first.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    service.die();
                    send.closed().await;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receive))))
    }
}

#[tonic::async_trait]
impl Store for Service {
    async fn verify_store(
        &self,
        _: Request<v1::VerifyStoreRequest>,
    ) -> Result<Response<v1::VerifyStoreReply>, Status> {
        self.refused()?;
        Ok(Response::new(v1::VerifyStoreReply {
            estimates: 3,
            history: 5,
            record_files: 8,
            bytes: 123_456,
            problems: self.script.problems.clone(),
            set_aside: vec!["/var/fusion/set-aside/store-1 (1.2 MB)".to_owned()],
        }))
    }

    async fn rebuild_store(
        &self,
        _: Request<v1::RebuildStoreRequest>,
    ) -> Result<Response<v1::RebuildStoreReply>, Status> {
        self.refused()?;
        Ok(Response::new(v1::RebuildStoreReply {
            records: 8,
            unreadable: vec!["records/ab.rec: wrong checksum".to_owned()],
            set_aside: "/var/fusion/set-aside/store-2".to_owned(),
        }))
    }

    async fn export_store(
        &self,
        request: Request<v1::ExportStoreRequest>,
    ) -> Result<Response<v1::ExportStoreReply>, Status> {
        self.refused()?;
        Ok(Response::new(v1::ExportStoreReply { records: 8, path: request.into_inner().path }))
    }
}
