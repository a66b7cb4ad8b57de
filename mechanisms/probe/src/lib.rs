#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

#[doc(hidden)]
pub mod chunk;
#[doc(hidden)]
pub mod claim;
mod config;
mod elf;
mod environment;
mod error;
mod files;
#[doc(hidden)]
pub mod format;
#[doc(hidden)]
pub mod lane;
pub mod outside;
mod pattern;
#[allow(unsafe_code)]
mod raw;
pub mod read;
mod record;
mod registry;
mod remote;
mod session;
mod site;
mod stream;

pub use config::{Config, Policy};
pub use environment::{
    FILE_VARIABLE, PATTERN_VARIABLE, POLICY_VARIABLE, RING_VARIABLE, WAIT_VARIABLE,
};
pub use error::{OtherProcessError, ReadError, StartError, SwitchError, VariableError};
pub use handover_probe_macros::probed;
pub use pattern::matches;
pub use registry::{Backend, backend, disable, enable, sites};
pub use session::{Recording, Summary, prepare, unrecorded};
pub use site::{Kind, SITES_MAX, Site, Value};

/// Items that the macros' expansions use.
#[doc(hidden)]
pub mod __private {
    pub use crate::record::{record, record_1, record_2, record_leave};
    pub use crate::registry::is_on;
    pub use crate::site::{KIND_MARK, KIND_SPAN, Meta};
}
