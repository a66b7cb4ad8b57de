#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod compare;
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

pub use compare::{FunctionComparison, compare_functions};
pub use error::TraceError;
pub use estimate::{CostEstimate, ExclusionLimits, FunctionCost, estimate};
pub use export::{ExportFormat, ExportFormatError, export};
pub use names::{NameId, SiteNames};
pub use statistics::{
    CallStatistics, DurationDistribution, FunctionStatistics, SortOrder, SortOrderError,
};
pub use text::{
    comparison_table, estimate_table, function_table, missing_event_lines, remedy_lines,
    trace_headlines, tree_table,
};
pub use traces::{Traces, nearest_name};
pub use tree::{CallTree, TREE_LEVELS_MAX, TreeGrouping, TreeLine};
pub use walk::{
    CallEnding, CompletedCall, EventPosition, STACK_DEPTH_MAX, ThreadInfo, TraceVisitor,
    WalkCounts, walk,
};
