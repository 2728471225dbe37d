//! The simulation's loop: what is scripted happens, and in between the daemon does what its planner says.

use std::collections::{BTreeMap, VecDeque};

use fusion_calibrations::conditions::Power;
use fusion_calibrations::noise::Noise;
use fusiond::planner::{Decision, Hold, Job, Known, Load, Lock, Moment, Policy, Reason, Share, Want};

use crate::checks::{Checks, LeftWith};
use crate::client::{CHUNK, Client};
use crate::daemon::Daemon;
use crate::disk::Disk;
use crate::figures::Figures;
use crate::script::{DAY, Event, HOUR, SECOND, script};
use crate::world::{CHIPS, World};

/// The daemon is started again so long after it died: launchd's throttle interval.
const RESTART_MS: f64 = 10.0 * SECOND;
/// A machine that cools is looked at so often; the real one is told by its sensors.
const COOLING_LOOK_MS: f64 = 10.0 * SECOND;
/// Heat below which nothing changes any more.
const COOL: f64 = 0.01;
/// After an upgrade, everything wanted is measured again within so much time.
const SETTLED_AFTER_UPGRADE: f64 = 12.0 * HOUR;
/// Share of the jobs that something happens in.
const SURPRISES: f64 = 0.1;

/// The daemon died.
#[derive(Debug)]
pub struct Crash;

/// Everything.
pub struct Simulation {
    pub world: World,
    pub disk: Disk,
    pub figures: Figures,
    /// What exploring might still cost when the last daemon went, in ms.
    may_explore_ms: Option<f64>,
    pub checks: Checks,
    policy: Policy,
    pub daemon: Option<Daemon>,
    pub starts_at: f64,
    pub clients: BTreeMap<usize, Client>,
    pub events: VecDeque<(f64, Event)>,
    pub noise: Noise,
    crash_after: Option<u32>,
    worker_deaths: f64,
    /// When the planner asked to be asked again, by the wall clock; `None` for "when something changes".
    ask_at: Option<Moment>,
    pub changed: bool,
    pub quiet: bool,
    pub first_wants: Vec<Want>,
    learned_at: Option<f64>,
    pub upgraded_at: f64,
}

/// What came of one seed.
pub struct Report {
    pub chip: &'static str,
    pub figures: Figures,
    pub violations: Vec<String>,
}

/// Lives through `days` scripted days.
pub fn run(days: u32, seed: u64) -> Report {
    let chip = CHIPS[(seed % CHIPS.len() as u64) as usize];
    let mut simulation = Simulation::new(chip, days, seed);
    let end = f64::from(days) * DAY;
    loop {
        let (at, event) = simulation.events.front().copied().unwrap_or((end, Event::QuietEnds));
        simulation.live_until(at);
        // Something may have come in between.
        if simulation.events.front().is_some_and(|first| *first == (at, event))
            && simulation.world.now_ms() >= at
        {
            simulation.events.pop_front();
            simulation.happen(event);
        } else if simulation.world.now_ms() >= end {
            break;
        }
    }
    simulation.end();
    Report { chip, figures: simulation.figures, violations: simulation.checks.violations }
}

/// The default policy; for every third seed one that is so strict that credit is short.
fn policy(seed: u64) -> Policy {
    if !seed.is_multiple_of(3) {
        return Policy::default();
    }
    let share = |share| Share::new(share).unwrap();
    Policy { duty_on_ac: share(0.0002), duty_on_battery: share(0.0002), ..Policy::default() }
}

impl Simulation {
    fn new(chip: &str, days: u32, seed: u64) -> Self {
        let policy = policy(seed);
        Self {
            world: World::new(chip, seed),
            disk: Disk::default(),
            figures: Figures::default(),
            may_explore_ms: None,
            checks: Checks::new(policy.clone()),
            policy,
            daemon: None,
            starts_at: 0.0,
            clients: BTreeMap::new(),
            events: script(days, seed).into(),
            noise: Noise::for_use(seed, "chance"),
            crash_after: None,
            worker_deaths: 0.0,
            ask_at: None,
            changed: true,
            quiet: true,
            first_wants: Vec::new(),
            learned_at: None,
            upgraded_at: 0.0,
        }
    }

