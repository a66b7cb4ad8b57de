#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod anatomy;
mod arg_range;
mod args;
mod finding;
mod host;
mod proof;
mod record;
mod spec;

pub use anatomy::{
    Anatomy, AnatomyBand, AnatomyFloor, AnatomyOutlier, AnatomyStage, OffCpuVerdict,
    UnmatchedCounts,
};
pub use arg_range::{ArgRange, ArgRangeError};
pub use args::{ArgNotation, ArgType, ArgValues, Args, ArgsError, Bytes, Nanos, Param};
pub use finding::{Finding, FindingLevel};
pub use host::{CpuCache, Host};
pub use proof::Proof;
pub use record::{
    ALLOCATED_BYTES_COUNTER, ALLOCATIONS_COUNTER, Document, FigureMode, HardwareCounts,
    JSON_SCHEMA_VERSION, Participants, PeerWithoutRatio, Quantiles, Ratio, Record, RoleUsage,
    Round, Run, Summary, TimingKind, Warning, WarningCode, command_without_nth,
};
pub use spec::{Contender, ContenderKind, Part, Spec, Unit, Wait};
