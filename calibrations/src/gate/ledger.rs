//! The ledger: what exploring may cost, and the lease that lets a process explore at all.
//!
//! Everything is in ms. An exploring call costs its *excess*: its time minus what stock's reference says for its rows. Within one trial
//! gains offset losses; a trial that ends with a gain leaves nothing for the next (Wu et al. 2016 let gains pay for later
//! exploration; we keep them for the user). So with charged = sum over trials of max(0, sum of the trial's excesses),
//!
//! ```text
//! sum of excesses <= charged <= epsilon x time + (first n0 calls of an arm) + (one call's excess)
//! ```
//!
//! pathwise: a call beyond the first n0 starts only while charged < epsilon x time, time never shrinks, and one call adds at most its own excess.
//! What stock suffers afterwards from the heat of a trial is charged to the trial too, which only stops exploration earlier.

use std::collections::BTreeMap;

/// The permission to lose some time to exploration, given by the daemon for the whole machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lease {
    /// Excess that may be spent, in ms.
    pub ms: f64,
}

/// One trial's account, in ms: its calls' signed excess so far, and that of stock in its heat.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Account {
    open: bool,
    sum_ms: f64,
    aftermath_ms: f64,
}

/// What exploring cost this process, and what it may still cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Ledger {
    epsilon: f64,
    time_ms: f64,
    charged_ms: f64,
    free_ms: f64,
    /// What is left of the lease; `None` without one: what a call gives back then is nobody's.
    lease_ms: Option<f64>,
}

impl Ledger {
    /// An empty ledger without a lease. `epsilon` is the share of time that exploration may cost.
    pub fn new(epsilon: f64) -> Self {
        Self { epsilon: epsilon.max(0.0), time_ms: 0.0, charged_ms: 0.0, free_ms: 0.0, lease_ms: None }
    }

    /// Adds to the lease.
    pub fn grant(&mut self, lease: Lease) {
        if lease.ms.is_finite() {
            *self.lease_ms.get_or_insert(0.0) += lease.ms.max(0.0);
        }
    }

    /// Takes back what is left of the lease, in ms: 0 if it is overdrawn.
    pub fn revoke(&mut self) -> f64 {
        self.lease_ms.take().unwrap_or(0.0).max(0.0)
    }

    /// Time of all recorded calls, in ms.
    pub fn time_ms(&self) -> f64 {
        self.time_ms
    }

    /// What exploration beyond the first calls of each arm was charged, in ms.
    pub fn charged_ms(&self) -> f64 {
        self.charged_ms
    }

    /// What the first calls of each arm cost, in ms.
    pub fn free_ms(&self) -> f64 {
        self.free_ms
    }

    /// What is left of the lease, in ms; negative if the last call overdrew it, 0 without one.
    pub fn lease_ms(&self) -> f64 {
        self.lease_ms.unwrap_or(0.0)
    }

    /// What may still be charged, in ms; negative by the excess of one call at most, or by a trial's aftermath.
    pub fn balance_ms(&self) -> f64 {
        self.epsilon * self.time_ms - self.charged_ms
    }

    /// Whether a call may explore that is expected to cost `expected_ms`. `free` if it is one of the first calls of its arm.
    pub(crate) fn permits(&self, expected_ms: f64, free: bool) -> bool {
        let balance = self.balance_ms();
        self.lease_ms() > 0.0 && (free || (balance > 0.0 && balance >= expected_ms))
    }

    /// Time has passed in a call.
    pub(crate) fn pass(&mut self, ms: f64) {
        self.time_ms += ms;
    }

    /// An exploring call's excess.
    pub(crate) fn charge(&mut self, account: &mut Account, excess_ms: f64, free: bool) {
        account.open = true;
        if free {
            self.free_ms += excess_ms.max(0.0);
            self.draw(excess_ms.max(0.0));
            return;
        }
        let before = account.sum_ms.max(0.0);
        account.sum_ms += excess_ms;
        self.take(account.sum_ms.max(0.0) - before);
    }

    /// A stock call in the heat of a trial: what it took beyond its reference. Noise cancels; what is left over is the trial's.
    pub(crate) fn charge_aftermath(&mut self, account: &mut Account, excess_ms: f64) {
        if !account.open {
            return;
        }
        let before = account.aftermath_ms.max(0.0);
        account.aftermath_ms += excess_ms;
        self.take(account.aftermath_ms.max(0.0) - before);
    }

