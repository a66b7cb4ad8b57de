//! Commands of the lab.

pub mod anatomy;
pub mod bench;
pub mod compare;
pub mod doctor;
pub mod explain;
pub mod files;
pub mod fleet;
#[cfg(feature = "mpi")]
pub mod fleet_run;
pub mod history;
pub mod links;
pub mod list;
pub mod man;
pub mod names;
pub mod plot;
mod pool;
pub mod prove;
pub mod run;
pub mod serve;
pub mod stored;
pub mod sweep;
pub mod time;
pub mod trace;
