//! Checks of the sources: format, rules, lints, tests, documentation.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::prerequisites::component;
use crate::run::Run;
use crate::test::Context;

/// An example is a tour of five minutes for a reader, and of seconds for a machine.
const EXAMPLE_MAX: Duration = Duration::from_secs(120);

/// How often probes are switched, with `--long`, while threads run through them.
const PROBE_FLIPS: &str = "1000000";

/// The sources are formatted.
pub fn fmt(context: &mut Context) -> Result<()> {
    if let Err(error) = component(None, &["rustfmt"], Run::new("cargo fmt --version")) {
        context.skip("fmt", format!("{error:#}"));
        return Ok(());
    }
    cargo(context, "cargo fmt --all --check").pass()
}

/// The rules of the house, with the warnings that they print.
pub fn tidy(context: &mut Context) -> Result<()> {
    let run = cargo(context, "cargo test -p handover-tidy -- --nocapture");
    context.tests += run.count()?;
    Ok(())
}

/// Clippy, with every target and every feature, and where that is other code, with none.
pub fn clippy(context: &mut Context) -> Result<()> {
    if let Err(error) = component(None, &["clippy"], Run::new("cargo clippy --version")) {
        context.skip("clippy", format!("{error:#}"));
        return Ok(());
    }
    cargo(context, "cargo clippy --workspace --all-targets --all-features -- -D warnings")
        .pass()?;
    cargo(
        context,
        "cargo clippy -p handover-net -p handover-rpc --no-default-features -- -D warnings",
    )
    .pass()
}

/// How examples end that measure what something costs: compiled each time, and run with `--long`, as they
/// take a minute where nothing is optimised.
const MEASURING: [&str; 2] = ["-cost", "-rates"];

/// Every test, then every example.
pub fn tests(context: &mut Context) -> Result<()> {
    let mut run = cargo(context, "cargo test --workspace");
    if context.long {
        run = run
            .set("HANDOVER_LONG", "1")
            .set("PROPTEST_CASES", "4096")
            .set("HANDOVER_PROBE_FLIPS", PROBE_FLIPS);
    }
    let passed = run.count()?;
    ensure!(passed > 0, "`cargo test --workspace` ran no test");
    context.tests += passed;
    for one in &context.workspace.crates {
        for example in &one.examples {
            if !context.long && MEASURING.iter().any(|ending| example.ends_with(ending)) {
                continue;
            }
            // As the tests have built it: `cargo run -p` would choose other features of what it needs,
            // and build that once more.
            Run::program(context.workspace.target.join("debug/examples").join(example))
                .within(&context.workspace.root)
                .at_most(EXAMPLE_MAX)
                .pass()?;
        }
    }
    Ok(())
}

/// The documentation, with warnings denied.
pub fn docs(context: &mut Context) -> Result<()> {
    cargo(context, "cargo doc --workspace --no-deps").set("RUSTDOCFLAGS", "-D warnings").pass()
}

fn cargo(context: &Context, line: &str) -> Run {
    Run::new(line).within(&context.workspace.root)
}
