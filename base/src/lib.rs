#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod affinity;
pub mod clock;
mod cpu;
mod debug;
#[cfg(all(target_os = "linux", not(handover_portable)))]
pub mod epoll;
pub mod file;
pub mod futex;
#[cfg(handover_loom)]
pub mod loom_support;
mod os;
pub mod prefetch;
pub mod random;
pub mod range;
#[allow(unsafe_code)]
mod raw;
mod setters;
pub mod slab;
pub mod stage;
pub mod sync;
pub mod topology;
pub mod units;
pub mod unwind;
pub mod usage;
pub mod wakers;
