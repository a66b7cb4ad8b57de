//! Checks of concurrent code: loom models, Miri, fuzzing, and a soak test.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::prerequisites::install_nightly_components;
use super::programs::{LOW_PRIORITY_PREFIX, feature_args};
use crate::context::TestContext;
use crate::run::CommandLine;
use crate::workspace::{Crate, package_args};

/// Time for which each fuzz target runs, in seconds.
const FUZZ_SECONDS: u32 = 60;

/// Number of messages of the soak test, which takes about 72 s on two CPUs.
const SOAK_MESSAGES: u64 = 100_000_000;
/// Maximum duration of the soak test.
const SOAK_MAX: Duration = Duration::from_secs(1800);

/// Number of thread schedules that Miri tries for each test with `--long`.
const MIRI_SEEDS: u32 = 16;

/// Crates of which Miri runs only some tests. Each has the options that select the tests, by
/// default and with `--long`. Mechanisms not listed run all tests, services not listed none.
/// Excluded are tests that take minutes in Miri or need features that Miri lacks (signals, limits,
/// timed sleeps in epoll); of timer, and by default of probe, the long tests of modules without
/// `unsafe`; of sched, whose only `unsafe` prefetches memory, all but one module; of
/// fiber, whose switch is assembly, all but the lists and locks below it; of rpc, all but the
/// decoders.
const MIRI_PARTS: [(&str, &str, &str); 7] = [
    ("handover-fiber", "--lib -- raw::", "--lib -- raw::"),
    (
        "handover-probe",
        "--lib --test sites -- --skip chunk:: --skip format:: --skip pattern::",
        "--lib --tests",
    ),
    ("handover-ring", "--lib --test it -- api:: chunks::", "--lib --tests"),
    ("handover-sched", "", "--test it -- drive_lanes::"),
    ("handover-timer", "--lib -- raw:: records::", "--lib --test it -- raw:: records:: api::"),
    ("handover-event", "--lib", "--lib"),
    ("handover-rpc", "", "--lib engine::"),
];

/// Crates that also compile for systems other than Linux on x86_64.
pub(super) const PORTABLE: [&str; 5] =
    ["handover-base", "handover-lock", "handover-ring", "handover-timer", "handover-sched"];

/// Runs the loom models. They have a separate target folder, as the flag rebuilds everything, and
/// are built separately: other crates' dependencies do not compile with a loom flag.
pub fn test_with_loom(context: &mut TestContext) -> Result<()> {
    let mut modelled = context.workspace.crates_with_file("tests/model.rs");
    ensure!(!modelled.is_empty(), "no crate has a tests/model.rs, so no loom model ran");
    // The base has no models of its own: those of the crates above check it.
    let has_base = context.should_test_thoroughly("handover-base");
    modelled.retain(|one| match has_base {
        true => context.should_test(&one.name),
        false => context.should_test_thoroughly(&one.name),
    });
    if modelled.is_empty() {
        return Ok(());
    }
    let target = context.workspace.target.join("loom");
    let mut run =
        CommandLine::new(&format!("{LOW_PRIORITY_PREFIX} cargo test --profile loom --test model"));
    if context.is_long {
        run = run.env("HANDOVER_LONG", "1");
    }
    let passed = run
        .args(package_args(&modelled))
        .args(feature_args(modelled.iter().copied()))
        .arg_path("--target-dir", &target)
        .env("RUSTFLAGS", "--cfg handover_loom")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .current_dir(&context.workspace.root)
        .count_tests()?;
    let count = modelled.len() as u64;
    ensure!(
        passed >= count,
        "only {passed} loom models passed for {count} crates with a tests/model.rs"
    );
    context.passed_count += passed;
    Ok(())
}

/// Runs the tests of the [`PORTABLE`] crates, compiled as for another system. `--cfg
/// handover_portable` excludes their code for Linux and x86_64. The tests have a separate target
/// folder, as the flag rebuilds everything. Without `--long`, the longest tests of ring and sched
/// are excluded, as the step `tests` runs them.
pub fn test_portable_code(context: &mut TestContext) -> Result<()> {
    let concerned = |one: &&Crate| PORTABLE.contains(&&*one.name) && context.should_test(&one.name);
    let crates: Vec<&Crate> = context.workspace.crates.iter().filter(concerned).collect();
    if crates.is_empty() {
        return Ok(());
    }
    let left_out: &[&str] =
        if context.is_long { &[] } else { &["--skip", "storm", "--skip", "lag_"] };
    let passed = CommandLine::new("cargo test --lib --test it")
        .args(package_args(&crates))
        .arg_path("--target-dir", &context.workspace.target.join("portable"))
        .args(["--"])
        .args(left_out)
        .env("RUSTFLAGS", "--cfg handover_portable")
        .env("PROPTEST_CASES", "8")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .current_dir(&context.workspace.root)
        .count_tests()?;
    ensure!(
        passed >= crates.len() as u64,
        "only {passed} tests passed in {} portable crates",
        crates.len()
    );
    context.passed_count += passed;
    Ok(())
}

