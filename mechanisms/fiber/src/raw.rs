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
mod timed_wait;
#[cfg(not(handover_loom))]
mod waiter;

pub use biased::BiasedLock;
pub use gate::Withdrawals;
#[cfg(handover_loom)]
pub use gate::{Gate, Node, PreviousState};
pub use queue::{Inbox, List};
#[cfg(handover_loom)]
pub use queue::{Link, Linked};
#[cfg(handover_loom)]
pub use race::Race;

#[cfg(not(handover_loom))]
pub(crate) use {
    cell::{GateCell, wait_at, wait_at_until},
    control::{
        Control, FiberRemains, FiberSpec, FinishedFiber, HomeAddress, Outcome, ResultHandle,
        Runnable, UnclaimedResult, fits, id_of, park, prepare, suspend,
    },
    current::{current, enter},
    kernel::set_timer_slack_1_ns,
    mutex_value::MutexValue,
    overflow::install_fault_handler,
    owner::WorkerOwner,
    stack::{GuardKind, Stack, StackPool},
    timed_wait::wait_until,
    waiter::{ThreadWaiter, TimerPayload, Waiter},
};
