//! Steps of `cargo xtask test`.

pub mod aarch64;
pub mod binary;
pub mod chromium;
pub mod deny;
pub mod models;
pub mod prerequisites;
pub mod programs;
pub mod sanitizers;
pub mod sources;
