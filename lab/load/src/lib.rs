#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod drive;
mod engine;
mod error;
pub mod hold;
mod plan;
pub mod process;
mod schedule;
mod secure;
mod socket;
mod tally;
pub mod wire;

pub use drive::{Event, Load, Progress, Report};
pub use engine::{Client, Order};
pub use error::{Fault, LoadError, PlanError};
pub use plan::{Plan, Work};
pub use schedule::Schedule;
pub use secure::{Insecure, Secure, Secures};
pub use tally::{Linear, Shares, Tally};
