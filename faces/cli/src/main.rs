//! The binary `handover`, and the classic programs by their own names.

#![deny(unsafe_code)]

mod app;
mod classic;
mod commands;
mod console;
mod exit;
mod names;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(party) = handover_harness::dispatch_partner(handover_suite::ALL) {
        return party;
    }
    if let Err(refused) = console::outlive_file_size_limit() {
        console::tell(format_args!("handover: warning: no handler for SIGXFSZ: {refused}"));
    }
    let (code, error) = app::main(std::env::args_os());
    if let Some(error) = error {
        console::tell(format_args!("handover: {error:#}"));
    }
    code
}
