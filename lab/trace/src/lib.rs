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
pub use estimate::{CostEstimate, FunctionCost, Limits, estimate};
pub use export::{Format, FormatError, export};
pub use names::{NameId, Names};
pub use statistics::{Durations, FunctionStatistics, SortOrder, SortOrderError, Statistics};
pub use text::{
    estimate_table, function_table, headline, missing_event_lines, remedy_lines, tree_table,
};
pub use traces::{Traces, nearest};
pub use tree::{CallTree, Grouping, LEVELS_MAX, TreeLine};
pub use walk::{Call, DEPTH_MAX, Ending, Position, ThreadInfo, Visitor, WalkCounts, walk};
