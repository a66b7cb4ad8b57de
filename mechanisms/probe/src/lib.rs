#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

// Layers, each of which depends only on those above it:
// - `error`, `config`, `environment`, `pattern`, `backend`: plain data and text;
// - `site`, `lane`, `format`, `chunk`, `elf`: sites, rings of events, and the files' format;
// - `raw::*` but `raw::start`: instructions, maps and hooks, and each thread's writer;
// - `registry`: all sites, and switching them; `config_request`: requests of other processes;
// - `trace_file`, `thread_entry`, `files`, `session`: the files and threads of one recording;
// - `stream`: the thread that writes a stream; `recording`: this process's recording;
// - `record`: functions that sites call; `startup` and `raw::start`: before `main`.
//
// `read` and `other_process` stand beside these: readers of traces, and switching in another
// process.

mod backend;
#[doc(hidden)]
pub mod chunk;
mod config;
mod config_request;
mod elf;
mod environment;
mod error;
mod files;
#[doc(hidden)]
pub mod format;
#[doc(hidden)]
pub mod lane;
#[doc(hidden)]
mod layout;
pub mod other_process;
mod pattern;
#[allow(unsafe_code)]
mod raw;
pub mod read;
mod record;
mod recording;
mod registry;
mod session;
mod site;
mod startup;
mod stream;
mod thread_entry;
#[doc(hidden)]
pub mod trace_file;

pub use backend::Backend;
pub use config::{Config, Policy};
pub use environment::{
    FILE_VARIABLE, PATTERN_VARIABLE, POLICY_VARIABLE, RING_VARIABLE, WAIT_VARIABLE,
};
pub use error::{OtherProcessError, ReadError, StartError, SwitchError, VariableError};
pub use handover_probe_macros::probed;
pub use pattern::matches;
pub use recording::{Recording, prepare, unrecorded_events_count};
pub use registry::{backend, disable, enable, sites};
pub use session::Summary;
pub use site::{SITES_MAX, Site, SiteKind, Value};

/// Items that the macros' expansions use.
#[doc(hidden)]
pub mod __private {
    pub use crate::raw::section::meta_at;
    pub use crate::raw::start::register_section;
    pub use crate::record::{is_on, record, record_1, record_2, record_leave};
    pub use crate::site::{KIND_MARK, KIND_SPAN, SiteData};
}