    /// The daemon, where one runs.
    pub fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().expect("only a running daemon does this")
    }

    /// Either way, evenly.
    pub fn coin(&mut self) -> bool {
        self.noise.uniform() < 0.5
    }

    /// Whether the worker dies in this call.
    pub fn worker_dies(&mut self) -> bool {
        self.noise.uniform() < self.worker_deaths
    }

    /// The daemon does one thing; or dies before it.
    pub fn step(&mut self) -> Result<(), Crash> {
        match &mut self.crash_after {
            Some(0) => Err(Crash),
            Some(steps) => {
                *steps -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A call of a job ended.
    pub fn measured_call(&mut self, ms: f64, disturbed_at: f64) {
        self.figures.measured_calls += 1;
        self.figures.spent_ms += ms;
        self.earn(ms);
        let overlap_ms = (self.world.now_ms() - disturbed_at).max(0.0);
        self.figures.worst_overlap_ms = self.figures.worst_overlap_ms.max(overlap_ms);
        self.checks.measuring_call(ms, overlap_ms, &self.figures);
    }

    /// What the duty allows for a time that just passed: counted here, whatever the planner counts.
    pub fn earn(&mut self, ms: f64) {
        self.figures.allowed_ms += self.policy.duty(self.world.conditions()).get() * ms;
    }

    fn rest(&mut self, ms: f64) {
        self.earn(ms);
        self.world.machine.rest(ms);
    }

    pub fn crash(&mut self) {
        self.figures.crashes += 1;
        self.crash_after = None;
        // What a full disk doesn't hold is lost: then only the sum over all daemons says something.
        self.may_explore_ms =
            self.daemon.take().map(|daemon| daemon.may_explore_ms()).filter(|_| !self.disk.full);
        for (number, client) in &mut self.clients {
            let served = client.served(CHUNK);
            let (regret, _) = client.judge(&self.world, CHUNK, &served);
            client.copy.lose_daemon();
            self.checks.left(*number, LeftWith { served, regret, conditions: self.world.conditions() });
        }
        self.starts_at = self.world.now_ms() + RESTART_MS;
    }

    pub fn start_daemon(&mut self) {
        for lost in self.disk.lost() {
            self.checks.violated(lost);
        }
        let mut daemon = Daemon::start(self.policy.clone(), &self.disk, &self.world);
        self.checks.may_explore(daemon.may_explore_ms(), &self.figures);
        self.checks.restarted(self.may_explore_ms.take(), daemon.may_explore_ms());
        for (number, client) in &self.clients {
            daemon.attach(*number, client);
        }
        self.daemon = Some(daemon);
        self.changed = true;
    }

    /// The daemon acts until `until`, in true ms, or until a job of its is over.
    fn live_until(&mut self, until: f64) {
        while self.world.now_ms() < until {
            let now = self.world.now_ms();
            if self.daemon.is_none() {
                if now >= self.starts_at {
                    self.start_daemon();
                    continue;
                }
                self.rest(until.min(self.starts_at) - now);
                continue;
            }
            let news = self.daemon.as_mut().is_some_and(|daemon| daemon.look(&self.world));
            let due = self.ask_at.is_some_and(|at| at <= self.world.wall());
            if news {
                self.inform_all();
            }
            let asks = news || due || std::mem::take(&mut self.changed);
            if let Some(job) = asks.then(|| self.ask()).flatten() {
                if self.run_job(&job).is_err() {
                    self.crash();
                }
                self.changed = true;
                return;
            }
            let waits =
                self.ask_at.map_or(f64::INFINITY, |at| at.since(self.world.wall()).as_secs_f64() * SECOND);
            let looks = if self.world.machine.heat() > COOL { COOLING_LOOK_MS } else { f64::INFINITY };
            self.rest((until - now).min(waits.max(1.0)).min(looks));
        }
    }

    /// Asks the planner.
    pub fn ask(&mut self) -> Option<Job> {
        let daemon = self.daemon.as_mut()?;
        let decision = daemon.decide(&self.world, &mut self.disk);
        match decision {
            Decision::Run(job) => {
                self.ask_at = None;
                Some(job)
            }
            Decision::NotNow { because, until } => {
                self.figures.refused(&because);
                self.ask_at = until;
                let learned = matches!(because, Reason::NothingToDo { .. });
                if learned && self.quiet && self.learned_at.is_none() {
                    self.learned_at = Some(self.world.now_ms());
                }
                None
            }
        }
    }

    /// Now and then something happens in the middle of a job: a client turns busy, the plug is pulled, the lid is closed.
    pub fn surprise(&mut self, job: &Job) {
        if self.quiet || self.noise.uniform() >= SURPRISES {
            return;
        }
        let now = self.world.now_ms();
        let at = now + self.noise.uniform() * job.allowance_ms / 2.0;
        let plugged = self.world.conditions().power == Power::Ac;
        let event = match (self.noise.uniform() * 5.0) as u32 {
            0 => Event::Sleep(self.noise.uniform() * HOUR),
            1 => Event::Power(if plugged { Power::Battery } else { Power::Ac }),
            _ => Event::Burst { client: 0, calls: 3 },
        };
        if self.events.front().is_none_or(|(next, _)| *next > at) {
            self.events.push_front((at, event));
        }
    }

    /// When the next thing happens that ends a job.
    pub fn next_disturbance(&self) -> f64 {
        self.events.iter().find(|(_, event)| event.disturbs()).map_or(f64::INFINITY, |(at, _)| *at)
    }

    pub fn happen(&mut self, event: Event) {
        self.changed = true;
        match event {
            Event::Attach(number) => self.attach(number),
            Event::Detach(number) => self.detach(number),
            Event::Burst { client, calls } => self.burst(client, calls),
            Event::Power(power) => self.world.set_power(power),
            Event::LowPowerMode(mode) => self.world.set_low_power_mode(mode),
            Event::Memory(memory, available) => self.world.set_memory(memory, available),
            Event::SensorsLie(lie) => self.world.sensors_lie = lie,
            Event::Sleep(ms) => self.world.sleep(ms),
            Event::ClockSet(by_ms) => self.world.set_clock(by_ms),
            Event::Upgrade => self.upgrade(),
            Event::OthersUse(share) => self.world.load = Load { gpu: Some(share), ..self.world.load },
            Event::CrashAfter(steps) => self.crash_after = Some(steps),
            Event::DiskFull(full) => self.disk.full = full,
            Event::WorkerDies(share) => self.worker_deaths = share,
            Event::Paused(true) => self.world.hold = Hold::Paused { until: None },
            Event::Paused(false) => self.world.hold = Hold::Released,
            Event::LockedElsewhere(true) => self.world.lock = Lock::Elsewhere(None),
            Event::LockedElsewhere(false) => self.world.lock = Lock::Held,
            Event::FlappingBegins => self.checks.flapping = true,
            Event::FlappingEnds => self.checks.flapping = false,
            Event::QuietEnds => {
                self.quiet = false;
                self.figures.learned_ms = self.learned_at.unwrap_or(f64::INFINITY);
                self.checks.learned(self.learned_at, &self.first_wants);
            }
        }
    }

    fn end(&mut self) {
        self.checks.end(&mut self.figures);
        for lost in self.disk.lost() {
            self.checks.violated(lost);
        }
        let settled = self.world.now_ms() - self.upgraded_at > SETTLED_AFTER_UPGRADE;
        let Some(daemon) = &mut self.daemon else { return };
        daemon.look(&self.world);
        for want in daemon.wants(self.world.wall()) {
            if settled && !matches!(want.known, Known::Calibrated(_)) {
                self.checks.violated(format!("{} was never measured with this engine", want.shape));
            }
        }
    }
}
