#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod benchmark;
mod cost;
mod error;
mod follow;
mod measure;
mod outliers;
mod reader;
mod scratch;
mod statistics;

pub use benchmark::{INSTRUMENTED_BENCHMARKS, InstrumentedBenchmark, find_instrumented_benchmark};
pub use error::AnatomyError;
pub use measure::{MeasurementOptions, measure};
