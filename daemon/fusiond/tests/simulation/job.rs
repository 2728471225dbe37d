//! A planned job in virtual time: the real calibration on the modelled machine, cut off by whatever happens.

use fusion_calibrations::record::Record;
use fusion_calibrations::search::{Ask, Step};
use fusion_calibrations::shape::{Layer, Layout, Shape, WeightFormat};
use fusiond::machine::{Terms, Timing};
use fusiond::measure::{Around, Calibration, Measured, Plan};
use fusiond::planner::canary::CALLS;
use fusiond::planner::{Cause, Job, Subject};
use fusiond::store::Fault;

use crate::run::{Crash, Simulation};

/// How a job ended.
enum End {
    Measured(Box<Record>),
    Interrupted,
    Failed(String),
}

/// The canary's product; in half precision, since nothing else was recorded of the modelled machines.
fn canary_product() -> Shape {
    Layer::new(1024, 1024, WeightFormat::F16, Layout::default()).unwrap().with_rows(256).unwrap()
}

impl Simulation {
    /// Runs a job until it ends, or the daemon dies.
    pub fn run_job(&mut self, job: &Job) -> Result<(), Crash> {
        self.figures.jobs += 1;
        let believed = self.believed();
        self.checks.job_starts(job, believed, &self.world);
        self.surprise(job);
        let disturbed_at = self.next_disturbance();
        self.step()?;
        let now = self.world.wall();
        let during = self.daemon().kept_during(now, job);
        // What couldn't be promised on the disk isn't spent.
        if !self.disk.keep(during) {
            let full = Cause::Failed("the disk is full".to_owned());
            self.daemon().planner.failed(now, Subject::Worker, full);
            return Ok(());
        }
        self.step()?;
        self.daemon().planner.started(job);
        let spent_before = self.figures.spent_ms;
        let end = self.measure(job, disturbed_at)?;
        let now = self.world.wall();
        let spent = self.figures.spent_ms - spent_before;
        self.daemon().planner.spent(now, spent);
        match end {
            End::Measured(record) => self.store(job, &record)?,
            End::Interrupted => {
                self.figures.interrupted += 1;
                self.daemon().planner.failed(now, Subject::Shape(job.shape), Cause::Interrupted);
            }
            End::Failed(reason) => {
                self.figures.failed += 1;
                self.daemon().planner.failed(now, Subject::Shape(job.shape), Cause::Failed(reason));
            }
        }
        self.step()?;
        let kept = self.daemon().kept(now);
        self.disk.keep(kept);
        Ok(())
    }

    fn measure(&mut self, job: &Job, disturbed_at: f64) -> Result<End, Crash> {
        if let Err(end) = self.sing(job, disturbed_at)? {
            return Ok(end);
        }
        let daemon = self.daemon();
        let plan = Plan::new(&daemon.table, &daemon.identity, job.shape, job.conditions, job.allowance_ms);
        let mut calibration = Calibration::new(plan, Terms::with_finish_times());
        loop {
            let ask = match calibration.next() {
                Step::Measure(ask) => ask,
                Step::Done(outcome) => {
                    let now = self.world.wall().unix_ms();
                    return Ok(match calibration.conclude(&outcome, &self.daemon().identity, None, now) {
                        Ok(Measured { record, .. }) => End::Measured(Box::new(record)),
                        Err(error) => End::Failed(error.to_string()),
                    });
                }
            };
            match self.timed(job, job.shape, ask, disturbed_at)? {
                Ok((timing, around)) => {
                    calibration.tell(&timing, &around).unwrap();
                }
                Err(end) => return Ok(end),
            }
        }
    }

    /// The canary sings first; what it says may end the job.
    fn sing(&mut self, job: &Job, disturbed_at: f64) -> Result<Result<(), End>, Crash> {
        let mut calls_ms = Vec::new();
        for _ in 0..=CALLS {
            match self.timed(job, canary_product(), Ask::Stock, disturbed_at)? {
                Ok((timing, _)) => calls_ms.push(timing.sample.total_ms),
                Err(end) => return Ok(Err(end)),
            }
        }
        let Self { daemon: Some(daemon), world, disk, .. } = self else { return Err(Crash) };
        // The first warms up.
        daemon.hear(&calls_ms[1..], world, disk);
        if daemon.look(world) {
            self.inform_all();
        }
        Ok(Ok(()))
    }

    /// One call of a job, unless something ended the job before or in it.
    fn timed(
        &mut self,
        job: &Job,
        shape: Shape,
        ask: Ask,
        disturbed_at: f64,
    ) -> Result<Result<(Timing, Around), End>, Crash> {
        let before = self.believed();
        if self.world.now_ms() >= disturbed_at || before != job.conditions {
            return Ok(Err(End::Interrupted));
        }
        self.step()?;
        let (wall, monotonic) = (self.world.wall(), self.world.monotonic());
        let sample = self.world.machine.call(shape, ask).unwrap();
        self.measured_call(sample.total_ms, disturbed_at);
        if self.worker_dies() {
            return Ok(Err(End::Failed("the worker ended with signal 6".to_owned())));
        }
        if self.world.now_ms() > disturbed_at {
            return Ok(Err(End::Interrupted));
        }
        let around = Around {
            before,
            after: self.believed(),
            monotonic: self.world.monotonic() - monotonic,
            wall: Some(self.world.wall().since(wall)),
        };
        Ok(Ok((Timing { sample, run_delay_ms: None }, around)))
    }

    fn believed(&mut self) -> fusion_calibrations::conditions::Conditions {
        let Self { daemon, world, .. } = self;
        daemon.as_ref().map_or(world.conditions(), |daemon| daemon.believed(world))
    }

    fn store(&mut self, job: &Job, record: &Record) -> Result<(), Crash> {
        let now = self.world.wall();
        // A crash here leaves it done or not, and nobody heard of it.
        if self.step().is_err() {
            let fault = if self.coin() { Fault::Before } else { Fault::After };
            let _ = self.disk.commit(record, Some(fault));
            return Err(Crash);
        }
        if let Err(error) = self.disk.commit(record, None) {
            self.figures.failed += 1;
            self.daemon().planner.failed(now, Subject::Worker, Cause::Failed(error.to_string()));
            return Ok(());
        }
        self.step()?;
        debug_assert_eq!(record.estimate.shape, job.shape);
        self.checks.measured(record, self.world.now_ms());
        self.figures.measured(record);
        self.daemon().committed(record, now);
        self.inform_all();
        Ok(())
    }
}
