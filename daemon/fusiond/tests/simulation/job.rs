//! A planned job in virtual time: the real search on the modelled machine, cut off by whatever happens.

use fusion_calibrations::estimate::{Estimate, Provenance};
use fusion_calibrations::record::Record;
use fusion_calibrations::sample::{DropReason, Sample};
use fusion_calibrations::search::{Budget, Options, Outcome, Search, Step};
use fusiond::planner::{Cause, Job, Subject};
use fusiond::store::Fault;

use crate::run::{Crash, Simulation};

/// How a job ended.
enum End {
    Measured(Box<Outcome>, Vec<Sample>),
    Interrupted,
    Failed(String),
}

impl Simulation {
    /// Runs a job until it ends, or the daemon dies.
    pub fn run_job(&mut self, job: &Job) -> Result<(), Crash> {
        self.figures.jobs += 1;
        self.checks.job_starts(job, &self.world);
        self.surprise(job);
        let disturbed_at = self.next_disturbance();
        self.step()?;
        let now = self.world.wall();
        let during = self.daemon().planner.state_during(now, job);
        // What couldn't be promised on the disk isn't spent.
        if !self.disk.keep_planner(&during) {
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
            End::Measured(outcome, samples) => self.store(job, &outcome, samples)?,
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
        let state = self.daemon().planner.state(now);
        self.disk.keep_planner(&state);
        Ok(())
    }

    fn measure(&mut self, job: &Job, disturbed_at: f64) -> Result<End, Crash> {
        let plan = self.daemon().plan(job);
        let options = Options {
            start: plan.start,
            rule: plan.rule,
            budget: Budget { machine_ms: plan.machine_ms, ..Budget::default() },
            ..Options::default()
        };
        let mut search = Search::new(job.shape, options);
        loop {
            let ask = match search.next() {
                Step::Done(outcome) => {
                    let mut samples = search.samples().to_vec();
                    samples.extend(plan.cliff_evidence);
                    return Ok(End::Measured(outcome, samples));
                }
                Step::Measure(ask) => ask,
            };
            if self.world.now_ms() >= disturbed_at {
                return Ok(End::Interrupted);
            }
            self.step()?;
            let before = self.world.conditions();
            let mut sample = self.world.machine.call(job.shape, ask).unwrap();
            self.measured_call(sample.total_ms, disturbed_at);
            if self.worker_dies() {
                return Ok(End::Failed("the worker ended with signal 6".to_owned()));
            }
            if self.world.now_ms() > disturbed_at || before != job.conditions {
                return Ok(End::Interrupted);
            }
            if self.world.conditions() != job.conditions {
                sample.dropped = Some(DropReason::ConditionsChanged);
            }
            search.tell(sample).unwrap();
        }
    }

    fn store(&mut self, job: &Job, outcome: &Outcome, samples: Vec<Sample>) -> Result<(), Crash> {
        let now = self.world.wall();
        let (Some(stock_ms), Some(speed_up)) = (outcome.stock_ms, outcome.speed_up) else {
            self.figures.failed += 1;
            let disturbed = Cause::Failed("no usable sample".to_owned());
            self.daemon().planner.failed(now, Subject::Shape(job.shape), disturbed);
            return Ok(());
        };
        let kept = samples.iter().filter(|sample| sample.is_kept()).count();
        let identity = &self.daemon().identity;
        let record = Record {
            chip: identity.chip.clone(),
            engine: identity.engine.clone(),
            estimate: Estimate {
                shape: job.shape,
                conditions: job.conditions,
                lines: outcome.lines,
                ratio: outcome.ratio,
                secondary_rows: outcome.secondary_rows,
                stock_ms,
                split_ms: if outcome.confirmed() { outcome.split_ms.unwrap_or(stock_ms) } else { stock_ms },
                speed_up,
                kept_samples: kept as u32,
                dropped_samples: (samples.len() - kept) as u32,
                relative_error: None,
                measured_at_unix_ms: now.unix_ms(),
                provenance: Provenance::Measured,
            },
            samples,
            written_by: "simulation".to_owned(),
        };
        // A crash here leaves it done or not, and nobody heard of it.
        if self.step().is_err() {
            let fault = if self.coin() { Fault::Before } else { Fault::After };
            let _ = self.disk.commit(&record, Some(fault));
            return Err(Crash);
        }
        if let Err(error) = self.disk.commit(&record, None) {
            self.figures.failed += 1;
            self.daemon().planner.failed(now, Subject::Worker, Cause::Failed(error.to_string()));
            return Ok(());
        }
        if std::env::var_os("TRACE").is_some() && !outcome.ratio.splits() {
            eprintln!("{:.0} s LOSS {} {} spent {:?} samples {:?}", self.world.now_ms() / 1e3, job.shape, job.conditions, job.allowance_ms, record.samples.iter().map(|s| (s.secondary_rows, s.total_ms, s.dropped)).collect::<Vec<_>>());
        }
        self.step()?;
        self.checks.measured(&record, self.world.now_ms());
        self.figures.measured(&record);
        self.daemon().committed(&record, now);
        self.inform_all();
        Ok(())
    }
}
