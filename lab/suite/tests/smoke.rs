//! Runs every benchmark of the suite once, for correctness. Patterns after `--` choose benchmarks:
//! `cargo test -p handover-suite --test smoke -- floor/`.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "mpi")]
    if let Some(played) = handover_suite::mpi::dispatch_rank() {
        return played.map_or_else(
            |fault| {
                eprintln!("{fault}");
                ExitCode::FAILURE
            },
            |()| ExitCode::SUCCESS,
        );
    }
    handover_harness::smoke(handover_suite::SUITES)
}