    /// What was charged as a trial's heat turned out to be the machine's own change. Never touches what the exploring calls cost.
    pub(crate) fn forgive_aftermath(&mut self, account: &mut Account) {
        self.take(-account.aftermath_ms.max(0.0));
        account.aftermath_ms = 0.0;
        account.open = false;
    }

    fn take(&mut self, charge_ms: f64) {
        self.charged_ms += charge_ms;
        self.draw(charge_ms);
    }

    fn draw(&mut self, ms: f64) {
        if let Some(lease_ms) = &mut self.lease_ms {
            *lease_ms -= ms;
        }
    }
}

/// The daemon's side: one lease at a time for the whole machine, paid from the time of all its clients.
///
/// Each process has a ledger of its own, but the first calls of an arm are free in each; since beliefs are merged and leases exclusive,
/// they are spent once per machine and not once per process.
///
/// A holder that rests keeps its lease: many a program makes one call at a time, which is decided before any answer to a wish could come.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseBook {
    epsilon: f64,
    available_ms: f64,
    most_ms: f64,
    holder: Option<Holder>,
}

/// Who explores, and how often others asked in vain since it said anything.
#[derive(Debug, Clone, PartialEq)]
struct Holder {
    client: u64,
    left_ms: f64,
    refusals: BTreeMap<u64, u32>,
}

/// Whoever works reports, and asks, once a second. A holder that said nothing while another one was refused so often rests, and is overtaken.
const MOST_REFUSALS: u32 = 3;

/// What a client did since its last report.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LeaseReport {
    /// Time in calls, in ms.
    pub time_ms: f64,
    /// What exploration was charged, the first calls of arms included, in ms.
    pub charged_ms: f64,
}

impl LeaseBook {
    /// `starter_ms` may be lost before any client worked; `most_ms` is the largest lease.
    pub fn new(epsilon: f64, starter_ms: f64, most_ms: f64) -> Self {
        Self { epsilon, available_ms: starter_ms, most_ms, holder: None }
    }

    /// A client's work pays for exploration, and what it was charged is taken off.
    pub fn report(&mut self, client: u64, report: LeaseReport) {
        let (time, charged) = (report.time_ms.max(0.0), report.charged_ms.max(0.0));
        let mut owed = charged;
        if let Some(holder) = self.holder.as_mut().filter(|holder| holder.client == client) {
            // What was leased had been set aside.
            let paid = charged.min(holder.left_ms);
            holder.left_ms -= paid;
            holder.refusals.clear();
            owed -= paid;
        }
        // Whatever is reported, debts end some day.
        self.available_ms = (self.available_ms + self.epsilon * time - owed).max(-self.most_ms);
    }

    /// A lease for `client`, unless another one explores or nothing is available. Takes it from a holder that rests.
    pub fn request(&mut self, client: u64) -> Option<Lease> {
        if let Some(holder) = &mut self.holder {
            let refusals = holder.refusals.entry(client).or_default();
            *refusals += 1;
            if *refusals <= MOST_REFUSALS {
                return None;
            }
            let holder = holder.client;
            self.release(holder);
        }
        if self.available_ms <= 0.0 {
            return None;
        }
        let left_ms = self.available_ms.min(self.most_ms);
        self.available_ms -= left_ms;
        self.holder = Some(Holder { client, left_ms, refusals: BTreeMap::new() });
        Some(Lease { ms: left_ms })
    }

    /// `client` stopped exploring or went away: what it didn't report as spent is available again.
    pub fn release(&mut self, client: u64) {
        if let Some(holder) = self.holder.take_if(|holder| holder.client == client) {
            self.available_ms += holder.left_ms;
        }
    }

    /// Who explores.
    pub fn holder(&self) -> Option<u64> {
        self.holder.as_ref().map(|holder| holder.client)
    }

