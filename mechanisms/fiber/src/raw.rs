//! The only modules with `unsafe`: memory of stacks, the switch, and intrusive lists.

#[cfg(not(handover_loom))]
mod alarm;
mod biased;
#[cfg(not(handover_loom))]
mod cell;
#[cfg(not(handover_loom))]
mod control;
#[cfg(not(handover_loom))]
mod current;
mod gate;
#[cfg(not(handover_loom))]
mod guarded;
#[cfg(not(handover_loom))]
mod kernel;
#[cfg(not(handover_loom))]
mod overflow;
#[cfg(not(handover_loom))]
mod place;
#[cfg(not(handover_loom))]
mod promise;
mod queue;
mod race;
#[cfg(not(handover_loom))]
mod sanitizer;
#[cfg(not(handover_loom))]
mod stack;

pub use biased::Biased;
pub use gate::Withdrawals;
#[cfg(handover_loom)]
pub use gate::{Gate, Node, Opened};
pub use queue::{Inbox, List};
#[cfg(handover_loom)]
pub use queue::{Link, Linked};
pub use race::Race;

#[cfg(not(handover_loom))]
pub(crate) use {
    alarm::{Due, Ring, wait_until},
    cell::{GateCell, enlist, enlist_until},
    control::{
        Control, Ended, Handle, Outcome, Rest, Runnable, Spec, Unread, fits, id_of, park, prepare,
        suspend,
    },
    current::{current, enter},
    guarded::Guarded,
    kernel::slack_to_1_ns,
    overflow::arm,
    place::Place,
    stack::{Guards, Stack, Stacks},
};
