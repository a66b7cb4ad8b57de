//! The only modules with `unsafe`: memory of stacks, the switch, and intrusive lists.

mod biased;
#[cfg(not(handover_loom))]
mod cell;
#[cfg(not(handover_loom))]
mod control;
#[cfg(not(handover_loom))]
mod current;
mod gate;
#[cfg(not(handover_loom))]
mod home;
#[cfg(not(handover_loom))]
mod kernel;
#[cfg(not(handover_loom))]
mod mutex_value;
#[cfg(not(handover_loom))]
mod overflow;
#[cfg(not(handover_loom))]
mod owner;
#[cfg(not(handover_loom))]
mod promise;
mod queue;
mod race;
#[cfg(not(handover_loom))]
mod regions;
#[cfg(not(handover_loom))]
mod sanitizer;
#[cfg(not(handover_loom))]
mod stack;
#[cfg(not(handover_loom))]
mod switch;
#[cfg(feature = "async")]
mod task;
#[cfg(not(handover_loom))]
mod timed_wait;
#[cfg(not(handover_loom))]
mod waiter;

pub use biased::BiasedLock;
#[cfg(any(not(handover_loom), feature = "async"))]
pub use gate::Waiters;
pub use gate::Withdrawals;
#[cfg(handover_loom)]
pub use gate::{Gate, PreviousState, WaitNode};
pub use queue::{Inbox, List};
#[cfg(handover_loom)]
pub use queue::{Linked, ListLink};
#[cfg(handover_loom)]
pub use race::WakeRace;
#[cfg(feature = "async")]
pub use task::TaskWait;
#[cfg(all(feature = "async", handover_loom))]
pub use task::TaskWaiter;

#[cfg(not(handover_loom))]
pub(crate) use {
    cell::{GateCell, wait_for_gate, wait_for_gate_until},
    control::{
        FiberControl, FiberRemains, FiberSpec, FinishedFiber, HomeAddress, PendingYield,
        ResultHandle, ResumeOutcome, Runnable, UnclaimedResult, closure_fits, park_running,
        prepare_fiber, running_fiber_id,
    },
    current::{this_worker, this_worker_inlined, with_this_worker},
    kernel::set_timer_slack_1_ns,
    mutex_value::MutexValue,
    overflow::install_fault_handler,
    owner::WorkerOwner,
    stack::{GuardKind, Stack, StackPool},
    switch::Context,
    timed_wait::suspend_fiber_until,
    waiter::{ThreadWaiter, TimerPayload, Waiter},
};
