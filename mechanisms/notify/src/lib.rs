#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod config;
#[cfg(not(handover_loom))]
mod drive;
mod engine;
mod error;
mod mechanism;
mod park;
#[cfg(not(handover_loom))]
#[allow(unsafe_code)]
mod raw;
#[cfg(not(handover_loom))]
mod stage;
mod word;

pub use config::Config;
#[cfg(not(handover_loom))]
pub use drive::{Parked, Parker, Unparker, adaptive, adaptive_fd, eventfd, futex, pipe, shared};
#[cfg(not(handover_loom))]
pub use drive::{
    adaptive::Adaptive, adaptive_fd::AdaptiveFd, eventfd::EventFd, futex::Futex, pipe::Pipe,
};
pub use engine::{Engine, Plan, Stats};
pub use error::{ConfigError, MapError, PairError};
pub use mechanism::{Mechanism, Notify, Wait};
pub use park::{ParkWord, Sleep};
pub use word::{SenderCpu, StateWord};
