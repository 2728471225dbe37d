//! The clients' side: they come, are busy, tell what they see, and go.

use fusiond::planner::ClientActivity;

use crate::client::{CHUNK, Client};
use crate::daemon::lease;
use crate::run::{Crash, Simulation};

/// Calls between two reports of a client's gate.
const REPORT_EVERY: u32 = 20;
/// Share of the calls that are a prompt's tail.
const TAILS: f64 = 0.2;

impl Simulation {
    pub fn attach(&mut self, number: usize) {
        let client = Client::new(number, self.world.engine());
        self.checks.starts(number);
        if self.daemon.is_none() && self.starts_at <= self.world.now_ms() {
            self.start_daemon();
        }
        if let Some(daemon) = &mut self.daemon {
            daemon.look(&self.world);
            daemon.attach(number, &client);
            if self.quiet {
                self.first_wants = daemon.wants(self.world.wall());
            }
        }
        self.clients.insert(number, client);
    }

    pub fn detach(&mut self, number: usize) {
        self.clients.remove(&number);
        if let Some(daemon) = &mut self.daemon {
            daemon.detach(number);
        }
    }

    pub fn upgrade(&mut self) {
        self.world.upgrade();
        self.upgraded_at = self.world.now_ms();
        if let Some(daemon) = &mut self.daemon {
            daemon.engine_changed(self.world.engine());
        }
        let running: Vec<usize> = self.clients.keys().copied().collect();
        for number in running {
            self.detach(number);
            self.attach(number);
        }
    }

    /// Tells every client what is known.
    pub fn inform_all(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            for (number, client) in &self.clients {
                daemon.inform(*number, client);
            }
        }
    }

    pub fn burst(&mut self, number: usize, calls: u32) {
        if !self.clients.contains_key(&number) {
            self.attach(number);
        }
        let pid = self.clients[&number].introduction.pid;
        self.turn(number, ClientActivity::Busy { pid, others: 0 });
        for call in 0..calls {
            if self.daemon.is_none() && self.world.now_ms() >= self.starts_at {
                self.start_daemon();
                self.turn(number, ClientActivity::Busy { pid, others: 0 });
            }
            self.machine_events();
            if self.call(number).is_err() {
                self.crash();
            }
            if call % REPORT_EVERY == 0 {
                self.report(number);
            }
            if self.daemon.is_some() && self.ask().is_some() {
                self.checks.violated("a job starts while a client is busy".to_owned());
            }
        }
        self.report(number);
        self.turn(number, ClientActivity::Idle { since: Some(self.world.wall()) });
        self.changed = true;
    }

    fn turn(&mut self, number: usize, activity: ClientActivity) {
        self.clients.get_mut(&number).expect("it is attached").turn();
        let news = self.daemon.as_mut().is_some_and(|daemon| {
            daemon.turn(activity);
            daemon.look(&self.world)
        });
        if news {
            self.inform_all();
        }
    }

    fn report(&mut self, number: usize) {
        let Some(daemon) = &mut self.daemon else { return };
        let before = daemon.explorer();
        if let Some(client) = self.clients.get_mut(&number) {
            daemon.report(number, client, &mut self.disk);
        }
        let overtaken = before.filter(|before| daemon.explorer() != Some(*before));
        if let Some(client) = overtaken.and_then(|before| self.clients.get(&before)) {
            lease(client, 0.0);
        }
    }

    /// What happens to the machine while a client is busy.
    fn machine_events(&mut self) {
        while let Some((at, event)) = self.events.front().copied() {
            if at > self.world.now_ms() || !event.happens_to_machine() {
                break;
            }
            self.events.pop_front();
            self.happen(event);
        }
    }

    fn call(&mut self, number: usize) -> Result<(), Crash> {
        let rows =
            if self.noise.uniform() < TAILS { 64 + (self.noise.uniform() * 1900.0) as u32 } else { CHUNK };
        let client = self.clients.get_mut(&number).expect("it was just attached");
        let outcome = client.call(&mut self.world, rows);
        self.earn(outcome.ms);
        let told = self.daemon.as_ref().map(|daemon| daemon.conditions);
        self.checks.call(number, &outcome, told, &self.world, &mut self.figures);
        if self.daemon.is_none() {
            return Ok(());
        }
        self.step()?;
        let Self { daemon: Some(daemon), clients, world, .. } = self else { return Ok(()) };
        let mut news = daemon.look(world);
        let client = &clients[&number];
        for (layer, observation) in &outcome.observations {
            news |= daemon.observe(client, *layer, observation, world.wall());
        }
        if news {
            daemon.inform(number, client);
        }
        Ok(())
    }
}
