//! The mechanisms, with their system calls and clocks.

pub mod adaptive;
pub mod adaptive_fd;
mod contention;
mod descriptor;
mod parker;
pub mod shared;
mod waiting;
mod yielder;

pub use parker::{ParkResult, Parker, Unparker};
pub use yielder::{Yielder, YieldingWait};
