#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod cost;
mod course;
mod error;
mod follow;
mod outliers;
mod reader;
mod scratch;
mod statistics;
mod watch;

pub use course::{COURSES, Course, find};
pub use error::AnatomyError;
pub use watch::{Ask, watch};
