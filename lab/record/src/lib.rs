#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod anatomy;
mod args;
mod finding;
mod host;
mod over;
mod proof;
mod record;
mod spec;

pub use anatomy::{
    Anatomy, AnatomyBand, AnatomyFloor, AnatomyOutlier, AnatomyStage, OffCpu, Unmatched,
};
pub use args::{Arg, Args, ArgsError, Bytes, Kind, Nanos, Param, Values};
pub use finding::{Finding, Level};
pub use host::{Cache, Host};
pub use over::{ArgRange, ArgRangeError};
pub use proof::Proof;
pub use record::{
    Document, Hardware, Mode, Participants, PeerWithoutRatio, Quantiles, Ratio, Record, RoleUsage,
    Round, Run, SCHEMA, Summary, TimingKind, Warning, WarningCode,
};
pub use spec::{Contender, ContenderKind, Part, Spec, Unit, Wait};
