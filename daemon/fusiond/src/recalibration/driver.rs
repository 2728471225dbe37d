//! Asks the planner, and does what it says.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::estimate::Provenance;
use fusion_calibrations::lines::Lines;
use fusion_calibrations::record::Record;
use fusion_calibrations::shape::Shape;

use super::asked::{Asked, chosen};
use super::changes::{Changes, Clocks};
use super::end::{End, follow};
use super::measuring_lock::MeasuringLock;
use super::recent;
use super::wants::Served;
use super::{View, now, state_file};
use crate::clients::Activity;
use crate::configuration;
use crate::jobs::{Freshness, JobRequest, Measurer};
use crate::planner::{
    self, Cause, ClientActivity, Decision, Hold, Inputs, Interest, Job, Load, Lock, Moment, Policy, Share,
    Subject, Want, WorkerState,
};
use crate::sensors::{Observed, Sensors as _};
use crate::service::Parts;
use crate::table::Identity;

/// How long other programs' use of the processors is watched before a job: some 20 ticks of each, and short beside the job.
const LOOK: Duration = Duration::from_millis(200);
/// Nothing is decided sooner after a decision: a storm of changes is one change.
const BREATH: Duration = Duration::from_millis(20);

/// Keeps what is wanted known until the daemon drains.
pub async fn run(parts: Arc<Parts>) {
    let mut driver = Driver {
        changes: Changes::of(&parts),
        parts,
        lock: None,
        clocks: Clocks::now(),
        rested_since: None,
        identity: None,
        served: HashMap::new(),
        last: None,
    };
    let drain = driver.parts.drain.clone();
    tokio::select! {
        () = driver.work() => {}
        () = drain.cancelled() => {}
    }
    driver.keep_state();
}

struct Driver {
    parts: Arc<Parts>,
    changes: Changes,
    lock: Option<MeasuringLock>,
    clocks: Clocks,
    /// When the last busy client turned idle.
    rested_since: Option<Moment>,
    identity: Option<Identity>,
    /// The lines that were served when the planner was last asked.
    served: HashMap<(Engine, Shape), Lines>,
    /// Who measured last.
    last: Option<Measurer>,
}

