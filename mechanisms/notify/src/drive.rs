//! The mechanisms, with their system calls and clocks.

pub mod adaptive;
pub mod adaptive_fd;
mod descriptor;
pub mod eventfd;
pub mod futex;
mod parker;
pub mod pipe;
pub mod shared;
mod waiting;

pub use parker::{Parked, Parker, Unparker};
