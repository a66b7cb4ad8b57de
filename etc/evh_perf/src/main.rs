//! The binary `evh_perf`: the `handover` library, which acts by the name of its program.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    handover_cli::main()
}