    /// What could be leased now, in ms.
    pub fn available_ms(&self) -> f64 {
        self.available_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_lease_no_exploration() {
        let mut ledger = Ledger::new(0.01);
        ledger.pass(1e6);
        assert!(!ledger.permits(0.0, true) && !ledger.permits(0.0, false));
        ledger.grant(Lease { ms: 5.0 });
        assert!(ledger.permits(0.0, true) && ledger.permits(0.0, false));
        let mut account = Account::default();
        ledger.charge(&mut account, 6.0, true);
        assert!(!ledger.permits(0.0, true));
        ledger.grant(Lease { ms: f64::NAN });
        assert_eq!(ledger.lease_ms(), -1.0);
    }

    #[test]
    fn what_a_trial_gives_back_after_the_lease_was_taken_is_no_lease() {
        let mut ledger = Ledger::new(0.01);
        ledger.pass(1e6);
        ledger.grant(Lease { ms: 5.0 });
        let mut account = Account::default();
        ledger.charge(&mut account, 3.0, false);
        assert_eq!(ledger.revoke(), 2.0);
        ledger.charge(&mut account, -3.0, false);
        assert_eq!((ledger.lease_ms(), ledger.charged_ms()), (0.0, 0.0));
        assert!(!ledger.permits(0.0, true));
    }

    #[test]
    fn gains_offset_losses_of_their_own_trial_only() {
        let mut ledger = Ledger::new(0.01);
        let (mut one, mut other) = (Account::default(), Account::default());
        ledger.charge(&mut one, -10.0, false);
        ledger.charge(&mut one, 4.0, false);
        assert_eq!(ledger.charged_ms(), 0.0);
        ledger.charge(&mut other, 4.0, false);
        assert_eq!(ledger.charged_ms(), 4.0);
        ledger.charge(&mut other, -3.0, false);
        assert_eq!(ledger.charged_ms(), 1.0);
    }

    #[test]
    fn a_holder_that_rests_keeps_its_lease_until_another_one_works() {
        let mut book = LeaseBook::new(0.01, 50.0, 1e3);
        assert!(book.request(1).is_some());
        let refused = |book: &mut LeaseBook| (0..MOST_REFUSALS).all(|_| book.request(2).is_none());
        assert!(refused(&mut book));
        // It works: who asks begins anew. Others' wishes don't add up.
        book.report(1, LeaseReport::default());
        assert!(refused(&mut book) && book.request(3).is_none());
        assert_eq!(book.request(2), Some(Lease { ms: 50.0 }));
        assert_eq!(book.holder(), Some(2));
        // What the first one spent meanwhile is paid nevertheless.
        book.report(1, LeaseReport { time_ms: 0.0, charged_ms: 7.0 });
        book.release(1);
        book.release(2);
        assert_eq!((book.available_ms(), book.holder()), (43.0, None));
    }

    #[test]
    fn the_largest_debt_forgives_nothing_that_was_set_aside() {
        let mut book = LeaseBook::new(0.01, 900.0, 1e3);
        assert_eq!(book.request(1), Some(Lease { ms: 900.0 }));
        book.report(2, LeaseReport { time_ms: 0.0, charged_ms: 950.0 });
        // Its lease pays for this; the debt of the other one stays.
        book.report(1, LeaseReport { time_ms: 0.0, charged_ms: 500.0 });
        assert_eq!(book.available_ms(), -950.0);
        book.report(2, LeaseReport { time_ms: 0.0, charged_ms: 1e300 });
        assert_eq!(book.available_ms(), -1e3);
        book.release(1);
        assert_eq!(book.available_ms(), -600.0);
    }

    fn set_aside(book: &LeaseBook) -> f64 {
        book.holder.as_ref().map_or(0.0, |holder| holder.left_ms)
    }

    fn most_refusals(book: &LeaseBook) -> u32 {
        book.holder.as_ref().and_then(|holder| holder.refusals.values().copied().max()).unwrap_or(0)
    }

    proptest! {
        #[test]
        fn the_book_never_gives_what_it_has_not(
            steps in prop::collection::vec((0u64..4, 0u8..3, 0.0f64..1e4, 0.0f64..100.0), 1..200),
        ) {
            const MOST: f64 = 1e3;
            let mut book = LeaseBook::new(0.01, 50.0, MOST);
            for (client, what, work, spent) in steps {
                let before = book.available_ms() + set_aside(&book);
                let mut came = 0.0;
                match what {
                    0 => {
                        let (holder, silent) = (book.holder(), most_refusals(&book) >= MOST_REFUSALS);
                        if let Some(lease) = book.request(client) {
                            prop_assert!((holder.is_none() || silent) && lease.ms <= before + 1e-9);
                        }
                    }
                    1 => book.release(client),
                    _ => {
                        book.report(client, LeaseReport { time_ms: work, charged_ms: spent });
                        came = 0.01 * work - spent;
                    }
                }
                // Nothing comes or goes but by reports, down to the largest debt.
                let expected = (before + came).max(set_aside(&book) - MOST);
                prop_assert!((book.available_ms() + set_aside(&book) - expected).abs() < 1e-6);
            }
        }
    }
}
