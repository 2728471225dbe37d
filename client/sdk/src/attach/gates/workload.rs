//! A region, and what inference threads read of it without a lock.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use fusion_calibrations::gate::{Arm, ArmSet, Bucket, GateOptions, WorkloadId};
use fusion_calibrations::lookup::DECODE_ROWS;

use super::Kept;
use crate::attach::table::Table;

/// Bit of a published plan: the gate may explore, so it must be asked.
pub(super) const MAY_EXPLORE: u8 = 1 << 2;
/// A plan that wasn't published yet.
pub(super) const UNSEEN: u8 = u8::MAX;
/// No arm has this code.
pub(super) const UNLOCKED: u8 = u8::MAX;

/// What inference threads know of a bucket without the lock.
#[derive(Debug)]
pub(super) struct BucketView {
    /// Rows of its first call; 0 before that.
    pub(super) rows: AtomicU32,
    /// The code of the arm that runs next, and [`MAY_EXPLORE`]; or [`UNSEEN`].
    pub(super) plan: AtomicU8,
    /// Whether any layer would be split.
    pub(super) splits: AtomicBool,
    /// The code of the arm that a person locked, or [`UNLOCKED`], as the gate was told.
    pub(super) locked: AtomicU8,
}

impl BucketView {
    fn new() -> Self {
        Self {
            rows: AtomicU32::new(0),
            plan: AtomicU8::new(UNSEEN),
            splits: AtomicBool::new(false),
            locked: AtomicU8::new(UNLOCKED),
        }
    }
}

/// What a region consists of.
#[derive(Debug)]
pub(in crate::attach) struct Composition {
    pub(in crate::attach) name: String,
    /// Places in the table, and how often each layer runs.
    pub(in crate::attach) parts: Vec<(usize, u32)>,
    pub(in crate::attach) other_ms: f64,
}

/// A region of one gate.
#[derive(Debug)]
pub(in crate::attach) struct Workload {
    pub(in crate::attach) composition: Composition,
    pub(super) id: WorkloadId,
    pub(super) place: usize,
    /// Calls of fewer rows can't win by splitting.
    break_even: AtomicU32,
    buckets: Box<[BucketView]>,
}

impl Workload {
    /// The region at `place` of its gate, not yet weighed.
    pub(super) fn new(id: WorkloadId, place: usize, composition: Composition) -> Self {
        let buckets = (0..Bucket::COUNT).map(|_| BucketView::new()).collect();
        Self { composition, id, place, break_even: AtomicU32::new(0), buckets }
    }

    pub(in crate::attach) fn place(&self) -> usize {
        self.place
    }

    /// From how many rows on a thought is worth it. A person's lock holds for small calls too, and two stock arms differ at any size.
    pub(super) fn weigh(&self, arms: ArmSet, table: &Table, kept: &Kept) {
        let Composition { name, parts, other_ms } = &self.composition;
        let always = kept.has_lock(name) || (arms.has(Arm::Compiled) && arms.has(Arm::Eager));
        let margin = GateOptions::new(arms, table.cooling).margin;
        let rows = if always { 0 } else { table.break_even(parts, *other_ms, margin) };
        self.break_even.store(rows, Ordering::Relaxed);
    }

    /// The gate forgot what it was told of locks.
    pub(super) fn unlocked(&self) {
        self.buckets.iter().for_each(|view| view.locked.store(UNLOCKED, Ordering::Relaxed));
    }

    pub(super) fn view(&self, rows: u32) -> &BucketView {
        &self.buckets[usize::from(Bucket::of(rows).index())]
    }

    /// Rows of the first call of each bucket that was called.
    pub(super) fn seen(&self) -> impl Iterator<Item = u32> {
        self.buckets.iter().map(|view| view.rows.load(Ordering::Relaxed)).filter(|rows| *rows > 0)
    }

    /// Whether calls of so few rows aren't worth a thought.
    pub(in crate::attach) fn bypasses(&self, rows: u32) -> bool {
        rows <= DECODE_ROWS || rows < self.break_even.load(Ordering::Relaxed)
    }
}
