//! Who is attached, what each does, and the number that grows whenever there is something new to tell.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fusion_calibrations::engine::Engine;
use fusion_calibrations::shape::Layer;
use fusion_proto::{MAX_CLIENTS, MAX_LAYERS_PER_CLIENT};
use tokio::sync::{Notify, watch};

use crate::client_worker::ClientWorker;

/// Why a client can't attach.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Too many are.
    #[error("{MAX_CLIENTS} clients are attached already: end some, or run without the daemon")]
    TooManyClients,
    /// It names too many layers.
    #[error(
        "{named} layers are named, at most {MAX_LAYERS_PER_CLIENT} are accepted: name those that take most of the time"
    )]
    TooManyLayers {
        /// How many it names.
        named: usize,
    },
}

/// Whether a client needs the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Nothing of its runs.
    Idle,
    /// Products run: nothing may be measured.
    Busy,
}

/// What a client said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduction {
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Version of its library.
    pub version: String,
    /// The engine that runs its products; `None` for the worker's.
    pub engine: Option<Engine>,
    /// What measures with that engine, if the client has something.
    pub worker: Option<ClientWorker>,
    /// The layers it runs.
    pub layers: Vec<Layer>,
    /// A number of rows it uses; 0 if it doesn't say.
    pub typical_rows: u32,
}

/// An attached client.
#[derive(Debug, Clone)]
pub struct Client {
    /// What it said of itself.
    pub introduction: Arc<Introduction>,
    /// What it does.
    pub activity: Activity,
    /// Observations taken from it.
    pub observations: u64,
    /// When it attached, in ms since 1970.
    pub attached_at_unix_ms: u64,
    /// What it says that splitting saved since then.
    pub savings: Savings,
}

/// What split calls saved against stock's reference.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Savings {
    /// Reference less actual time, in ms; negative for a loss.
    pub ms: f64,
    /// Calls.
    pub calls: u64,
}

/// Everybody who is attached.
#[derive(Debug, Default)]
pub struct Clients {
    attached: Mutex<(u64, BTreeMap<u64, Client>)>,
    busy: watch::Sender<usize>,
    revision: watch::Sender<u64>,
    population: watch::Sender<u64>,
}

impl Clients {
    /// Adds a client until the returned membership is dropped.
    ///
    /// # Errors
    /// Every [`AttachError`].
    pub fn attach(
        self: &Arc<Self>,
        introduction: Introduction,
        now_unix_ms: u64,
    ) -> Result<Membership, AttachError> {
        let named = introduction.layers.len();
        if named > MAX_LAYERS_PER_CLIENT {
            return Err(AttachError::TooManyLayers { named });
        }
        let introduction = Arc::new(introduction);
        let client = Client {
            introduction: Arc::clone(&introduction),
            activity: Activity::Idle,
            observations: 0,
            attached_at_unix_ms: now_unix_ms,
            savings: Savings::default(),
        };
        let mut attached = self.attached();
        if attached.1.len() >= MAX_CLIENTS {
            return Err(AttachError::TooManyClients);
        }
        attached.0 += 1;
        let number = attached.0;
        attached.1.insert(number, client);
        self.population.send_modify(|changes| *changes += 1);
        Ok(Membership {
            clients: Arc::clone(self),
            number,
            introduction,
            turns: AtomicU64::new(0),
            lease: Mutex::default(),
            leased: Notify::new(),
        })
    }

    /// Everybody by number, in the order of arrival.
    pub fn list(&self) -> Vec<(u64, Client)> {
        self.attached().1.iter().map(|(number, client)| (*number, client.clone())).collect()
    }

    /// How many are attached, and how many of them are busy.
    pub fn counts(&self) -> (usize, usize) {
        (self.attached().1.len(), *self.busy.borrow())
    }

    /// How many are busy.
    pub fn busy(&self) -> watch::Receiver<usize> {
        self.busy.subscribe()
    }