impl Driver {
    async fn work(&mut self) {
        loop {
            self.look();
            let mut asked = self.ask(None);
            if matches!(asked.decision, Decision::Run(_)) {
                // Nobody announces what other programs do: look before the leap.
                let others = self.others().await;
                asked = self.ask(others);
            }
            match asked.decision {
                Decision::Run(job) => self.measure(&job, asked.by).await,
                Decision::NotNow { until, .. } => {
                    // A commit was another's; what it changes is what is served.
                    if let Some(record) = self.changes.wait(until).await {
                        self.committed(&record);
                    }
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }

    /// Tells the planner what changed.
    fn look(&mut self) {
        let observed = self.parts.sensors.recent();
        let (recalibration, at) = (Arc::clone(&self.parts.recalibration), now());
        let mut planners = recalibration.planners();
        let planner = planners.own();
        if self.clocks.jumped() {
            tracing::info!("the machine slept, or the clock was set");
            planner.clock_jumped(at);
        }
        let wanted = policy(&self.parts.configuration.borrow().configuration);
        if *planner.policy() != wanted {
            planner.set_policy(at, wanted);
        }
        planner.see(at, observed.conditions());
        let identity = self.parts.jobs.identity().borrow().clone();
        if let (Some(before), Some(is)) = (&self.identity, &identity)
            && before.engine != is.engine
        {
            planner.engine_changed();
        }
        self.identity = identity;
    }

    /// Share of all processors that others use, over a moment in which nothing of ours runs.
    async fn others(&self) -> Option<f64> {
        let before = self.parts.sensors.processor_time()?;
        tokio::time::sleep(LOOK).await;
        self.parts.sensors.processor_time()?.busy_since(before)
    }

    /// Asks, with what others were just seen to use, and shows the answer.
    fn ask(&mut self, others: Option<f64>) -> Asked {
        let (at, observed) = (now(), self.parts.sensors.last());
        let hold = self.parts.recalibration.hold();
        let clients = self.clients(at);
        let inputs = Inputs {
            now: at,
            clients,
            load: load(&observed, others),
            available_memory_bytes: observed.readings.available_memory_bytes,
            lock: self.lock(),
            worker: if self.changes.board.borrow().running.is_some() {
                WorkerState::Measuring
            } else {
                WorkerState::Free
            },
            hold: self.holds(hold),
            wants: &[],
        };
        let measurers = self.measurers();
        let asked = measurers.into_iter().map(|by| {
            let wants = self.wants(at, observed.conditions(), &by);
            let inputs = Inputs { wants: &wants, ..inputs.clone() };
            let decision = self.parts.recalibration.planners().of(&by).decide(&inputs);
            Asked { by, decision, wants }
        });
        let asked: Vec<Asked> = asked.collect();
        self.served = asked.iter().flat_map(|asked| asked.served(self.identity.as_ref())).collect();
        let view = self.view(at, hold, &asked);
        self.parts.recalibration.view.send_replace(view);
        let place = chosen(&asked);
        asked.into_iter().nth(place).expect("it is the place of one of them")
    }

    /// Everybody who measures for somebody; whoever measured last comes last, so that no engine waits for all of another.
    fn measurers(&self) -> Vec<Measurer> {
        let mut measurers = vec![Measurer::Own];
        for (_, client) in self.parts.clients.list() {
            let by = self.parts.measurer(&client.introduction).0;
            if !measurers.contains(&by) {
                measurers.push(by);
            }
        }
        // A worker that keeps failing measures for nobody, but its trouble is remembered as long as its client is there.
        let attached = self.parts.clients.list();
        let engines: Vec<_> =
            attached.iter().filter_map(|(_, client)| client.introduction.engine.as_ref()).collect();
        self.parts.recalibration.planners().keep(&engines);
        measurers.sort_by_key(|by| self.last.as_ref() == Some(by));
        measurers
    }

    fn clients(&mut self, at: Moment) -> ClientActivity {
        let attached = self.parts.clients.list();
        let mut news = false;
        for (_, client) in &attached {
            // What another engine's worker measures is wanted of that one only, and only while its client is there.
            if self.parts.measurer(&client.introduction).0 == Measurer::Own {
                news |= self.parts.recalibration.recent().see(&client.introduction, at);
            }
        }
        if news {
            self.keep_state();
        }
        let mut busy = attached.iter().filter(|(_, client)| client.activity == Activity::Busy);
        match busy.next() {
            Some((_, client)) => {
                self.rested_since = Some(at);
                ClientActivity::Busy { pid: client.introduction.pid, others: busy.count() }
            }
            None => ClientActivity::Idle { since: self.rested_since },
        }
    }

    fn wants(&mut self, at: Moment, conditions: Conditions, by: &Measurer) -> Vec<Want> {
        let Some(identity) = &self.identity else { return Vec::new() };
        let identity = &Identity { engine: by.engine(&identity.engine).clone(), ..identity.clone() };
        let table = &self.parts.table;
        let (records, rule) = (table.of_chip(&identity.chip), table.row_rule(&identity.chip));
        let served = Served { identity, records: &records, rule: &rule, conditions };
        let attached = self.parts.clients.list();
        let attached = attached
            .iter()
            .filter(|(_, client)| self.parts.measurer(&client.introduction).0 == *by)
            .flat_map(|(_, client)| recent::shapes(&client.introduction))
            .map(|shape| (shape, Interest::Attached));
        if *by != Measurer::Own {
            return served.wants(attached);
        }
        let configuration = Arc::clone(&self.parts.configuration.borrow().configuration);
        let configured = configuration.wanted.iter().map(|wanted| (wanted.shape, Interest::Configured));
        let recent = self.parts.recalibration.recent().shapes(at);
        let recent = recent.into_iter().map(|shape| (shape, Interest::Recent));
        served.wants(attached.chain(recent).chain(configured))
    }

    /// Held from the first question on; asked for anew as long as another daemon has it.
    fn lock(&mut self) -> Lock {
        // Data is measured by as many as like to.
        let Some(path) = &self.parts.settings.measuring_lock else { return Lock::Held };
        if self.lock.is_none() {
            match MeasuringLock::try_acquire(path) {
                Ok(lock) => self.lock = lock,
                Err(error) => {
                    return Lock::Elsewhere(Some(format!("{}: {error}", path.display())));
                }
            }
        }
        if self.lock.is_some() { Lock::Held } else { Lock::Elsewhere(None) }
    }

    fn view(&self, at: Moment, hold: Hold, all: &[Asked]) -> View {
        let mut planners = self.parts.recalibration.planners();
        let (mut stale, mut troubles) = (Vec::new(), Vec::new());
        for Asked { by, wants, .. } in all {
            let planner = planners.of(by);
            stale.extend(wants.iter().filter_map(|want| {
                match planner.freshness(at, want.shape, &want.known) {
                    planner::Freshness::Stale(why) => Some((want.shape, why)),
                    planner::Freshness::Until(_) => None,
                }
            }));
            troubles.extend(planner.troubles().map(|(subject, trouble)| {
                let why = trouble.cause.to_string();
                (subject.to_string(), why, trouble.in_a_row, trouble.retry(at).unix_ms())
            }));
        }
        let planner = planners.own();
        let asked = &all[chosen(all)];
        let decision = &asked.decision;
        let (next, until) = match decision {
            Decision::Run(job) => (Some(job.shape), None),
            Decision::NotNow { until, .. } => (stale.first().map(|(shape, _)| *shape), *until),
        };
        let conditions = self.parts.sensors.last().conditions();
        View {
            decision: asked.to_string(),
            decided: Some(decision.clone()),
            hold,
            next,
            until_unix_ms: until.map(Moment::unix_ms),
            credit_ms: planner.credit_ms(at),
            duty: planner.policy().duty(conditions).get(),
            wanted: all.iter().map(|asked| asked.wants.len()).sum(),
            troubles,
            stale,
        }
    }

    async fn measure(&mut self, job: &Job, by: Measurer) {
        tracing::info!(%job, ?by, "recalibration");
        self.last = Some(by.clone());
        let recalibration = Arc::clone(&self.parts.recalibration);
        {
            let mut planners = recalibration.planners();
            planners.of(&by).started(job);
            let during = planners.own().state_during(now(), job);
            drop(planners);
            if let Err(error) = self.keep(&during) {
                // A budget that a crash would give back isn't one.
                let reason = format!("the planner's budget can't be kept: {error}");
                recalibration.planners().of(&by).failed(now(), Subject::Worker, Cause::Failed(reason));
                return;
            }
        }
        let begun = Instant::now();
        let end = self.job(job, by.clone()).await;
        let allowed_ms = job.allowance_ms;
        let spent_ms = match &end {
            End::Measured { machine_ms } => *machine_ms,
            // Nobody says what an ended worker spent; it had no more than this.
            End::Failed(..) | End::Interrupted => (begun.elapsed().as_secs_f64() * 1e3).min(allowed_ms),
        };
        {
            let mut planners = recalibration.planners();
            planners.own().spent(now(), spent_ms);
            let planner = planners.of(&by);
            match end {
                End::Measured { .. } => {}
                End::Failed(subject, reason) => planner.failed(now(), subject, Cause::Failed(reason)),
                End::Interrupted => planner.failed(now(), Subject::Shape(job.shape), Cause::Interrupted),
            }
        }
        self.keep_state();
    }

    /// What holds the planner back: a person, or what a self-test found.
    fn holds(&self, hold: Hold) -> Hold {
        match hold {
            Hold::Released if self.parts.table.is_withheld() => Hold::Throttled,
            hold => hold,
        }
    }

    /// One shape, until it is done or something ends it.
    async fn job(&mut self, job: &Job, by: Measurer) -> End {
        let request = JobRequest {
            title: title(&by),
            shapes: vec![job.shape],
            by,
            freshness: Freshness::Remeasure,
            machine_ms: job.allowance_ms,
        };
        let handle = match self.parts.jobs.submit(request) {
            Ok(handle) => handle,
            Err(error) => return End::Failed(Subject::Shape(job.shape), error.to_string()),
        };
        let recalibration = Arc::clone(&self.parts.recalibration);
        let (mut conditions, mut hold) = (self.parts.sensors.subscribe(), recalibration.hold.subscribe());
        let mut busy = self.parts.clients.busy();
        let interrupted = async {
            tokio::select! {
                _ = busy.wait_for(|busy| *busy > 0) => {}
                _ = conditions.wait_for(|observed: &Observed| observed.conditions() != job.conditions) => {}
                _ = hold.wait_for(|hold| *hold != Hold::Released) => {}
            }
        };
        let end = tokio::select! {
            biased;
            () = interrupted => End::Interrupted,
            end = follow(handle, job.shape) => end,
        };
        match end {
            End::Measured { machine_ms } => {
                // Its own commit is among them.
                while let Some(record) = self.changes.commit_that_waits() {
                    self.committed(&record);
                }
                End::Measured { machine_ms }
            }
            end => end,
        }
    }

    /// A shape was measured and stored, for whomever. What was taken over from another machine is in the table, and says nothing of this one.
    fn committed(&mut self, record: &Record) {
        let estimate = &record.estimate;
        if estimate.provenance != Provenance::Measured {
            return;
        }
        let before = self.served.get(&(record.engine.clone(), estimate.shape));
        let mut planners = self.parts.recalibration.planners();
        match planners.of_engine(&record.engine) {
            Some(planner) => planner.measured(now(), estimate, before),
            None => planners.own().measured(now(), estimate, before),
        }
    }

    fn keep_state(&self) {
        let state = self.parts.recalibration.planners().own().state(now());
        if let Err(error) = self.keep(&state) {
            tracing::warn!("the planner's state can't be kept: {error}");
        }
    }

    fn keep(&self, state: &planner::PlannerState) -> std::io::Result<()> {
        let recent = self.parts.recalibration.recent();
        state_file::write(&self.parts.settings.state_directory, state, &recent)
    }
}

/// What the status calls a job.
fn title(by: &Measurer) -> String {
    match by {
        Measurer::Own => "recalibration".to_owned(),
        Measurer::Client { worker, .. } => format!("recalibration with '{worker}'"),
    }
}

fn policy(configuration: &configuration::Configuration) -> Policy {
    let share = |value| Share::new(value).unwrap_or(Share::NONE);
    Policy {
        duty_on_ac: share(configuration.duty.on_ac),
        duty_on_battery: share(configuration.duty.on_battery),
        dwell: configuration.patience.settle,
        quiet: configuration.patience.quiet,
        ..Policy::default()
    }
}

fn load(observed: &Observed, others: Option<f64>) -> Load {
    let cpu = observed.readings.cpu_pressure.into_iter().chain(others).reduce(f64::max);
    Load { cpu, gpu: observed.readings.gpu_busy }
}
