//! The lab's commands.

pub mod anatomy;
pub mod doctor;
pub mod links;
pub mod list;
pub mod plot;
pub mod run;
pub mod stored;
pub mod sweep;
pub mod trace;
