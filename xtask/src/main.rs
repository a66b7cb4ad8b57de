#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod capi;
mod context;
mod dist;
mod layouts;
mod peers;
mod run;
mod steps;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Commands for contributors to handover.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the tests and all other checks.
    Test(test::TestOptions),
    /// Build a release into dist/: packages of the binary and of the C library, SBOM, checksums
    Dist(dist::DistOptions),
    /// Install the C library, its headers, and files for pkg-config and CMake
    Capi(capi::CapiOptions),
    /// Link the release binary several times, each time with another order of functions.
    Layouts(layouts::LayoutsOptions),
    /// Compare handover with other tracers on one C program, or its classic programs with the
    /// originals.
    Peers(peers::PeersOptions),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Test(options) => test::run_test_steps(&options),
        Command::Dist(options) => dist::dist(&options),
        Command::Capi(options) => capi::capi(&options),
        Command::Layouts(options) => layouts::layouts(&options),
        Command::Peers(options) => peers::peers(&options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn command_line_definition_is_valid() {
        super::Cli::command().debug_assert();
    }
}
