#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod bench;
mod counters;
mod crew;
mod date;
mod dispatch;
pub mod doctor;
mod fault;
mod host;
mod interrupt;
mod lab;
mod noise;
mod off_cpu;
mod own;
mod pace;
mod process;
pub mod prove;
#[allow(unsafe_code)]
mod raw;
mod run_log;
mod samples;
mod scratch;
mod select;
mod setup;
mod smoke;
mod spent;
pub mod stats;
mod trace;
mod workload;

pub use bench::Bench;
pub use date::{DATE_OUT_OF_RANGE, unix_ns};
pub use dispatch::{ParticipantError, dispatch_participant};
pub use fault::Fault;
pub use host::capture_host;
pub use lab::traced_session::{TracedRound, TracedSession};
pub use lab::{BenchmarkGroup, Lab, Plan, PlanError, Profile, RunObserver, RunOutcome};
pub use off_cpu::OffCpuSpan;
pub use own::bench_main;
#[doc(hidden)]
pub use own::time_operation;
pub use raw::CountingAllocator;
pub use run_log::RunLog;
pub use samples::Samples;
pub use scratch::ScratchFolder;
pub use select::{SelectError, Selection, select};
pub use setup::{Region, Setup};
pub use smoke::smoke;
pub use trace::TraceRequest;
pub use workload::{Handover, Participant, Role, Workload};

#[doc(no_inline)]
pub use handover_record::{Contender, Part, Record, Spec, Wait, args};
