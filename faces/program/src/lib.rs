#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod child;
pub mod console;
pub mod exit;
pub mod files;
#[allow(unsafe_code)]
mod raw;

pub use raw::{signal_on_parent_exit, trim_heap};
