//! Another processor, aarch64, with `--long`: a build of every crate, and the tests of the
//! mechanisms and services under qemu's emulation of a process. Then a check of the portable crates
//! for other systems.
//!
//! qemu does not reorder memory accesses as processors do: the loom models and Miri remain the
//! proof of the orderings. The emulated programs run other programs of the kind, so that the kernel
//! must start them by qemu (binfmt_misc). The step registers it in a user namespace of its own, and
//! leaves the machine's registrations as they are.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::models::PORTABLE;
use super::prerequisites::{install_debian_packages, install_target};
use crate::context::TestContext;
use crate::run::CommandLine;
use crate::workspace::{Crate, package_args};

/// Target triple of the tested build.
const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Debian's cross compiler, also used as the linker.
const COMPILER: &str = "aarch64-linux-gnu-gcc";

/// Emulator of aarch64 for single processes.
const EMULATOR: &str = "qemu-aarch64";

/// Folder with the C library that Debian's cross compiler links with.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// Maximum duration of the build, and of the emulated tests.
const STEP_MAX: Duration = Duration::from_secs(3600);

/// Other targets for which the portable crates are checked.
const OTHER_SYSTEMS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-pc-windows-msvc"];

/// Folders of the tested crates, each group with the cargo options that select its tests. The other
/// tests of the services measure or kill processes, which are qemu.
const TESTS: [(&[&str], &str); 2] =
    [(&["base", "mechanisms"], "--lib --tests"), (&["services"], "--lib --test it --test logging")];

/// Tests that cannot run under qemu, each with the reason.
const SKIPPED_TESTS: [(&str, &str); 20] = [
    (
        "machine_without_work_sleeps_until_it_is_stopped",
        "a thread of qemu sleeps for its locks too",
    ),
    ("idle_machine_sleeps_exactly_until_its_deadline", COUNTS_REASON),
    ("first_touch_of_memory_is_a_fault_of_the_thread_and_the_process", COUNTS_REASON),
    ("spawn_fails_at_the_mapping_limit_and_other_fibers_continue", SECCOMP_REASON),
    ("stack_overflow_is_reported_with_mapped_guards", SECCOMP_REASON),
    ("stack_overflow_aborts_with_the_name_of_the_fiber", GUARDS_REASON),
    ("faults::stray_write_into_the_guard_of_a_trimmed_stack", GUARDS_REASON),
    ("faults::write_above_the_own_stack", GUARDS_REASON),
    ("machine_is_returned_and_runs_if_no_thread_can_be_started", "qemu refuses no huge mapping"),
    ("attach_without_sites_or_process_is_refused", CODE_CHANGE_REASON),
    ("request_after_a_failed_one_starts_the_recording", CODE_CHANGE_REASON),
    ("sites_of_another_process_are_switched", CODE_CHANGE_REASON),
    ("forked_", "a forked child of several threads hangs in qemu"),
    ("memory_is_withdrawn_only_after_its_writer_has_released_it", PROCESS_VM_REASON),
    ("memory_of_every_kind_is_pulled_and_pushed_over_every_transport", PROCESS_VM_REASON),
    ("each_peer_copies_a_half_of_plain_memory", PROCESS_VM_REASON),
    ("peer_that_cannot_access_the_memory_sends_its_half_in_messages", PROCESS_VM_REASON),
    ("own_half_goes_in_messages_if_the_kernel_revokes_the_access", SECCOMP_REASON),
    ("an_address_at_which_nothing_is_is_the_transfer_s_error_and_no_crash", PROCESS_VM_REASON),
    ("full_disk_stops_recording_and_lost_events_are_counted", "a limit of file sizes hangs qemu"),
];
const PROCESS_VM_REASON: &str = "qemu has no process_vm_readv";
const COUNTS_REASON: &str = "it would count the context switches or page faults of qemu too";
const SECCOMP_REASON: &str = "qemu refuses seccomp filters";
const GUARDS_REASON: &str = "qemu ignores MADV_GUARD_INSTALL and reports success";
const CODE_CHANGE_REASON: &str =
    "the program of the process is qemu, which does not see its code change from outside";

