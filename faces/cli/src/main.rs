//! The binary `handover`, which also runs the classic programs under their own names.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    handover_cli::main()
}
