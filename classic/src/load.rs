#![doc = include_str!("load/README.md")]

mod drive;
mod engine;
mod error;
pub mod hold;
mod latencies;
mod plan;
pub mod process;
mod schedule;
mod secure;
mod socket;
pub mod wire;

pub use drive::{Event, Load, LoadReport, Progress};
pub use engine::{Client, MessageQuota};
pub use error::{Fault, LoadError, PlanError};
pub use latencies::{ConnectionShares, LatencyHistograms, LinearHistogram};
pub use plan::{LoadAmount, LoadPlan};
pub use schedule::Schedule;
pub use secure::ClientTls;
