//! Costs of small fiber operations, loop included, for tables.

use super::FiberContender;
use super::contenders::HandoverFibers;
use crate::common::time_ticks;
use handover_fiber::Eventual;
use handover_harness::Fault;
use std::hint::black_box;

/// Allocates, sets, awaits and frees an eventual, `count` times; returns the duration in clock
/// ticks.
#[must_use]
pub fn time_eventual_on_heap(count: u64) -> u64 {
    time_ticks(|| {
        for _ in 0..count {
            let eventual = black_box(Box::new(Eventual::<()>::new()));
            let _ = eventual.set(());
            eventual.wait();
        }
    })
}

/// Creates, sets and awaits an eventual in a local variable, `count` times. Returns the duration in
/// clock ticks.
#[must_use]
pub fn time_eventual_on_stack(count: u64) -> u64 {
    time_ticks(|| {
        for _ in 0..count {
            let eventual = Eventual::<()>::new();
            let eventual = black_box(&eventual);
            let _ = eventual.set(());
            eventual.wait();
        }
    })
}

/// Fiber runtime with one worker on this CPU, for operations that run within a fiber.
pub struct FiberWorker(HandoverFibers);

impl FiberWorker {
    /// Starts a worker.
    ///
    /// # Errors
    /// Fails if the kernel cannot start a thread.
    pub fn start() -> Result<FiberWorker, Fault> {
        HandoverFibers::begin().map(FiberWorker)
    }

    /// Spawns and joins a fiber, `count` times; returns the duration in clock ticks.
    ///
    /// # Errors
    /// Fails if a stack cannot be allocated or a fiber has returned no result.
    pub fn time_create_join(&mut self, count: u64) -> Result<u64, Fault> {
        self.0.time_spawns(count)
    }

    /// Yields a fiber `count` times with no other fiber to run; returns the duration in clock
    /// ticks.
    ///
    /// # Errors
    /// Fails if a fiber has returned no result.
    pub fn time_yields(&mut self, count: u64) -> Result<u64, Fault> {
        self.0.time_yields_alone(count)
    }

    /// Switches between two fibers `count` times; returns the duration in clock ticks.
    ///
    /// # Errors
    /// Fails if a fiber has returned no result.
    pub fn time_switches(&mut self, count: u64) -> Result<u64, Fault> {
        self.0.time_yields(count.next_multiple_of(2))
    }
}