/// Runs the tests of changed mechanisms under Miri. With `--only` or `--long`, tests all
/// mechanisms. `--long` also tests the services in [`MIRI_PARTS`].
pub fn test_with_miri(context: &mut TestContext) -> Result<()> {
    let mut mechanisms = context.workspace.crates_below("mechanisms");
    if !(context.is_long || context.has_selected_steps) {
        mechanisms.retain(|one| context.differing_crates.contains(&one.name));
        if mechanisms.is_empty() {
            println!("no mechanism differs from origin/HEAD; `--only miri` tests all of them");
            return Ok(());
        }
    }
    let part = |one: &Crate| MIRI_PARTS.iter().find(|(name, ..)| *name == one.name);
    if context.is_long {
        let services = context.workspace.crates_below("services");
        mechanisms.extend(services.into_iter().filter(|one| part(one).is_some()));
    }
    let crates: Vec<Crate> = mechanisms.into_iter().cloned().collect();
    let has_miri = CommandLine::new("cargo +nightly miri --version");
    if let Err(why) = install_nightly_components(&["miri", "rust-src"], has_miri) {
        context.record_skipped("miri", format!("{why:#}"));
        return Ok(());
    }
    let mut flags = String::from("-Zmiri-disable-isolation");
    if context.is_long {
        flags += &format!(" -Zmiri-many-seeds=0..{MIRI_SEEDS}");
    }
    let whole: Vec<&Crate> = crates.iter().filter(|one| part(one).is_none()).collect();
    let mut runs: Vec<(Vec<&Crate>, &str)> = Vec::new();
    if !whole.is_empty() {
        runs.push((whole, "--lib --tests"));
    }
    for one in &crates {
        if let Some((_, each_time, long)) = part(one) {
            let tests = if context.is_long { long } else { each_time };
            if !tests.is_empty() {
                runs.push((vec![one], tests));
            }
        }
    }
    let mut passed = 0;
    for (crates, tests) in runs {
        passed += CommandLine::new("cargo +nightly miri test")
            .args(package_args(&crates))
            .arg_path("--target-dir", &context.workspace.target.join("miri"))
            .args(tests.split_whitespace())
            .env("MIRIFLAGS", &flags)
            .env("PROPTEST_CASES", "8")
            .current_dir(&context.workspace.root)
            .count_tests()?;
    }
    context.passed_count += passed;
    Ok(())
}

/// Runs every fuzz target for a minute.
pub fn run_fuzz_targets(context: &mut TestContext) -> Result<()> {
    let folder = context.workspace.root.join("fuzz");
    if !folder.join("Cargo.toml").exists() {
        context.record_skipped("fuzz", "the folder fuzz does not exist");
        return Ok(());
    }
    if !CommandLine::new("cargo +nightly fuzz --version").succeeds() {
        context.record_skipped(
            "fuzz",
            "cargo-fuzz is not installed: cargo install --locked cargo-fuzz",
        );
        return Ok(());
    }
    let targets =
        CommandLine::new("cargo +nightly fuzz list").current_dir(&folder).capture_stdout()?;
    for target in targets.lines() {
        CommandLine::new("cargo +nightly fuzz run")
            .args([target, "--", &format!("-max_total_time={FUZZ_SECONDS}")])
            .current_dir(&folder)
            .timeout(Duration::from_secs(900))
            .run()?;
    }
    Ok(())
}

/// Runs the soak test, in which event machines send messages and stop at random. Each message must
/// be handled, rejected, dropped by policy or returned. Without `--long`, a test of the crate sends
/// a million of them.
pub fn run_soak_tests(context: &mut TestContext) -> Result<()> {
    let passed = CommandLine::new("cargo test --release -p handover-event --test it soak")
        .env("HANDOVER_SOAK_MESSAGES", &SOAK_MESSAGES.to_string())
        .current_dir(&context.workspace.root)
        .timeout(SOAK_MAX)
        .count_tests()?;
    ensure!(passed > 0, "no soak test ran in handover-event");
    context.passed_count += passed;
    Ok(())
}
