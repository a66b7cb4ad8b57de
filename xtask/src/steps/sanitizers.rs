//! ThreadSanitizer and AddressSanitizer, with `--long`.
//!
//! The standard library is built from its sources with each sanitizer: without that,
//! ThreadSanitizer does not see the synchronisation of its locks and threads. There are no
//! suppressions.
//!
//! | crate | thread | address and leaks |
//! |---|---|---|
//! | `lock`, `notify`, `ring` | all tests | all tests |
//! | `event` | all tests | all tests but one of [`ADDRESS_SANITIZER_SKIPPED`] |
//! | `fiber`, `rpc` | all tests but [`THREAD_SANITIZER_SKIPPED`] | all tests but [`ADDRESS_SANITIZER_SKIPPED`] |
//!
//! Switches between the stacks of fibers are reported to both:
//! `mechanisms/fiber/src/raw/sanitizer.rs`. Not covered: other processes (ThreadSanitizer sees one
//! process, and treats each mapping as separate memory); ordering by fences alone, which
//! ThreadSanitizer does not support and the loom models check; C code of dependencies.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::prerequisites::install_nightly_components;
use crate::context::TestContext;
use crate::run::CommandLine;

/// Tested crates: their threads share memory through `unsafe`.
const CRATES: [&str; 6] = [
    "handover-lock",
    "handover-notify",
    "handover-ring",
    "handover-event",
    "handover-fiber",
    "handover-rpc",
];

/// Maximum duration of the tests under one sanitizer, including the build of the standard library.
const SANITIZER_MAX: Duration = Duration::from_secs(3600);

/// Target triple. Cargo builds the standard library only with an explicit target.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Tests that ThreadSanitizer cannot run, each with a reason.
const THREAD_SANITIZER_SKIPPED: [&str; 5] = [
    // ThreadSanitizer handles faults itself, and this test ends with a fault.
    "other_faults_are_forwarded_to_the_previous_handler",
    // These tests limit the address space or the mappings that ThreadSanitizer's shadow memory
    // needs.
    "spawn_fails_without_stack_memory_and_other_fibers_continue",
    "spawn_fails_at_the_mapping_limit_and_other_fibers_continue",
    // These two of rpc have deadlines that ThreadSanitizer's builds exceed.
    "peers_that_connect_while_the_server_is_busy_are_all_accepted",
    "deadlines_pass_while_the_proxy_stalls_and_later_calls_succeed",
];

/// Tests that AddressSanitizer cannot run, each with a reason.
const ADDRESS_SANITIZER_SKIPPED: [&str; 8] = [
    // The reasons given for ThreadSanitizer.
    THREAD_SANITIZER_SKIPPED[0],
    THREAD_SANITIZER_SKIPPED[1],
    THREAD_SANITIZER_SKIPPED[2],
    THREAD_SANITIZER_SKIPPED[3],
    // These tests abandon a runtime; by design its memory is not freed.
    "idle_runtime_wakes_less_than_five_times_a_second",
    "abandoned_runtime_never_resumes_waiting_fibers",
    "fiber_of_a_worker_that_panicked_can_be_woken_after_the_shutdown",
    // Ends with no free descriptor, and the leak search needs one.
    "machine_that_needs_a_descriptor_is_refused_if_there_is_none",
];

/// Runs the tests of [`CRATES`] under ThreadSanitizer, then under AddressSanitizer.
pub fn test_with_sanitizers(context: &mut TestContext) -> Result<()> {
    let has_sources = CommandLine::new("sh -c").args([HAS_STD_SOURCES]);
    if let Err(why) = install_nightly_components(&["rust-src"], has_sources) {
        context.record_skipped("sanitizers", format!("{why:#}"));
        return Ok(());
    }
    run_with_sanitizer(context, "thread", &THREAD_SANITIZER_SKIPPED, "TSAN_OPTIONS")?;
    run_with_sanitizer(context, "address", &ADDRESS_SANITIZER_SKIPPED, "ASAN_OPTIONS")
}

/// Runs the tests of [`CRATES`] under a sanitizer, except the tests `skipped`. The sanitizer's
/// options are passed in the environment variable `variable`.
fn run_with_sanitizer(
    context: &mut TestContext,
    sanitizer: &str,
    skipped: &[&str],
    variable: &str,
) -> Result<()> {
    let flags = format!("-Zsanitizer={sanitizer} --cfg handover_sanitizer=\"{sanitizer}\"");
    let mut run =
        CommandLine::new("cargo +nightly test -Zbuild-std --lib --test it --target").args([TARGET]);
    for name in CRATES {
        run = run.args(["-p", name]);
    }
    let folder = context.workspace.target.join("sanitizer").join(sanitizer);
    run = run.arg_path("--target-dir", &folder).args(["--"]);
    for test in skipped {
        run = run.args(["--skip", test]);
    }
    let passed = run
        .env("RUSTFLAGS", &flags)
        .env(variable, "allocator_may_return_null=1")
        // Symbolising the frames of an expected panic takes seconds in these programs.
        .env("RUST_BACKTRACE", "0")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .current_dir(&context.workspace.root)
        .timeout(SANITIZER_MAX)
        .count_tests()?;
    ensure!(passed > 0, "no test ran with the {sanitizer} sanitizer");
    context.passed_count += passed;
    Ok(())
}

/// Shell command that succeeds if the sources of nightly's standard library are installed.
const HAS_STD_SOURCES: &str =
    "test -e \"$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock\"";
