#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod app;
mod commands;
mod exit;
mod live;

use handover_classic::names;
use handover_program::console;
use std::process::ExitCode;

/// Runs the program requested on the command line. It is `handover`, or the classic program by
/// whose name the binary was called.
pub fn main() -> ExitCode {
    #[cfg(feature = "mpi")]
    if let Some(played) = handover_suite::mpi::dispatch_rank() {
        return print_error(exit::exit_code(played.map_err(anyhow::Error::from)));
    }
    if let Some(played) =
        handover_harness::dispatch_participant(&commands::prove::all_child_benchmarks())
    {
        return print_error(exit::exit_code(played.map_err(exit::participant_error)));
    }
    if let Err(refused) = console::ignore_file_size_signal() {
        console::print_error(format_args!("handover: warning: no handler for SIGXFSZ: {refused}"));
    }
    print_error(app::main(std::env::args_os()))
}

/// Prints the error, if there is one, and returns the exit code.
fn print_error((code, error): (ExitCode, Option<anyhow::Error>)) -> ExitCode {
    if let Some(error) = error {
        // Errors start with the program name that the user typed.
        let called = std::env::args_os().next().unwrap_or_default();
        let name = names::find_by_file_name(&called).map_or("handover", |classic| classic.command);
        console::print_error(format_args!("{name}: {}", exit::format_chain(&error)));
    }
    code
}
