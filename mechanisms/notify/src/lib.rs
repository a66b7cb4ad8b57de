#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

// Layers, each of which depends only on those above it:
// - `error`, `config`, `mechanism`: plain data, and the traits;
// - `engine`, `word`, `park`: the spin policy and the two state words, without a clock or a system
//   call; models check them;
// - `raw::cpu`, `stage`: the CPU's number, and probe sites;
// - `drive::waiting`: the loop that spins, then sleeps, over engine and word;
// - `drive::{contention, yielder}`: yields to other threads of the CPU;
// - `drive::{adaptive, adaptive_fd, parker}`: the mechanisms;
// - `task`: the mechanism whose receiver learns of the last drop, over `word`; a model checks it;
// - `raw::mapping`, `drive::shared`: an adaptive core in memory that processes share.

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
pub mod task;
mod word;

pub use config::Config;
#[cfg(not(handover_loom))]
pub use drive::{
    ParkResult, Parker, Unparker, Yielder, YieldingWait, adaptive, adaptive_fd, shared,
};
#[cfg(not(handover_loom))]
pub use drive::{adaptive::Adaptive, adaptive_fd::AdaptiveFd};
pub use engine::{SpinPolicy, Stats, WaitPlan};
pub use error::{ConfigError, MapError, PairError};
pub use mechanism::{Mechanism, Notify, Wait};
pub use park::{ParkWord, SleepObject};
pub use word::{SenderCpu, StateWord};