/// Shell script that registers qemu in a new user namespace, and then runs its other arguments. The
/// kernel then runs programs of aarch64 with qemu. The first argument is qemu's path. The two
/// numbers of 20 bytes are the start of the ELF header of a program, and the bits of it that are
/// compared.
const REGISTER_EMULATOR_SCRIPT: &str = r#"
set -e
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
header='\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf ':handover-aarch64:M::%s:%s:%s:' "$header" "$mask" "$0" >/proc/sys/fs/binfmt_misc/register
exec "$@"
"#;

/// Builds and tests for aarch64, under qemu, and checks the portable crates for other systems.
pub fn test_on_aarch64(context: &mut TestContext) -> Result<()> {
    match find_emulator() {
        Ok(emulator) => test_emulated(context, &emulator)?,
        Err(why) => context.record_skipped("aarch64", format!("{why:#}")),
    }
    for target in OTHER_SYSTEMS {
        if let Err(why) = install_target(target) {
            context.record_skipped(target, format!("{why:#}"));
            continue;
        }
        let portable = context.workspace.crates.iter().filter(|it| PORTABLE.contains(&&*it.name));
        CommandLine::new("cargo check --lib --target")
            .args([target])
            .args(package_args(&portable.collect::<Vec<_>>()))
            .current_dir(&context.workspace.root)
            .run()?;
    }
    Ok(())
}

/// Installs the tools for aarch64 if they are missing. Returns the start of a command line that can
/// run programs of aarch64.
fn find_emulator() -> Result<Vec<String>> {
    install_target(TARGET)?;
    let has = |program: &str| CommandLine::new(program).args(["--version"]).succeeds();
    if !(has(COMPILER) && has(EMULATOR)) {
        install_debian_packages(&["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"])?;
    }
    ensure!(Path::new(LIBRARIES).exists(), "there is no folder {LIBRARIES}");
    if Path::new("/proc/sys/fs/binfmt_misc/qemu-aarch64").exists() {
        return Ok(Vec::new());
    }
    let path = CommandLine::new("sh -c").args([format!("command -v {EMULATOR}")]);
    let path = path.capture_stdout().context("qemu-aarch64 is not on the PATH")?;
    let start =
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", REGISTER_EMULATOR_SCRIPT];
    let start: Vec<String> = start.into_iter().chain([path.trim()]).map(str::to_owned).collect();
    match CommandLine::program(&start[0]).args(&start[1..]).args(["true"]).succeeds() {
        true => Ok(start),
        false => bail!(
            "the kernel starts no programs by qemu: it has no binfmt_misc in user namespaces (Linux 6.7), and qemu-aarch64 is not registered in /proc/sys/fs/binfmt_misc"
        ),
    }
}

/// Builds every crate for aarch64, and tests the mechanisms and services. `emulator` is the start
/// of a command line that can run programs of aarch64.
fn test_emulated(context: &mut TestContext, emulator: &[String]) -> Result<()> {
    let cargo = |line: CommandLine| {
        line.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER)
            .env("QEMU_LD_PREFIX", LIBRARIES)
            .env("PROPTEST_CASES", "8")
            .current_dir(&context.workspace.root)
            .timeout(STEP_MAX)
    };
    let mut total = 0;
    cargo(CommandLine::new("cargo build --workspace --target").args([TARGET])).run()?;
    for (folders, targets) in TESTS {
        let below = |folder: &&str| context.workspace.crates_below(folder);
        let crates: Vec<&Crate> = folders.iter().flat_map(below).collect();
        let test = |line: CommandLine| {
            line.args(["test", "--target", TARGET])
                .args(targets.split_whitespace())
                .args(package_args(&crates))
        };
        cargo(test(CommandLine::new("cargo")).args(["--no-run"])).run()?;
        let run = match emulator {
            [] => CommandLine::new("cargo"),
            [program, arguments @ ..] => {
                CommandLine::program(program).args(arguments).args(["cargo"])
            }
        };
        let skips = SKIPPED_TESTS.iter().flat_map(|(test, _)| ["--skip", test]);
        let run = test(run).args(["--no-fail-fast", "--"]).args(skips);
        let name = format!("cargo test --target {TARGET} {targets} ({})", folders.join(", "));
        let passed = cargo(run).with_display_name(&name).count_tests()?;
        ensure!(passed > 0, "no test ran on aarch64 below {}", folders.join(", "));
        total += passed;
    }
    context.passed_count += total;
    SKIPPED_TESTS
        .iter()
        .for_each(|(test, why)| context.record_skipped(&format!("{test} on aarch64"), why));
    Ok(())
}
