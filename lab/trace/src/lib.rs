#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod error;
mod estimate;
mod export;
mod names;
pub mod record;
mod statistics;
mod text;
mod traces;
mod tree;
mod walk;

pub use error::TraceError;
pub use estimate::{Estimate, FunctionCost, Limits, estimate};
pub use export::{Format, FormatError, export};
pub use names::{NameId, Names};
pub use statistics::{Durations, Function, Order, OrderError, Statistics};
pub use text::{
    estimate_table, function_table, headline, tree_table, what_can_be_done, what_is_missing,
};
pub use traces::{Traces, nearest};
pub use tree::{CallTree, Grouping, LEVELS_MAX, TreeLine};
pub use walk::{Call, DEPTH_MAX, Ending, Found, Position, ThreadInfo, Visitor, walk};
