//! `handover trace`: the probes of programs that run, and the traces that they have left.

mod switch;

use crate::exit::usage;
use clap::Subcommand;
use handover_probe::ReadError;
use handover_trace::TraceError;
use std::io::Write;

#[derive(Debug, Subcommand)]
pub enum Trace {
    /// Switch on probes of a process that runs, which records from then on
    On(switch::On),
    /// Switch off probes of a process that runs
    Off(switch::Off),
    /// List the probes of a process, or those that a trace names
    List(switch::List),
}

pub fn run(args: &Trace, out: &mut dyn Write) -> anyhow::Result<()> {
    match args {
        Trace::On(args) => switch::on(args, out),
        Trace::Off(args) => switch::off(args, out),
        Trace::List(args) => switch::list(args, out),
    }
}

/// A file that is no trace is named wrongly; one that cannot be read is the world's fault.
fn of_trace(refused: TraceError) -> anyhow::Error {
    match &refused {
        TraceError::Read { path, source } => {
            let path = path.display();
            match source {
                ReadError::Io(source) => usage(format!("{path}: {source}")),
                ReadError::Foreign => usage(format!(
                    "{path}: {source}; HANDOVER_TRACE_FILE, handover trace on and handover trace \
                     record write traces"
                )),
                _ => usage(format!("{path}: {source}")),
            }
        }
        TraceError::Incomparable { .. } => usage(refused),
        _ => refused.into(),
    }
}
