//! One job on its way through its shapes.

use fusion_calibrations::estimate::Provenance;
use fusion_calibrations::shape::Shape;

use super::{Freshness, JobError, JobEvent, JobView, Jobs, Measurer, QueuedJob, READ_LIMIT, Tally};
use crate::canary::Sung;
use crate::machine::{Machine, MachineError};
use crate::measure::{self, MeasureError, Measured, Plan};
use crate::sensors::Sensors as _;
use crate::table::Identity;

/// Worker deaths in a row after which a job ends: the next shape would not fare better.
pub(super) const DEATHS_IN_A_ROW: u32 = 3;

/// A running job.
pub(super) struct Run<'a> {
    jobs: &'a Jobs,
    job: &'a QueuedJob,
    machine: Option<(Machine, Identity)>,
    /// Whether this machine's canary has sung.
    sung: bool,
    tally: Tally,
    deaths: u32,
}

impl<'a> Run<'a> {
    pub(super) fn new(jobs: &'a Jobs, job: &'a QueuedJob) -> Self {
        Self { jobs, job, machine: None, sung: false, tally: Tally::default(), deaths: 0 }
    }

    /// Every shape of the job, one after the other.
    pub(super) async fn all(mut self) -> Result<Tally, JobError> {
        let shapes = &self.job.request.shapes;
        self.tell(JobEvent::Started { shapes: shapes.len(), identity: None }).await?;
        for (index, shape) in shapes.iter().enumerate() {
            self.tell(JobEvent::ShapeStarted { index, shape: *shape }).await?;
            self.show(|running| running.shape = Some(*shape));
            self.shape_in_peace(index, *shape).await?;
            self.show(|running| running.done += 1);
        }
        Ok(self.tally)
    }

    fn show(&self, change: impl FnOnce(&mut JobView)) {
        self.jobs.board.send_modify(|board| {
            if let Some(running) = &mut board.running {
                change(running);
            }
        });
    }

    /// Measures a shape while no client is busy. One that turns busy ends the worker at once; the shape is measured when all rest again.
    async fn shape_in_peace(&mut self, index: usize, shape: Shape) -> Result<(), JobError> {
        let mut busy = self.jobs.workshop.busy.clone();
        loop {
            if *busy.borrow_and_update() > 0 {
                self.tell(JobEvent::Queued { position: 0 }).await?;
                // Without clients nobody is busy.
                let _ = busy.wait_for(|count| *count == 0).await;
            }
            tokio::select! {
                biased;
                done = self.shape(index, shape) => return done,
                _ = busy.wait_for(|count| *count > 0) => {
                    tracing::info!(%shape, "a client turned busy: the worker is ended");
                    self.machine = None;
                }
            }
        }
    }

    async fn shape(&mut self, index: usize, shape: Shape) -> Result<(), JobError> {
        if self.job.request.freshness == Freshness::Reuse && self.answer_from_table(index, shape).await? {
            return Ok(());
        }
        self.start_machine().await?;
        // A worker that just introduced itself may be another than the one the table was asked for.
        if self.job.request.freshness == Freshness::Reuse && self.answer_from_table(index, shape).await? {
            return Ok(());
        }
        if let Err(error) = self.sing().await {
            return self.fail(index, shape, error.into()).await;
        }
        match self.measure(index, shape).await {
            Ok(measured) => self.commit(index, measured).await,
            Err(error) => self.fail(index, shape, error).await,
        }
    }

    async fn answer_from_table(&mut self, index: usize, shape: Shape) -> Result<bool, JobError> {
        let workshop = &self.jobs.workshop;
        if self.job.request.by != Measurer::Own {
            return Ok(false);
        }
        let Some(identity) = workshop.identity.borrow().clone() else { return Ok(false) };
        let known = workshop.table.exact(&identity, shape, workshop.sensors.conditions());
        // A first guess is no answer to somebody who asks for a measurement.
        let Some(record) = known.filter(|record| record.estimate.provenance > Provenance::Prior) else {
            return Ok(false);
        };
        self.tally.from_store += 1;
        self.tell(JobEvent::ShapeFinished { index, record, from_store: true, machine_ms: 0.0 }).await?;
        Ok(true)
    }

