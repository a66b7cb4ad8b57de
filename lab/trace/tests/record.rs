//! Recording of C and C++ programs, compiled with either kind of function entry; their traces are
//! read back.
#![cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
#![deny(unsafe_code)]

#[path = "record/build.rs"]
mod build;

use build::{Built, build, build_by, program};
use handover_probe::Policy;
use handover_probe::format::TraceHeader;
use handover_probe::read::{EventKind, RecordingState, Trace, find_traces};
use handover_trace::record::{
    ProgramError, RECORDING_LIBRARY_IMAGE, RecordError, RecordOptions, RecordResult,
    add_function_names, record,
};
use handover_trace::{Traces, remedy_lines};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

const PATCHABLE: &str = "-fpatchable-function-entry=5";
const HOOKS: &str = "-finstrument-functions";

const CALLS: &str = "
    __attribute__((noinline)) int leaf(int x) { __asm__ volatile(\"\"); return x + 1; }
    __attribute__((noinline)) int middle(int x) { return leaf(x) + leaf(x + 1) + 1; }
    int main(void) { int sum = 0; for (int i = 0; i < 1000; i++) sum += middle(i); return sum & 0; }
";

fn run(built: &Built, options: &RecordOptions) -> RecordResult {
    record(options, &[OsString::from(&built.path)], &|| None).expect("a recording")
}

fn options(built: &Built) -> RecordOptions {
    RecordOptions::new(built.folder.path().join("a.trace")).ring_bytes(1 << 20)
}

/// Counts the calls of each function, as `caller/callee`; asserts that every end matches its
/// beginning.
fn calls(trace: &Trace) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for thread in 0..trace.threads().len() {
        let mut stack: Vec<String> = Vec::new();
        let mut last_ticks = 0;
        for event in trace.events(thread) {
            assert!(event.ticks >= last_ticks);
            last_ticks = event.ticks;
            let name = trace.site(event.site).expect("a named site").name.clone();
            if event.kind == EventKind::Enter {
                let caller = stack.last().cloned().unwrap_or_default();
                *calls.entry(format!("{caller}/{name}")).or_default() += 1;
                stack.push(name);
            } else {
                assert_eq!(stack.pop(), Some(name));
            }
        }
        assert_eq!(stack, Vec::<String>::new());
    }
    calls
}

fn counts<const N: usize>(expected: [(&str, u64); N]) -> BTreeMap<String, u64> {
    expected.map(|(name, count)| (name.to_owned(), count)).into()
}

#[test]
fn every_call_has_its_caller_name_and_source_position() {
    for flags in
        [&[HOOKS, "-g", "-O2"][..], &[PATCHABLE, "-g", "-O2"], &[PATCHABLE, "-g", "-O0", "-no-pie"]]
    {
        for policy in [Policy::Stream, Policy::Last] {
            let Some(built) = build(CALLS, "calls.c", flags) else { return };
            let options = options(&built).policy(policy);
            let recorded = run(&built, &options);
            assert_eq!((recorded.exit_code(), recorded.written.len()), (0, 1), "{recorded:?}");
            assert_eq!(recorded.notes, Vec::<String>::new());
            let trace = Trace::open(&options.file).unwrap();
            assert_eq!(
                (trace.state(), trace.missing_events().total_count()),
                (RecordingState::Finished, 0)
            );
            let expected = counts([("/main", 1), ("main/middle", 1000), ("middle/leaf", 2000)]);
            assert_eq!(calls(&trace), expected, "{flags:?} {policy}");
            let sites = trace.sites();
            let leaf = sites.iter().find(|site| site.name == "leaf").expect("a call of leaf");
            assert!(leaf.file.ends_with("calls.c") && leaf.line == 2, "{leaf:?}");
        }
    }
}

#[test]
fn header_has_the_start_time_of_the_process() {
    let Some(built) = build(CALLS, "calls.c", &[HOOKS, "-O1"]) else { return };
    for policy in [Policy::Stream, Policy::Last] {
        let options = options(&built).policy(policy);
        run(&built, &options);
        let bytes = std::fs::read(&options.file).unwrap();
        let start = TraceHeader::decode(&bytes).unwrap().process_start;
        assert!(start >= own_start(), "{policy}: {start}");
    }
}

/// Returns the time at which this process started, in clock ticks since the boot.
fn own_start() -> u64 {
    let status = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = status.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(19).unwrap().parse().unwrap()
}

#[test]
fn only_selected_functions_are_recorded() {
    for flag in [HOOKS, PATCHABLE] {
        let Some(built) = build(CALLS, "calls.c", &[flag, "-O2"]) else { return };
        let of = |patterns: &[&str]| patterns.iter().map(|it| (*it).to_owned()).collect();
        let cases: [(RecordOptions, _); 4] = [
            (options(&built).include(of(&["m*"])), counts([("/main", 1), ("main/middle", 1000)])),
            (options(&built).exclude(of(&["mid*"])), counts([("/main", 1), ("main/leaf", 2000)])),
            (options(&built).depth(2), counts([("/main", 1), ("main/middle", 1000)])),
            // One hour: even main is shorter.
            (options(&built).min_duration(Duration::from_secs(3_600)), counts([])),
        ];
        for (options, expected) in cases {
            run(&built, &options);
            let trace = Trace::open(&options.file).unwrap();
            assert_eq!(calls(&trace), expected, "{flag} {options:?}");
        }
    }
}

#[test]
fn calls_that_are_not_traced_are_counted() {
    const SOURCE: &str = "
        #include <signal.h>
        __attribute__((noinline)) int fall(int n) {
            int r = n ? fall(n - 1) + 1 : raise(SIGKILL);
            __asm__ volatile(\"\" : \"+r\"(r));
            return r;
        }
        int main(void) { return fall(1500); }
    ";
    for flag in [HOOKS, PATCHABLE] {
        let Some(built) = build(SOURCE, "deep.c", &[flag, "-O1"]) else { return };
        for policy in [Policy::Stream, Policy::Last] {
            let recorded = run(&built, &options(&built).policy(policy));
            assert_eq!(recorded.written[0].events_count, 1023, "{flag} {recorded:?}");
            // main(), and 1501 calls of fall().
            let note = format!("not in the trace: {}.", 1502 - 1023);
            assert!(has_note(&recorded, &note), "{policy} {recorded:?}");
        }
    }
}

#[test]
fn program_with_its_own_malloc_is_recorded_with_a_pattern() {
    // The recorder demangles names, which allocates by the program's malloc, while it looks for the
    // functions to record. malloc is the first of them.
    const SOURCE: &str = r#"
        #include <cstddef>
        #include <cstring>
        alignas(16) static char memory[1 << 24];
        static size_t used;
        extern "C" void *malloc(size_t bytes) {
            void *at = memory + used;
            used += (bytes + 15) & ~(size_t)15;
            return used <= sizeof memory ? at : nullptr;
        }
        extern "C" void free(void *) {}
        extern "C" void *calloc(size_t count, size_t bytes) { return malloc(count * bytes); }
        extern "C" void *realloc(void *from, size_t bytes) {
            void *to = malloc(bytes);
            return from && to ? std::memmove(to, from, bytes) : to;
        }
        __attribute__((noinline)) int kept(int x) { __asm__ volatile(""); return x + 1; }
        __attribute__((noinline)) int hidden(int x) { __asm__ volatile(""); return kept(x); }
        int main() {
            try { throw hidden(1); } catch (int x) { return x - 2; }
        }
    "#;
    let Some(built) = build(SOURCE, "malloc.cc", &[PATCHABLE, "-O1", "-fno-builtin"]) else {
        return;
    };
    let options = options(&built).exclude(vec!["hidden".to_owned()]);
    let recorded = run(&built, &options);
    assert_eq!(recorded.exit_code(), 0, "{:?}", recorded.notes);
    let calls = calls(&Trace::open(&options.file).unwrap());
    assert_eq!(calls.get("main/kept(int)"), Some(&1), "{calls:?}");
}

#[test]
fn min_duration_drops_calls_by_their_own_duration() {
    const SOURCE: &str = "
        #include <unistd.h>
        __attribute__((noinline)) void brief(void) { __asm__ volatile(\"\"); }
        __attribute__((noinline)) void slow(void) { brief(); usleep(300000); brief(); }
        int main(void) { for (int i = 0; i < 300; i++) brief(); slow(); brief(); return 0; }
    ";
    for flag in [HOOKS, PATCHABLE] {
        let Some(built) = build(SOURCE, "slow.c", &[flag, "-O1"]) else { return };
        let options = options(&built).min_duration(Duration::from_millis(250));
        run(&built, &options);
        let calls = calls(&Trace::open(&options.file).unwrap());
        assert_eq!(calls, counts([("/main", 1), ("main/slow", 1)]), "{flag}");
    }
}

#[test]
fn min_duration_keeps_probes_whose_value_looks_like_a_call() {
    // Multiples of 4 include the codes of the functions. Each is recorded last in a brief call.
    const SOURCE: &str = "
        #include \"handover_probe.h\"
        __attribute__((noinline)) void brief(long value) { HANDOVER_PROBE(\"value\", value); }
        int main(void) { for (long value = 0; value < 256; value += 4) brief(value); return 0; }
    ";
    for flag in [HOOKS, PATCHABLE] {
        let Some(built) = build(SOURCE, "values.c", &[flag, "-O1"]) else { return };
        let options = options(&built).min_duration(Duration::from_secs(3_600));
        run(&built, &options);
        let trace = Trace::open(&options.file).unwrap();
        let values: Vec<u64> =
            trace.merged_events().filter_map(|event| event.values().first().copied()).collect();
        assert_eq!(values, (0..256).step_by(4).collect::<Vec<u64>>(), "{flag}");
    }
}

#[test]
fn threads_are_separate_and_child_processes_get_their_own_files() {
    for flag in [HOOKS, PATCHABLE] {
        let Some(built) = build(build::PROCESSES, "processes.c", &[flag, "-O1", "-pthread"]) else {
            return;
        };
        let options = options(&built);
        let recorded = run(&built, &options);
        assert_eq!(recorded.exit_code(), 0);
        let paths = find_traces(&options.file).unwrap();
        assert_eq!(
            paths.len(),
            3,
            "{flag}: the program, its fork, and the program that a fork executed: {paths:?}"
        );
        let mut all = paths.iter().map(|path| Trace::open(path).unwrap()).collect::<Vec<_>>();
        assert!(all.iter().all(|trace| trace.missing_events().total_count() == 0));
        all.sort_by_key(|trace| std::cmp::Reverse(trace.threads().len()));
        // The main thread, and threads that end before the next begins, more than exist at any
        // time.
        assert_eq!(all[0].threads().len(), 1 + 40);
        let worked = |trace: &Trace| {
            let of_work = trace.merged_events().filter(|event| {
                event.kind == EventKind::Enter && trace.site(event.site).unwrap().name == "work"
            });
            of_work.count()
        };
        assert_eq!(worked(&all[0]), 40 * 100);
        let mut others = [worked(&all[1]), worked(&all[2])];
        others.sort_unstable();
        assert_eq!(others, [7, 11]);
        assert!(all[1..].iter().all(|trace| trace.pid() != all[0].pid()));
    }
}

#[test]
fn waiting_program_loses_no_event_with_the_smallest_ring() {
    const SOURCE: &str = "
        #include <errno.h>
        #include <pthread.h>
        __attribute__((noinline)) int work(int x) { __asm__ volatile(\"\"); return x + 1; }
        static void *thread(void *unused) {
            errno = 77;
            for (int i = 0; i < 50000; i++) work(i);
            return errno == 77 ? unused : (void *)1;
        }
        int main(void) {
            pthread_t other;
            void *result;
            if (pthread_create(&other, 0, thread, 0) || thread(0)) return 1;
            return pthread_join(other, &result) || result;
        }
    ";
    for flag in [HOOKS, PATCHABLE] {
        let Some(built) = build(SOURCE, "held.c", &[flag, "-O1", "-pthread"]) else { return };
        let wait = Duration::from_secs(100);
        let options = options(&built).ring_bytes(1 << 13).wait(Some(wait));
        let recorded = run(&built, &options);
        assert_eq!(recorded.exit_code(), 0, "{flag}");
        let notes = recorded.notes.concat();
        assert!(notes.contains("threads waited for "), "{flag}: {notes}");
        let trace = Trace::open(&options.file).unwrap();
        assert_eq!(trace.missing_events().total_count(), 0, "{flag}");
        // Two events for each call of work(), and for main() and thread().
        assert_eq!(trace.merged_events().count(), 2 * 2 * 50_000 + 2 * 3, "{flag}");
    }
}

#[test]
fn killed_program_leaves_all_events_readable() {
    const SOURCE: &str = "
        #include <signal.h>
        __attribute__((noinline)) int work(int x) { __asm__ volatile(\"\"); return x + 1; }
        int main(void) { int x = 0; for (int i = 0; i < 30000; i++) x = work(x); raise(SIGKILL); return x; }
    ";
    for flag in [HOOKS, PATCHABLE] {
        for policy in [Policy::Stream, Policy::Last] {
            let Some(built) = build(SOURCE, "killed.c", &[flag, "-O1"]) else { return };
            let options = options(&built).policy(policy);
            let recorded = run(&built, &options);
            assert_eq!(recorded.exit_code(), 128 + 9);
            let trace = Trace::open(&options.file).unwrap();
            assert_eq!(trace.missing_events().total_count(), 0);
            assert_eq!(trace.merged_events().count(), 1 + 2 * 30_000, "{flag} {policy}");
        }
    }
}

#[test]
fn times_are_right_without_the_time_stamp_counter_as_this_process_clock() {
    // The library reads the counter nevertheless, and this program does not record its own end.
    const SOURCE: &str = "
        #include <unistd.h>
        __attribute__((noinline)) void slow(void) { usleep(1100000); }
        int main(void) { slow(); _exit(0); }
    ";
    const TEST: &str = "times_are_right_without_the_time_stamp_counter_as_this_process_clock";
    // The variable is read once in a process.
    if std::env::var_os("HANDOVER_CLOCK").is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture"]).env("HANDOVER_CLOCK", "clock_gettime");
        assert!(command.status().unwrap().success());
        return;
    }
    let Some(built) = build(SOURCE, "slow.c", &[PATCHABLE, "-O1"]) else { return };
    let options = options(&built);
    run(&built, &options);
    let trace = Trace::open(&options.file).unwrap();
    let times: Vec<i64> =
        trace.merged_events().map(|event| trace.ns_from_ticks(event.ticks)).collect();
    assert_eq!(trace.end_ticks(), None);
    let [_, begin, end] = times[..] else { panic!("{times:?}") };
    // The rate of the counter is measured, and less exactly while other programs run.
    assert!((1_000_000_000..100_000_000_000).contains(&(end - begin)), "{times:?}");
}

#[test]
fn exceptions_longjmp_and_thread_exit_unwind_through_traced_functions() {
    for flags in [
        &[PATCHABLE, "-O2"][..],
        &[PATCHABLE, "-O0", "-fcf-protection"],
        &["-fpatchable-function-entry=16,3", "-O2"],
        &[PATCHABLE, "-O2", "-static-libgcc", "-static-libstdc++"],
        &[HOOKS, "-O2"],
    ] {
        let flags = [flags, &["-pthread"]].concat();
        let Some(built) = build(build::UNWINDING, "unwinding.cc", &flags) else { return };
        let options = options(&built);
        let recorded = run(&built, &options);
        assert_eq!(recorded.exit_code(), 0, "{flags:?}: {:?}", recorded.notes);
        let trace = Trace::open(&options.file).unwrap();
        assert_eq!(trace.missing_events().total_count(), 0);
        // `calls` asserts that skipped calls have an end too.
        let calls = calls(&trace);
        let number = |name: &str| calls.get(name).copied().unwrap_or(0);
        assert_eq!(number("middle(int)/thrower(int)"), 2000, "{flags:?} {calls:?}");
        assert_eq!(number("jumps()/jumper(int)"), 100, "{flags:?} {calls:?}");
        assert_eq!(number("jumper(int)/jumper(int)"), 500, "{flags:?}");
        assert_eq!(number("runs(void*)/ends(void*)"), 1, "{flags:?}");
        assert_eq!(number("main/catcher(int)"), 1000, "{flags:?}");
        // With -O2 these are tail calls, which return, throw, and are passed over by longjmp().
        assert_eq!(number("even(int)/odd(int)"), 100 * (6 + 5), "{flags:?}");
        assert_eq!(number("even(int)/thrower(int)"), 100, "{flags:?}");
        // Hooks of inlined functions share a frame, so that they cannot tell a call that is gone
        // from its caller.
        let caller = if flags.contains(&HOOKS) { "passed(int)" } else { "leaps()" };
        assert_eq!(number(&format!("{caller}/tail(int)")), 100, "{flags:?}");
        assert_eq!(number("tail(int)/twice(int)"), 101, "{flags:?}");
    }
}

#[test]
fn traced_function_keeps_arguments_and_results() {
    for flags in
        [&["-O2"][..], &["-O0"], &["-O3", "-mavx2"], &["-O2", "-no-pie"], &["-O2", "-fPIC"]]
    {
        if flags.contains(&"-mavx2") && !std::arch::is_x86_feature_detected!("avx2") {
            continue;
        }
        let flags = [flags, &[PATCHABLE, "-pthread"]].concat();
        let Some(built) = build(build::VALUES, "values.c", &flags) else { return };
        // A small ring often begins a new block, which takes the slow path.
        for policy in [Policy::Last, Policy::Stream] {
            let options = options(&built).policy(policy).ring_bytes(8192);
            let recorded = run(&built, &options);
            assert_eq!(recorded.exit_code(), 0, "{flags:?}: a check in the program failed");
        }
    }
}

#[test]
fn code_on_other_stacks_and_in_signal_handlers_runs_unchanged() {
    for flag in [HOOKS, PATCHABLE] {
        let Some(built) = build(build::STACKS, "stacks.c", &[flag, "-O1"]) else { return };
        let options = options(&built);
        let recorded = run(&built, &options);
        assert_eq!(recorded.exit_code(), 0, "{flag}");
        assert!(recorded.written[0].events_count > 1000, "{recorded:?}");
    }
}

#[test]
fn functions_of_linked_and_dlopened_objects_are_traced() {
    let library = "
        __attribute__((noinline)) int inside(int x) { __asm__ volatile(\"\"); return x + 1; }
        int outside(int x) { return inside(x); }
    ";
    let opener = "
        #include <dlfcn.h>
        int main(int count, char **words) {
            void *opened = dlopen(words[1], RTLD_NOW);
            int (*outside)(int) = (int (*)(int))dlsym(opened, \"outside\");
            return count == 2 && outside(1) == 2 ? 0 : 1;
        }
    ";
    for flag in [HOOKS, PATCHABLE] {
        let Some(shared) = build(library, "part.c", &[flag, "-O1", "-shared", "-fPIC"]) else {
            return;
        };
        let Some(built) = build(opener, "opener.c", &["-O1"]) else { return };
        let options = options(&built).force(true);
        let words = [OsString::from(&built.path), OsString::from(&shared.path)];
        let recorded = record(&options, &words, &|| None).unwrap();
        assert_eq!(recorded.exit_code(), 0);
        let calls = calls(&Trace::open(&options.file).unwrap());
        assert_eq!(calls, counts([("/outside", 1), ("outside/inside", 1)]), "{flag}");
    }
}

#[test]
fn functions_of_a_stripped_program_are_named_by_address_with_a_note() {
    for flag in [HOOKS, PATCHABLE] {
        let Some(built) = build(CALLS, "calls.c", &[flag, "-O2", "-s"]) else { return };
        let options = options(&built);
        let recorded = run(&built, &options);
        assert!(
            recorded.notes.iter().any(|note| note.contains("3 functions have no symbol")),
            "{recorded:?}"
        );
        let trace = Trace::open(&options.file).unwrap();
        assert_eq!(trace.merged_events().count(), 2 * 3001);
        assert!(
            trace.sites().iter().all(|site| site.name.starts_with("program+0x")),
            "{:?}",
            trace.sites()
        );
    }
}

#[test]
fn untraceable_program_is_refused_with_the_reason_before_it_runs() {
    let refused =
        |words: &[OsString], options: &RecordOptions| match record(options, words, &|| None) {
            Err(RecordError::Refused(refused)) => refused,
            other => panic!("not refused: {other:?}"),
        };
    let Some(built) = build(CALLS, "calls.c", &["-O2"]) else { return };
    let words = |built: &Built| vec![OsString::from(&built.path)];
    let error = refused(&words(&built), &options(&built));
    assert!(error.to_string().contains("no function entries to trace: compile with"), "{error}");
    assert!(!options(&built).file.exists());
    if let Some(built) = build(CALLS, "calls.c", &["-O2", "-static", PATCHABLE]) {
        let error = refused(&words(&built), &options(&built));
        assert!(error.to_string().contains("is statically linked"), "{error}");
    }
    let error = refused(&["no-such-program-anywhere".into()], &options(&built));
    assert!(matches!(error, ProgramError::NotFound { .. }), "{error}");
    let error = refused(&[built.folder.path().into()], &options(&built));
    assert!(error.to_string().contains("not an executable file"), "{error}");

    // With `force` it runs, and a note says that nothing was recorded.
    let options = options(&built).force(true);
    let recorded = run(&built, &options);
    assert!(recorded.written.is_empty());
    assert!(
        recorded.notes.iter().any(|note| note.contains("nothing was recorded")),
        "{recorded:?}"
    );
}

#[test]
fn too_short_patch_area_is_noted() {
    let Some(built) = build(CALLS, "calls.c", &["-O2", "-fpatchable-function-entry=3"]) else {
        return;
    };
    let recorded = run(&built, &options(&built));
    assert_eq!(recorded.exit_code(), 0);
    assert!(
        recorded.notes.iter().any(|note| note.contains("3 functions have less space")),
        "{recorded:?}"
    );
}

#[test]
fn functions_are_not_patched_if_the_kernel_refuses_new_executable_memory() {
    // 65 is PR_SET_MDWE, and 1 is PR_MDWE_REFUSE_EXEC_GAIN. The setting survives exec().
    const SOURCE: &str = "
        #include <sys/prctl.h>
        #include <unistd.h>
        __attribute__((noinline)) int leaf(int x) { __asm__ volatile(\"\"); return x + 1; }
        int main(int count, char **words) {
            if (count > 1) return leaf(1) - 2;
            if (prctl(65, 1, 0, 0, 0)) return 77;
            execl(\"/proc/self/exe\", words[0], \"again\", (char *)0);
            return 3;
        }
    ";
    let Some(built) = build(SOURCE, "refused.c", &[PATCHABLE, "-O1"]) else { return };
    let recorded = run(&built, &options(&built));
    if recorded.exit_code() == 77 {
        println!("skipped: functions without executable memory: the kernel has no PR_SET_MDWE");
        return;
    }
    assert_eq!(recorded.exit_code(), 0, "{recorded:?}");
    let is_refusal = |note: &String| note.contains("2 functions could not be patched");
    assert!(recorded.notes.iter().any(is_refusal), "{:?}", recorded.notes);
}

#[test]
fn interrupted_allocation_of_a_ring_is_repeated() {
    // The recorder calls the program's syscall(), in which the first allocations are interrupted.
    const SOURCE: &str = r#"
        #include <errno.h>
        #include <sys/syscall.h>
        static int allocations;
        __attribute__((patchable_function_entry(0)))
        long syscall(long number, long a, long b, long c, long d, long e, long f) {
            register long fourth __asm__("r10") = d, fifth __asm__("r8") = e, sixth __asm__("r9") = f;
            long result = -EINTR;
            if (number != SYS_fallocate || ++allocations % 4 == 0)
                __asm__ volatile("syscall" : "=a"(result)
                    : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                    : "rcx", "r11", "memory");
            if (result < 0) errno = -result;
            return result < 0 ? -1 : result;
        }
        __attribute__((noinline)) int leaf(int x) { __asm__ volatile(""); return x + 1; }
        int main(void) { return leaf(0) - 1 + (allocations < 8); }
    "#;
    let flags = [PATCHABLE, "-O1", "-fno-builtin", "-rdynamic"];
    let Some(built) = build(SOURCE, "interrupted.c", &flags) else { return };
    let options = options(&built);
    let recorded = run(&built, &options);
    assert_eq!((recorded.exit_code(), recorded.notes), (0, vec![]));
    let calls = calls(&Trace::open(&options.file).unwrap());
    assert_eq!(calls, counts([("/main", 1), ("main/leaf", 1)]));
}

#[test]
fn code_is_made_writable_only_where_jumps_are_written() {
    // The recorder calls the program's mprotect(). The status is the number of mappings whose code
    // becomes writable.
    const SOURCE: &str = r#"
        #include <stddef.h>
        #include <sys/mman.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        static int writable;
        __attribute__((no_instrument_function, patchable_function_entry(0)))
        int mprotect(void *start, size_t bytes, int protection) {
            writable += (protection & PROT_WRITE) && (protection & PROT_EXEC);
            return syscall(SYS_mprotect, start, bytes, protection);
        }
        int main(void) { return writable; }
    "#;
    for (flag, writable_count) in [(HOOKS, 0), (PATCHABLE, 1)] {
        let flags = [flag, "-O1", "-rdynamic"];
        let Some(built) = build(SOURCE, "writable.c", &flags) else { return };
        assert_eq!(run(&built, &options(&built)).exit_code(), writable_count, "{flag}");
    }
}

/// Program that opens libraries, calls `run` of each, and closes each before it opens the next. It
/// ends with 77 if the loader has not given all of them the same address. With `UNSEEN`, the
/// recorder does not see that it closes them.
const OPENER: &str = "
    #include <dlfcn.h>
    #ifdef UNSEEN
    #define dlclose ((int (*)(void *))dlsym(dlopen(\"libc.so.6\", RTLD_NOW), \"dlclose\"))
    #endif
    int main(int count, char **words) {
        void *before = 0;
        for (int at = 1; at < count; at++) {
            void *opened = dlopen(words[at], RTLD_NOW);
            void *run = dlsym(opened, \"run\");
            if (!run || ((int (*)(int))run)(1) != 2 || dlclose(opened)) return 1;
            if (before && before != run) return 77;
            before = run;
        }
        return 0;
    }
";

/// Source of a library for [`OPENER`] whose function `name` is called by `run`, and by a
/// constructor that is not traced.
fn library(name: &str) -> String {
    format!(
        "__attribute__((noinline)) int {name}(int x) {{ __asm__ volatile(\"\"); return x + 1; }}
         int run(int x) {{ return {name}(x); }}
         __attribute__((constructor, no_instrument_function, patchable_function_entry(0)))
         static void start(void) {{ {name}(1); }}"
    )
}

/// Records [`OPENER`], compiled with `flag`, with `libraries`. `None` if the loader gave the
/// libraries different addresses.
fn trace_of_reloads(flag: &str, libraries: &[&Built]) -> Option<Trace> {
    let built = build(OPENER, "opener.c", &["-O1", flag])?;
    let options = options(&built).force(true);
    let words: Vec<OsString> =
        [&built].iter().chain(libraries).map(|it| OsString::from(&it.path)).collect();
    let recorded = record(&options, &words, &|| None).unwrap();
    if recorded.exit_code() == 77 {
        println!("skipped: the loader gave the second library another address");
        return None;
    }
    assert_eq!(recorded.exit_code(), 0);
    Some(Trace::open(&options.file).unwrap())
}

fn names(trace: &Trace) -> Vec<&str> {
    trace.merged_events().map(|event| trace.site(event.site).unwrap().name.as_str()).collect()
}

/// Names of the events of a library whose function is `name`. Patched entries are traced after
/// constructors.
fn names_of_load<'a>(flag: &str, name: &'a str) -> Vec<&'a str> {
    let of_constructor: &[&str] = if flag == HOOKS { &[name, name] } else { &[] };
    [of_constructor, &["run", name, name, "run"]].concat()
}

#[test]
fn library_in_the_place_of_an_unloaded_one_has_its_own_names() {
    for flag in [HOOKS, PATCHABLE] {
        let flags = [flag, "-O1", "-shared", "-fPIC"];
        let Some(first) = build(&library("first"), "part.c", &flags) else { return };
        let Some(other) = build(&library("other"), "part.c", &flags) else { return };
        let Some(trace) = trace_of_reloads("-UUNSEEN", &[&first, &other]) else { return };
        let expected = [names_of_load(flag, "first"), names_of_load(flag, "other")].concat();
        assert_eq!(names(&trace), expected, "{flag}");
    }
}

#[test]
fn library_is_traced_each_time_it_is_loaded() {
    for flag in [HOOKS, PATCHABLE] {
        for build_id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
            let flags = [flag, "-O1", "-shared", "-fPIC", build_id];
            let Some(built) = build(&library("first"), "part.c", &flags) else { return };
            for opener in ["-UUNSEEN", "-DUNSEEN"] {
                let Some(trace) = trace_of_reloads(opener, &[&built; 3]) else { return };
                let expected = names_of_load(flag, "first").repeat(3);
                assert_eq!(names(&trace), expected, "{flag} {build_id} {opener}");
                assert_eq!(trace.sites().len(), 2, "{flag} {build_id} {opener}");
            }
        }
    }
}

#[test]
fn modules_beyond_the_maximum_are_noted() {
    // The library has another size each time, so that it is another module.
    const SOURCE: &str = "
        #include <dlfcn.h>
        #include <sys/stat.h>
        #include <unistd.h>
        int main(int count, char **words) {
            for (int at = 0; at < 1100; at++) {
                struct stat file;
                void *opened = dlopen(words[1], RTLD_NOW);
                if (!opened || dlclose(opened) || stat(words[1], &file)) return 1;
                if (truncate(words[1], file.st_size + 1)) return 2;
            }
            return 0;
        }
    ";
    let Some(built) = build(SOURCE, "many.c", &[PATCHABLE, "-O1"]) else { return };
    let flags = ["-O1", "-shared", "-fPIC", "-Wl,--build-id=none"];
    let Some(library) = build(&library("first"), "part.c", &flags) else { return };
    let words = [&built, &library].map(|it| OsString::from(&it.path));
    let recorded = record(&options(&built), &words, &|| None).unwrap();
    assert_eq!(recorded.exit_code(), 0);
    assert!(has_note(&recorded, "more functions or modules"), "{:?}", recorded.notes);
}

#[test]
fn closed_library_with_a_probe_is_described_in_a_trace_that_begins_later() {
    const LIBRARY: &str = "
        #include \"handover_probe.h\"
        void pass(void) { HANDOVER_PROBE(\"plugin.pass\"); }
    ";
    // The first traced call creates the file.
    const OPENER: &str = "
        #include <dlfcn.h>
        __attribute__((noinline)) int work(int x) { __asm__ volatile(\"\"); return x + 1; }
        __attribute__((no_instrument_function, patchable_function_entry(0)))
        int main(int count, char **words) {
            void *opened = count == 2 ? dlopen(words[1], RTLD_NOW) : 0;
            return !opened || dlclose(opened) || work(1) != 2;
        }
    ";
    for flag in [HOOKS, PATCHABLE] {
        let Some(shared) = build(LIBRARY, "part.c", &["-shared", "-fPIC"]) else { return };
        let Some(built) = build(OPENER, "opener.c", &[flag, "-O1"]) else { return };
        let options = options(&built);
        let words = [&built, &shared].map(|it| OsString::from(&it.path));
        let recorded = record(&options, &words, &|| None).unwrap();
        assert_eq!(recorded.exit_code(), 0, "{recorded:?}");
        let trace = Trace::open(&options.file).unwrap();
        assert!(trace.sites().iter().any(|site| site.name == "plugin.pass"), "{flag}");
    }
}

#[test]
fn threads_are_recorded_after_one_began_without_a_free_file_descriptor() {
    const SOURCE: &str = r#"
        #include <pthread.h>
        #include <sys/resource.h>
        __attribute__((noinline)) int work(int x) { __asm__ volatile(""); return x + 1; }
        static void *thread(void *unused) { for (int i = 0; i < 100; i++) work(i); return unused; }
        static int run(rlim_t descriptors) {
            struct rlimit limit;
            pthread_t one;
            getrlimit(RLIMIT_NOFILE, &limit);
            limit.rlim_cur = descriptors ? limit.rlim_max : 0;
            return setrlimit(RLIMIT_NOFILE, &limit) || pthread_create(&one, 0, thread, 0) || pthread_join(one, 0);
        }
        int main(void) { return run(0) || run(1) || work(0) != 1; }
    "#;
    let Some(built) = build(SOURCE, "few.c", &[PATCHABLE, "-O1", "-pthread"]) else { return };
    let options = options(&built);
    let recorded = run(&built, &options);
    assert_eq!(recorded.exit_code(), 0, "{recorded:?}");
    let trace = Trace::open(&options.file).unwrap();
    assert_eq!((trace.state(), trace.refused_threads_count()), (RecordingState::Finished, 1));
    let calls = calls(&trace);
    assert_eq!((calls["thread/work"], calls["main/work"]), (100, 1), "{calls:?}");
}

#[test]
fn c_and_cpp_probes_are_recorded_with_their_values() {
    for (name, flags) in [
        ("probes.c", &["-O0"][..]),
        ("probes.c", &["-O2", "-fPIC"]),
        ("probes.cc", &["-O2", "-fPIC"]),
    ] {
        let Some(built) = build(build::PROBES, name, flags) else { return };
        let options = options(&built).exclude(vec!["*.hidden".into()]);
        let recorded = run(&built, &options);
        assert_eq!(recorded.exit_code(), 0, "{recorded:?}");
        let trace = Trace::open(&options.file).unwrap();
        let shown: Vec<String> = trace
            .merged_events()
            .map(|event| {
                let name = &trace.site(event.site).unwrap().name;
                format!("{:?} {name} {:?}", event.kind, event.values())
            })
            .collect();
        let one = [
            "Enter work [3]",
            "Mark work.mark [3, 4]",
            "Enter inner []",
            "Leave inner []",
            "Leave work []",
        ];
        assert_eq!(shown, one, "{name} {flags:?}");
        assert!(
            trace.sites().iter().all(|site| Path::new(&site.file).ends_with(name) && site.line > 0)
        );
        assert!(trace.sites().iter().any(|site| site.name == "work.hidden"), "known, and off");
    }
    // The functions of the header are not traced.
    for flag in [HOOKS, PATCHABLE] {
        let Some(built) = build(build::PROBES, "probes.c", &["-O1", flag]) else { return };
        let options = options(&built);
        run(&built, &options);
        let trace = Trace::open(&options.file).unwrap();
        let is_of_header = |name: &str| name.starts_with("handover_probe_");
        assert!(!trace.sites().iter().any(|site| is_of_header(&site.name)), "{:?}", trace.sites());
        assert!(trace.sites().iter().any(|site| site.name == "main"), "{flag}");
    }
    // Without the library the probes do nothing, and no symbol is missing.
    let Some(built) = build(build::PROBES, "probes.c", &["-O2"]) else { return };
    assert!(program(&built).status().unwrap().success());
}

#[test]
fn clang_programs_are_recorded_like_gcc_programs() {
    for flags in [&[HOOKS, "-g", "-O2"][..], &[PATCHABLE, "-g", "-O2"], &[PATCHABLE, "-O0"]] {
        let Some(built) = build_by("clang", CALLS, "calls.c", flags) else { return };
        let options = options(&built);
        let recorded = run(&built, &options);
        assert_eq!((recorded.exit_code(), recorded.notes.len()), (0, 0), "{flags:?} {recorded:?}");
        let expected = counts([("/main", 1), ("main/middle", 1000), ("middle/leaf", 2000)]);
        assert_eq!(calls(&Trace::open(&options.file).unwrap()), expected, "{flags:?}");
    }
    for name in ["probes.c", "probes.cc"] {
        let compiler = if name.ends_with(".cc") { "clang++" } else { "clang" };
        let Some(built) = build_by(compiler, build::PROBES, name, &["-O2", "-fPIC"]) else {
            return;
        };
        let options = options(&built);
        assert_eq!(run(&built, &options).exit_code(), 0);
        let trace = Trace::open(&options.file).unwrap();
        assert_eq!(trace.merged_events().count(), 6, "{name}");
        assert!(trace.sites().iter().any(|site| site.name == "work.hidden"), "{:?}", trace.sites());
    }
}

fn has_note(recorded: &RecordResult, text: &str) -> bool {
    recorded.notes.iter().any(|note| note.contains(text))
}

#[test]
fn file_that_is_not_a_trace_is_refused_and_kept() {
    let Some(built) = build(CALLS, "calls.c", &[HOOKS, "-O1"]) else { return };
    let place = |name: &str| built.folder.path().join(name);
    std::fs::write(place("text"), "mine").unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, place("fifo"), fifo, 0o600.into(), 0).unwrap();
    std::os::unix::fs::symlink(place("nothing"), place("dangling")).unwrap();
    for name in ["text", "fifo", "dangling"] {
        let kind = || std::fs::symlink_metadata(place(name)).unwrap().file_type();
        let before = kind();
        for policy in [Policy::Stream, Policy::Last] {
            let options = RecordOptions::new(place(name)).policy(policy);
            let error = record(&options, &[OsString::from(&built.path)], &|| None).unwrap_err();
            assert!(matches!(error, RecordError::File { .. }), "{name}: {error}");
            assert_eq!(kind(), before, "{name}");
        }
    }
    assert_eq!(std::fs::read(place("text")).unwrap(), b"mine");
    assert!(!place("nothing").exists());
}

#[test]
fn older_trace_is_replaced_only_after_an_event_is_recorded() {
    let Some(built) = build(CALLS, "calls.c", &[HOOKS, "-O1"]) else { return };
    let Some(other) = build(CALLS, "calls.c", &["-O1"]) else { return };
    let options = options(&built);
    run(&built, &options);
    let oldest = std::fs::read(&options.file).unwrap();
    // A trace with the name of a child process of the older program, and one that the user has
    // saved.
    let pid = Trace::open(&options.file).unwrap().pid();
    let child = built.folder.path().join(format!("a.trace.{pid}"));
    let saved = built.folder.path().join("a.trace.1");
    std::fs::write(&child, &oldest).unwrap();
    std::fs::write(&saved, &oldest).unwrap();
    let link = built.folder.path().join("link");
    std::os::unix::fs::symlink(&options.file, &link).unwrap();

    let forced = options.clone().force(true);
    let recorded = run(&other, &forced);
    assert!(recorded.written.is_empty() && has_note(&recorded, "nothing was recorded"));
    assert_eq!(std::fs::read(&options.file).unwrap(), oldest);
    assert!(child.exists());

    for (policy, file) in
        [(Policy::Last, &options.file), (Policy::Last, &link), (Policy::Stream, &link)]
    {
        let before = std::fs::read(&options.file).unwrap();
        let options = options.clone().policy(policy).file(file.clone());
        let recorded = run(&built, &options);
        assert_eq!(recorded.written.len(), 1, "{recorded:?}");
        assert_ne!(std::fs::read(&options.file).unwrap(), before, "{policy}");
        assert_eq!(Trace::open(&options.file).unwrap().merged_events().count(), 2 * 3001);
        assert!(!child.exists());
        assert_eq!(std::fs::read(&saved).unwrap(), oldest);
    }
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    let left = std::fs::read_dir(built.folder.path()).unwrap().flatten();
    let traces = left.filter(|it| it.file_name().to_string_lossy().starts_with("a.trace"));
    assert_eq!(traces.count(), 2);
}

/// Variable with the number that this test's program records, when it runs itself as a Rust program
/// with probes.
const NUMBER: &str = "HANDOVER_TRACE_TEST_NUMBER";

#[test]
fn each_rust_program_of_a_script_keeps_its_trace() {
    if let Ok(number) = std::env::var(NUMBER) {
        handover_probe::probe!("script.mark", number.parse::<u64>().unwrap());
        if number == "3" {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .unwrap();
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let run = "\"$0\" --exact each_rust_program_of_a_script_keeps_its_trace";
    for (policy, script, killed) in [
        (Policy::Stream, format!("{NUMBER}=1 {run}; {NUMBER}=2 {run}; {NUMBER}=4 {run}"), false),
        (Policy::Last, format!("{NUMBER}=1 {run}; {NUMBER}=2 {run}; {NUMBER}=4 {run}"), false),
        (Policy::Stream, format!("export {NUMBER}=3; exec {run}"), true),
    ] {
        let options = RecordOptions::new(folder.path().join("a.trace")).policy(policy).force(true);
        let words =
            ["sh", "-c", &script].map(OsString::from).into_iter().chain([exe.clone().into()]);
        let recorded = record(&options, &words.collect::<Vec<_>>(), &|| None).unwrap();
        assert_eq!(recorded.exit_code(), if killed { 128 + 9 } else { 0 }, "{recorded:?}");
        let paths = find_traces(&options.file).unwrap();
        let traces = paths.iter().map(|path| Trace::open(path).unwrap());
        let values: Vec<Vec<u64>> = traces
            .map(|trace| trace.merged_events().map(|event| event.values()[0]).collect())
            .collect();
        // The first program has the file itself.
        assert_eq!(values[0], [if killed { 3 } else { 1 }], "{paths:?}");
        let mut all = values.concat();
        all.sort_unstable();
        assert_eq!(all, if killed { vec![3] } else { vec![1, 2, 4] }, "{policy} {paths:?}");
        if killed {
            let trace = Trace::open(&options.file).unwrap();
            let rings = trace.rings_path().expect("rings of a killed process");
            assert!(handover_probe::trace_file::is_rings_file_needed(rings));
            std::fs::remove_file(rings).unwrap();
        }
    }
}

#[test]
fn rust_program_has_the_file_and_the_c_program_that_it_starts_has_another() {
    const CHILD: &str = "HANDOVER_TRACE_TEST_CHILD";
    if let Some(child) = std::env::var_os(CHILD) {
        handover_probe::probe!("parent.mark");
        assert!(std::process::Command::new(child).status().unwrap().success());
        return;
    }
    let Some(built) = build(CALLS, "calls.c", &[PATCHABLE, "-O1"]) else { return };
    let script = format!(
        "{CHILD}=\"$0\" exec \"$1\" --exact rust_program_has_the_file_and_the_c_program_that_it_starts_has_another"
    );
    let exe = std::env::current_exe().unwrap();
    let words: Vec<OsString> = ["sh", "-c", &script]
        .map(OsString::from)
        .into_iter()
        .chain([built.path.clone().into(), exe.into()])
        .collect();
    for policy in [Policy::Stream, Policy::Last, Policy::Last] {
        let options = options(&built).policy(policy).force(true);
        let recorded = record(&options, &words, &|| None).unwrap();
        assert_eq!(recorded.exit_code(), 0, "{recorded:?}");
        let traces = Traces::open([&options.file]).unwrap();
        let [parent, child] = traces.as_slice() else { panic!("{policy} {recorded:?}") };
        assert_eq!((parent.merged_events().count(), child.parent_pid()), (1, parent.pid()));
        assert_eq!(calls(child).get("middle/leaf"), Some(&2000), "{policy}");
        assert_eq!(
            recorded.written.iter().map(|one| one.pid).collect::<Vec<_>>(),
            [parent.pid(), child.pid()]
        );
    }
}

#[test]
fn names_are_added_once_and_only_to_functions_with_events() {
    const SOURCE: &str = "
        __attribute__((noinline)) int early(int x) { __asm__ volatile(\"\"); return x + 1; }
        __attribute__((noinline)) int late(int x) { __asm__ volatile(\"\"); return x + 1; }
        int main(void) { int x = early(0); for (int i = 0; i < 10000; i++) x = late(x); return x & 0; }
    ";
    let Some(built) = build(SOURCE, "wrapped.c", &[PATCHABLE, "-O1"]) else { return };
    let library = built.folder.path().join("library.so");
    std::fs::write(&library, RECORDING_LIBRARY_IMAGE).unwrap();
    let file = built.folder.path().join("a.trace");
    let mut command = program(&built);
    command
        .env("LD_PRELOAD", &library)
        .env("HANDOVER_TRACE", "*")
        .env("HANDOVER_TRACE_FILE", &file);
    let status =
        command.env("HANDOVER_TRACE_RING", "8192").env("HANDOVER_TRACE_POLICY", "last").status();
    assert!(status.unwrap().success());
    let hints = || remedy_lines(&Traces::open([&file]).unwrap());
    assert!(hints()[0].contains("functions without names"), "{:?}", hints());

    // Another program has taken the place of the one that was recorded.
    let mut notes = Vec::new();
    let kept = built.path.with_extension("kept");
    std::fs::rename(&built.path, &kept).unwrap();
    std::fs::copy("/proc/self/exe", &built.path).unwrap();
    assert_eq!(add_function_names(&file, &mut notes).unwrap(), 0);
    assert!(notes[0].contains("the file has changed"), "{notes:?}");

    std::fs::remove_file(&built.path).unwrap();
    notes.clear();
    assert_eq!(add_function_names(&file, &mut notes).unwrap(), 0);
    assert!(notes[0].contains("the file cannot be read: No such file"), "{notes:?}");

    std::fs::rename(&kept, &built.path).unwrap();
    assert_eq!(add_function_names(&file, &mut Vec::new()).unwrap(), 2);
    assert_eq!(hints(), Vec::<String>::new());
    assert_eq!(add_function_names(&file, &mut Vec::new()).unwrap(), 0);
}

/// C program whose second thread makes calls after the file size limit was set to zero.
const LIMITED: &str = "
    #include <pthread.h>
    #include <signal.h>
    #include <sys/resource.h>
    __attribute__((noinline)) int work(int x) { __asm__ volatile(\"\"); return x + 1; }
    static void *thread(void *unused) { for (int i = 0; i < 1000; i++) work(i); return unused; }
    __attribute__((no_instrument_function, always_inline)) static inline void limit(void) {
        struct rlimit none = { 0, 0 };
        setrlimit(RLIMIT_FSIZE, &none);
    }
    int main(int count, char **words) {
        (void)words;
        pthread_t other;
        signal(SIGXFSZ, SIG_IGN);
        limit();
        if (pthread_create(&other, 0, thread, 0)) return 1;
        pthread_join(other, 0);
        return count - 1;
    }
";

#[test]
fn calls_without_room_lose_both_ends() {
    for flag in [HOOKS, PATCHABLE] {
        let Some(built) = build(LIMITED, "limited.c", &[flag, "-O1", "-pthread"]) else { return };
        let options = options(&built);
        let recorded = run(&built, &options);
        assert_eq!(recorded.exit_code(), 0);
        let trace = Trace::open(&options.file).unwrap();
        assert_eq!(trace.merged_events().count(), 2, "{flag}");
        // The calls of work(), and the one of thread().
        assert_eq!(trace.missing_events().lost, 2 * 1001, "{flag}");
    }
}

/// C program that truncates its own trace and goes on. Its SIGBUS handler, installed before the
/// library's, still gets faults in the program's own files; with an argument it installs none, and
/// such a fault ends it.
const CUT_SHORT: &str = "
    #include <pthread.h>
    #include <setjmp.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>
    #define UNTRACED __attribute__((no_instrument_function, patchable_function_entry(0)))
    __attribute__((noinline)) int work(int x) { __asm__ volatile(\"\"); return x + 1; }
    static sigjmp_buf place;
    UNTRACED static void handler(int signal) { siglongjmp(place, signal); }
    UNTRACED static __attribute__((constructor)) void before(int count, char **words) {
        (void)words;
        if (count == 1) signal(SIGBUS, handler);
    }
    UNTRACED static int cut(void) {
        static char line[8192];
        int count = 0;
        FILE *maps = fopen(\"/proc/self/maps\", \"r\");
        while (maps && fgets(line, sizeof line, maps)) {
            char *path = strchr(line, '/');
            if (!path || !strstr(line, \"rw-s\")) continue;
            path[strcspn(path, \"\\n\")] = 0;
            count += !truncate(path, 0);
        }
        return count;
    }
    UNTRACED static void fault(void) {
        FILE *file = tmpfile();
        char *memory = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
        *(volatile char *)memory = 1;
    }
    static void *thread(void *unused) { for (int i = 0; i < 100000; i++) work(i); return unused; }
    int main(void) {
        pthread_t other;
        for (int i = 0; i < 1000; i++) work(i);
        if (cut() < 2) return 2;
        thread(0);
        if (pthread_create(&other, 0, thread, 0) || pthread_join(other, 0)) return 3;
        if (sigsetjmp(place, 1) == SIGBUS) return 0;
        fault();
        return 4;
    }
";

#[test]
fn program_continues_when_its_trace_is_truncated() {
    for flag in [HOOKS, PATCHABLE] {
        for policy in [Policy::Last, Policy::Stream] {
            let Some(built) = build(CUT_SHORT, "cut.c", &[flag, "-O1", "-pthread"]) else { return };
            let options = options(&built).policy(policy);
            let recorded = run(&built, &options);
            assert_eq!(recorded.exit_code(), 0, "{flag} {policy} {recorded:?}");
            assert!(has_note(&recorded, "truncated"), "{flag} {policy} {recorded:?}");
            let words = [OsString::from(&built.path), "fault".into()];
            let recorded = record(&options, &words, &|| None).unwrap();
            assert_eq!(recorded.exit_code(), 128 + 7, "{flag} {policy} {recorded:?}"); // SIGBUS
        }
    }
}

#[test]
fn failed_file_creation_is_reported_rather_than_nothing_to_record() {
    let Some(built) = build(CALLS, "calls.c", &[HOOKS, "-O1"]) else { return };
    for policy in [Policy::Stream, Policy::Last] {
        let options = options(&built).policy(policy);
        let mut words: Vec<OsString> = ["sh", "-c", "ulimit -f 0; trap '' XFSZ; exec \"$0\""]
            .map(OsString::from)
            .into_iter()
            .collect();
        words.push(OsString::from(&built.path));
        let recorded = record(&options.force(true), &words, &|| None).unwrap();
        assert_eq!(recorded.exit_code(), 0);
        assert!(recorded.written.is_empty());
        assert!(!has_note(&recorded, "no selected function"), "{recorded:?}");
        assert!(has_note(&recorded, "File too large"), "{recorded:?}");
    }
}

#[test]
fn files_of_a_killed_recorder_are_removed_by_the_next() {
    let Some(built) = build(CALLS, "calls.c", &[HOOKS, "-O1"]) else { return };
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let recorder_text = |pid: u32| format!("1\n{pid}\n");
    let left = |pid: u32| {
        let folder = tempfile::Builder::new().prefix("handover-trace.").tempdir().unwrap();
        std::fs::write(folder.path().join("settings"), "").unwrap();
        std::fs::write(folder.path().join("recorder"), recorder_text(pid)).unwrap();
        folder
    };
    // Left behind by a program that has ended, by one that lives, and held by a living recorder.
    let places = [left(ended.id()), left(std::process::id()), left(std::process::id())];
    // Locked before it names the program that has ended: a recorder of another test would remove
    // it.
    let recorder = places[2].path().join("recorder");
    let held = std::fs::File::open(&recorder).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    std::fs::write(&recorder, recorder_text(ended.id())).unwrap();
    run(&built, &options(&built));
    assert_eq!(places.each_ref().map(|place| place.path().exists()), [false, true, true]);
}
