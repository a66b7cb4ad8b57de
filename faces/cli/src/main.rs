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
    let (code, error) = app::main(std::env::args_os());
    if let Some(error) = error {
        eprintln!("handover: {error:#}");
    }
    code
}
