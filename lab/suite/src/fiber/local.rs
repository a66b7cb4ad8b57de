//! What small operations of fibers cost, loop and all: for tables of such.

use super::Fibers;
use super::contenders::{Ours, timed};
use handover_fiber::Eventual;
use handover_harness::Fault;
use std::hint::black_box;

/// `count` times, an eventual is allocated, set, waited for and freed; the clock ticks that it took.
#[must_use]
pub fn eventual_dynamic(count: u64) -> u64 {
    timed(|| {
        for _ in 0..count {
            let eventual = black_box(Box::new(Eventual::<()>::new()));
            let _ = eventual.set(());
            eventual.wait();
        }
    })
}

/// The same of an eventual that is a local variable.
#[must_use]
pub fn eventual_static(count: u64) -> u64 {
    timed(|| {
        for _ in 0..count {
            let eventual = Eventual::<()>::new();
            let eventual = black_box(&eventual);
            let _ = eventual.set(());
            eventual.wait();
        }
    })
}

/// A worker on this CPU, for what takes one.
pub struct Worker(Ours);

impl Worker {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start() -> Result<Worker, Fault> {
        Ours::begin(1).map(Worker)
    }

    /// `count` times, a fiber is spawned, runs and is joined; the clock ticks that it took.
    ///
    /// # Errors
    /// There is no stack, or a result was lost.
    pub fn create_join(&mut self, count: u64) -> Result<u64, Fault> {
        self.0.spawns(count)
    }

    /// `count` times, a fiber yields and nobody else can run.
    ///
    /// # Errors
    /// A fiber was lost.
    pub fn yields(&mut self, count: u64) -> Result<u64, Fault> {
        self.0.yields_alone(count)
    }

    /// `count` times, one of two fibers lets the other run.
    ///
    /// # Errors
    /// A fiber was lost.
    pub fn switches(&mut self, count: u64) -> Result<u64, Fault> {
        self.0.yields(count.next_multiple_of(2))
    }
}