    /// Changes whenever a client comes or goes.
    pub fn population(&self) -> watch::Receiver<u64> {
        self.population.subscribe()
    }

    /// Tells every stream that there is something new.
    pub fn announce(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// The number of the newest news.
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    fn attached(&self) -> std::sync::MutexGuard<'_, (u64, BTreeMap<u64, Client>)> {
        self.attached.lock().expect("no holder of this lock panics")
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Client)) {
        let mut attached = self.attached();
        if let Some(client) = attached.1.get_mut(&number) {
            change(client);
        }
        let busy = attached.1.values().filter(|client| client.activity == Activity::Busy).count();
        self.busy.send_if_modified(|before| std::mem::replace(before, busy) != busy);
    }
}

/// A client's place in the list; it leaves when this is dropped.
#[derive(Debug)]
pub struct Membership {
    clients: Arc<Clients>,
    number: u64,
    introduction: Arc<Introduction>,
    /// Odd while it is busy.
    turns: AtomicU64,
    lease: Mutex<Option<f64>>,
    leased: Notify,
}

impl Membership {
    /// Its number among the attached ones.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What the client said of itself.
    pub fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    /// The client turned busy or idle.
    pub fn turn(&self, activity: Activity) {
        if (self.turns() % 2 == 1) != (activity == Activity::Busy) {
            self.turns.fetch_add(1, Ordering::Relaxed);
        }
        self.clients.change(self.number, |client| client.activity = activity);
    }

    /// How often it turned; odd while it is busy.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// What it says that splitting saved.
    pub fn saved(&self, savings: Savings) {
        self.clients.change(self.number, |client| client.savings = savings);
    }

    /// A lease waits to be told to it, in ms.
    pub fn lease(&self, ms: f64) {
        *self.lease.lock().expect("no holder of this lock panics") = Some(ms);
        self.leased.notify_one();
    }

    /// Takes the lease that waits.
    pub fn take_lease(&self) -> Option<f64> {
        self.lease.lock().expect("no holder of this lock panics").take()
    }

    /// Waits for a lease.
    pub async fn leased(&self) {
        self.leased.notified().await;
    }

    /// Observations were taken from it.
    pub fn observed(&self, count: u64) {
        self.clients.change(self.number, |client| client.observations += count);
    }

    /// Whether another client is busy too: two that share the machine see each other's load, not the machine's state.
    pub fn is_contended(&self) -> bool {
        let attached = self.clients.attached();
        attached.1.iter().any(|(number, client)| *number != self.number && client.activity == Activity::Busy)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.clients.attached().1.remove(&self.number);
        self.clients.change(self.number, |_| {});
        self.clients.population.send_modify(|changes| *changes += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduction(pid: u32) -> Introduction {
        Introduction {
            pid,
            name: "test".to_owned(),
            version: "0".to_owned(),
            engine: None,
            worker: None,
            layers: Vec::new(),
            typical_rows: 0,
        }
    }

    #[test]
    fn whoever_leaves_is_neither_listed_nor_busy() {
        let clients = Arc::new(Clients::default());
        let (one, other) =
            (clients.attach(introduction(1), 5).unwrap(), clients.attach(introduction(2), 6).unwrap());
        one.turn(Activity::Busy);
        assert_eq!(*clients.busy().borrow(), 1);
        assert!(other.is_contended() && !one.is_contended());
        other.observed(3);
        assert_eq!(clients.list().iter().map(|(_, client)| client.observations).collect::<Vec<_>>(), [0, 3]);
        drop(one);
        assert_eq!((*clients.busy().borrow(), clients.counts()), (0, (1, 0)));
        assert_eq!((clients.list()[0].1.introduction.pid, clients.list()[0].0), (2, other.number()));
        other.lease(5.0);
        assert_eq!((other.take_lease(), other.take_lease()), (Some(5.0), None));
    }
}