    async fn start_machine(&mut self) -> Result<(), JobError> {
        if self.machine.is_some() {
            return Ok(());
        }
        let started = match &self.job.request.by {
            Measurer::Own => self.start_own().await,
            Measurer::Client { engine, worker } => {
                self.jobs.workshop.start_client_worker(engine, worker).await
            }
        };
        let (machine, identity) = started.map_err(|error| {
            self.report_worker(error.to_string());
            JobError::NoWorker(error)
        })?;
        let shapes = self.job.request.shapes.len();
        self.tell(JobEvent::Started { shapes, identity: Some(Box::new(identity.clone())) }).await?;
        self.machine = Some((machine, identity));
        self.sung = false;
        Ok(())
    }

    async fn start_own(&self) -> Result<(Machine, Identity), MachineError> {
        let machine = self.jobs.workshop.start_machine(self.job.job).await?;
        let identity = self.jobs.learn(&machine).await?;
        Ok((machine, identity))
    }

    /// The own worker's trouble is the daemon's; a client's is told by who asked for the job.
    fn report_worker(&self, trouble: String) {
        if self.job.request.by == Measurer::Own {
            self.jobs.report_worker(Some(trouble));
        }
    }

    /// Tells the sensors how fast the machine is, once for each worker. Data is as fast as it is.
    async fn sing(&mut self) -> Result<(), MachineError> {
        let Some((machine @ Machine::Worker(_), identity)) = &mut self.machine else { return Ok(()) };
        if self.sung {
            return Ok(());
        }
        let workshop = &self.jobs.workshop;
        let Sung { pace, machine_ms } = workshop.canary.sing(machine, &identity.engine.key()).await?;
        self.sung = true;
        self.tally.machine_ms += machine_ms;
        if let Some(pace) = pace {
            workshop.sensors.correct(pace);
        }
        Ok(())
    }

    async fn measure(&mut self, index: usize, shape: Shape) -> Result<Measured, MeasureError> {
        let (machine, identity) = self.machine.as_mut().expect("a machine was just started");
        let workshop = &self.jobs.workshop;
        let conditions = workshop.sensors.conditions();
        let plan = Plan::new(&workshop.table, identity, shape, conditions, self.job.request.machine_ms);
        let events = &self.job.events;
        let progress = |calls, most_calls| {
            // Progress may be lost to a slow reader: the next one tells more.
            let _ = events.try_send(Ok(JobEvent::ShapeProgress { index, calls, most_calls }));
        };
        measure::measure(machine, identity, plan, workshop.sensors.as_ref(), progress).await
    }

    async fn commit(&mut self, index: usize, measured: Measured) -> Result<(), JobError> {
        let Measured { record, machine_ms } = measured;
        self.jobs.workshop.store.commit(record.clone()).await?;
        let record = self.jobs.serve(record);
        self.deaths = 0;
        self.tally.measured += 1;
        self.tally.machine_ms += machine_ms;
        self.tell(JobEvent::ShapeFinished { index, record, from_store: false, machine_ms }).await
    }

    async fn fail(&mut self, index: usize, shape: Shape, error: MeasureError) -> Result<(), JobError> {
        self.tally.failed += 1;
        let reason = error.to_string();
        self.tell(JobEvent::ShapeFailed { index, shape, reason: reason.clone() }).await?;
        if let MeasureError::Machine(error) = error
            && !error.machine_survives()
        {
            self.machine = None;
            self.report_worker(reason.clone());
            self.deaths += 1;
            if self.deaths >= DEATHS_IN_A_ROW {
                return Err(JobError::WorkersDie(reason));
            }
        }
        Ok(())
    }

    async fn tell(&self, event: JobEvent) -> Result<(), JobError> {
        match tokio::time::timeout(READ_LIMIT, self.job.events.send(Ok(event))).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(JobError::Cancelled),
        }
    }
}
