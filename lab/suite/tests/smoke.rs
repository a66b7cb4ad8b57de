//! Every benchmark of the suite once, correct rather than fast, so that none can rot. Patterns after
//! `--` choose: `cargo test -p handover-suite --test smoke -- floor/`.

use std::process::ExitCode;

fn main() -> ExitCode {
    handover_harness::smoke(handover_suite::ALL)
}
