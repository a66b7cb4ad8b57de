//! Scheduling algorithms as pure state machines: time and length are arguments; there is no clock,
//! no thread and no system call.
//!
//! Layers, each of which depends only on those above it:
//! - `packet`, `error`: packets, flows and counters, and the reasons of refusals;
//! - `algorithm`, `config`: the algorithms' names, and the limits of a scheduler;
//! - `scheduler`: the trait of all algorithms;
//! - `ring`, `heap`, `virtual_time`, `table`, `groups`: data structures;
//! - `flow_scheduler`: a queue for each flow, in the order of a [`Discipline`];
//! - `rr`, `prio`, `wf2q`, `qfq`, `qfq_plus`, `pacing`: the disciplines;
//! - `fifo`, `hierarchy`: schedulers that are no discipline, and that contain two;
//! - `build`: makes the scheduler of an algorithm that is chosen at run time.

mod algorithm;
mod build;
mod config;
mod fifo;
mod flow_scheduler;
mod groups;
mod heap;
mod hierarchy;
mod pacing;
mod packet;
mod prio;
mod qfq;
mod qfq_plus;
mod ring;
mod rr;
mod scheduler;
mod table;
mod virtual_time;
mod wf2q;

pub use crate::error::{EnqueueError, FlowError, Refusal};
pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use build::{AnyScheduler, Visitor};
pub use config::{
    Config, ConfigError, FLOWS_LIMIT, LENGTH_LIMIT_BYTES, PACKETS_LIMIT, WEIGHT_MAX, WEIGHT_SUM_MAX,
};
pub use fifo::Fifo;
pub use flow_scheduler::{Discipline, FlowScheduler};
pub use hierarchy::{Hierarchy, Tenants};
pub use pacing::{Pacing, PacingState};
pub use packet::{DropPolicy, EnqueueOutcome, FlowSpec, Packet, Totals};
pub use prio::{Priority, PriorityState};
pub use qfq::{Qfq, QfqState};
pub use qfq_plus::{QfqPlus, QfqPlusState};
pub use rr::{DeficitRoundRobin, DeficitState, RoundRobin};
pub use scheduler::{EnqueueResult, Scheduler};
pub use table::{FlowStates, HalfLine, Line};
pub use wf2q::{Wf2qPlus, Wf2qState};
