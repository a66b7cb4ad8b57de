//! Guarantees: overflow is reported, idle workers use no CPU, memory is bounded, and a migrated
//! fiber is woken on its new worker.

#[path = "../raw/deny.rs"]
mod deny;
#[path = "../raw/descriptors.rs"]
mod descriptors;
#[cfg(not(any(handover_sanitizer = "address", handover_sanitizer = "thread")))]
#[path = "../raw/fault.rs"]
mod fault;

use handover_fiber::{
    Builder, Config, Eventual, Pool, PoolConfig, Runtime, Stealing, readable, sleep,
    spawn_detached, yield_now,
};
use std::hint::black_box;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Runs one of these tests in a child process, and passes `what` to it in the environment.
fn child(test: &str, what: &str) -> std::io::Result<Output> {
    Command::new(std::env::current_exe()?)
        .args(["--exact", &format!("contract::{test}"), "--nocapture", "--test-threads=1"])
        .env("HANDOVER_FIBER_CHILD", what)
        // glibc overwrites freed memory, so that an access to it is noticed.
        .env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0:glibc.malloc.perturb=165")
        .env("RUST_BACKTRACE", "0")
        .output()
}

/// Asserts that a child ran its one test, and that the test passed.
fn assert_passed(output: &Output) {
    let printed = String::from_utf8_lossy(&output.stdout);
    let is_passed = output.status.success() && printed.contains("1 passed");
    assert!(is_passed, "{printed}{}", String::from_utf8_lossy(&output.stderr));
}

fn child_argument() -> Option<String> {
    std::env::var("HANDOVER_FIBER_CHILD").ok()
}

#[allow(unconditional_recursion)]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    recurse(depth + 1) + frame[(depth % 64) as usize]
}

#[test]
fn stack_overflow_aborts_with_the_name_of_the_fiber() -> TestResult {
    if child_argument().is_some() {
        let runtime = Runtime::new(Config::default())?;
        let fiber = Builder::new().name("digger").spawn_on(&runtime.handle(), || recurse(0))?;
        fiber.join()?;
        return Ok(());
    }
    let test = "stack_overflow_aborts_with_the_name_of_the_fiber";
    let output = child(test, "overflow")?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("fiber 'digger' (number "), "{text}");
    let stack_bytes = Config::default().stack_bytes;
    assert!(text.contains(&format!("has overflowed its stack of {stack_bytes} bytes")), "{text}");
    Ok(())
}

#[test]
fn other_faults_are_forwarded_to_the_previous_handler() -> TestResult {
    if child_argument().is_some() {
        let runtime = Runtime::new(Config::default())?;
        let thread = std::thread::Builder::new().name("deep".into());
        let overflows = thread.spawn(|| recurse(0))?; // the thread's own stack: std reports it
        drop(overflows.join());
        drop(runtime);
        return Ok(());
    }
    let output = child("other_faults_are_forwarded_to_the_previous_handler", "thread")?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("thread 'deep'") && text.contains("overflowed its stack"), "{text}");
    Ok(())
}

// Sanitizers install their own handlers, and enlarge the frames.
#[cfg(not(any(handover_sanitizer = "address", handover_sanitizer = "thread")))]
mod faults {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    /// Returns the signal that ended the process, and its standard error.
    fn signal_and_text(output: &Output) -> (Option<i32>, String) {
        (output.status.signal(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    const PAGE_BYTES: usize = 4096;

    /// Returns the end of a page that is at most two pages below the top of the calling fiber's
    /// stack; the guards below and above the stack have four pages each.
    fn near_the_top_of_this_stack() -> usize {
        fault::address_in_frame().next_multiple_of(PAGE_BYTES)
    }

    #[test]
    fn sigsegv_sent_to_a_worker_ends_the_process_at_once() -> TestResult {
        if child_argument().is_some() {
            let runtime = Runtime::new(Config::default())?;
            runtime.spawn(fault::send_sigsegv_to_this_thread)?.join()?;
            return Ok(());
        }
        let output = child("faults::sigsegv_sent_to_a_worker_ends_the_process_at_once", "kill")?;
        let (signal, text) = signal_and_text(&output);
        assert_eq!(signal, Some(libc::SIGSEGV), "{text}");
        Ok(())
    }

    #[test]
    fn sigsegv_sent_to_a_worker_while_ignored_stays_ignored() -> TestResult {
        if child_argument().is_none() {
            let test = "faults::sigsegv_sent_to_a_worker_while_ignored_stays_ignored";
            assert_passed(&child(test, "ignored")?);
            return Ok(());
        }
        fault::ignore_sigsegv();
        let runtime = Runtime::new(Config::default())?;
        for _ in 0..2 {
            runtime.spawn(fault::send_sigsegv_to_this_thread)?.join()?;
        }
        Ok(())
    }

    #[test]
    fn stray_write_into_the_guard_of_a_trimmed_stack_is_not_reported_as_an_overflow() -> TestResult
    {
        if child_argument().is_some() {
            let config = Config::default().stack_bytes(24 << 10);
            let runtime = Runtime::new(config.clone())?;
            let limit = runtime.spawn(near_the_top_of_this_stack)?.join()? - config.stack_bytes;
            runtime.shutdown();
            assert!(Runtime::new(config)?.trim() >= 1);
            fault::write_to(limit - 8);
            return Ok(());
        }
        let test =
            "faults::stray_write_into_the_guard_of_a_trimmed_stack_is_not_reported_as_an_overflow";
        let (signal, text) = signal_and_text(&child(test, "stray write")?);
        assert_eq!(signal, Some(libc::SIGSEGV), "{text}");
        assert!(!text.contains("has overflowed"), "{text}");
        Ok(())
    }

    #[test]
    fn write_above_the_own_stack_is_not_reported_as_an_overflow_of_the_next_stack() -> TestResult {
        if child_argument().is_some() {
            let runtime = Runtime::new(Config::default().stack_bytes(28 << 10))?;
            let writes = runtime.spawn(|| {
                spawn_detached(|| ()).unwrap(); // takes the next stack, so that its guard exists
                fault::write_to(near_the_top_of_this_stack() + 2 * PAGE_BYTES + 8);
            })?;
            writes.join()?;
            return Ok(());
        }
        let test =
            "faults::write_above_the_own_stack_is_not_reported_as_an_overflow_of_the_next_stack";
        let (signal, text) = signal_and_text(&child(test, "write above")?);
        assert_eq!(signal, Some(libc::SIGSEGV), "{text}");
        assert!(!text.contains("has overflowed"), "{text}");
        Ok(())
    }
}

/// Returns the number of voluntary context switches of all worker threads of this process.
fn worker_wake_ups() -> std::io::Result<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let folder = task?.path();
        if !std::fs::read_to_string(folder.join("comm"))?.starts_with("fiber-") {
            continue;
        }
        let status = std::fs::read_to_string(folder.join("status"))?;
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
        sum +=
            line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

#[test]
fn idle_runtime_wakes_less_than_five_times_a_second() -> TestResult {
    if child_argument().is_none() {
        let output = child("idle_runtime_wakes_less_than_five_times_a_second", "idle")?;
        assert_passed(&output);
        return Ok(());
    }
    static NEVER: Eventual = Eventual::new();
    let runtime = Runtime::new(Config::workers(2))?;
    for _ in 0..10 {
        runtime.spawn_detached(|| NEVER.wait())?;
        runtime.spawn_detached(|| sleep(Duration::from_secs(3600)))?;
    }
    // Workers poll for a while before they sleep, longer on a busy machine; afterwards they stay
    // asleep.
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let before = worker_wake_ups()?;
        std::thread::sleep(Duration::from_secs(1));
        let woken = worker_wake_ups()? - before;
        if woken < 5 {
            break;
        }
        assert!(Instant::now() < until, "{woken} times in a second, with nothing to do");
    }
    runtime.abandon();
    Ok(())
}

#[test]
fn shutdown_ends_although_threads_spawn_meanwhile() -> TestResult {
    const RUNTIMES: u32 = if cfg!(miri) { 2 } else { 500 };
    for _ in 0..RUNTIMES {
        let runtime = Runtime::new(Config::default())?;
        let handle = runtime.handle();
        let (began, begins) = mpsc::channel();
        let spawner = thread::spawn(move || {
            began.send(()).expect("the other end waits");
            // The refused ones begin while the workers count the fibers.
            let mut refused_count = 0;
            while refused_count < 100 {
                refused_count += u32::from(handle.spawn_detached(|| ()).is_err());
            }
        });
        begins.recv()?;
        runtime.shutdown();
        spawner.join().expect("no panic");
    }
    Ok(())
}

#[test]
fn fiber_of_a_worker_that_panicked_can_be_woken_after_the_shutdown() -> TestResult {
    static NEVER: Eventual = Eventual::new();
    let Some(workers_count) = child_argument() else {
        let test = "fiber_of_a_worker_that_panicked_can_be_woken_after_the_shutdown";
        assert_passed(&child(test, "1")?);
        // The first worker, which the shutdown joins first, does not panic.
        assert_passed(&child(test, "2")?);
        return Ok(());
    };
    let workers_count = workers_count.parse()?;
    let runtime = Runtime::new(Config::workers(workers_count))?;
    let last = || Builder::new().worker(workers_count - 1);
    let (near, _far) = UnixStream::pair()?;
    let spawns = last().spawn_on(&runtime.handle(), move || {
        spawn_detached(|| NEVER.wait()).unwrap();
        spawn_detached(move || drop(readable(&near))).unwrap();
        yield_now(); // both fibers run, and wait
    })?;
    spawns.join()?;
    descriptors::replace_epoll_sets()?;
    // The worker waits for descriptors again, and panics. If it had not gone to sleep, it has
    // panicked already, and the spawn is refused.
    drop(last().spawn_on(&runtime.handle(), || ()));
    assert!(catch_unwind(AssertUnwindSafe(|| runtime.shutdown())).is_err());
    NEVER.set(())?; // wakes a fiber that will never run
    Ok(())
}

/// Returns the CPU time used by that worker, in ticks of 10 ms.
fn worker_ticks(worker: u32) -> std::io::Result<u64> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(task?.path().join("stat"))?;
        let (name, fields) = stat.rsplit_once(')').unwrap_or_default();
        if name.ends_with(&format!("(fiber-{worker}")) {
            // The name is field 2; user and system time are fields 14 and 15.
            let times = fields.split_whitespace().skip(11).take(2);
            return Ok(times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum());
        }
    }
    Ok(0)
}

/// Returns a runtime of `workers_count` workers that steal from each other, and for each of them a
/// pool that only it serves.
fn runtime_with_own_pools(
    workers_count: u32,
) -> Result<(Runtime, Vec<Pool>), Box<dyn std::error::Error>> {
    let own = |worker: u32| PoolConfig::new(worker.to_string(), 4).workers(vec![worker]);
    let mut pools = vec![PoolConfig::new("all", 4)];
    pools.extend((0..workers_count).map(own));
    let config = Config::workers(workers_count).stealing(Stealing::UnstartedFibers).pools(pools);
    let runtime = Runtime::new(config)?;
    let own_pool = |worker: u32| runtime.pool(&worker.to_string()).expect("it is configured");
    let own_pools = (0..workers_count).map(own_pool).collect();
    Ok((runtime, own_pools))
}

/// Makes `count` fibers of `pool` ready.
fn spawn_many(count: u32, pool: Pool) {
    (0..count).for_each(|_| Builder::new().pool(pool).spawn_detached(|| ()).unwrap());
}

#[test]
fn worker_sleeps_if_no_ready_fiber_can_be_stolen() -> TestResult {
    if child_argument().is_none() {
        let output = child("worker_sleeps_if_no_ready_fiber_can_be_stolen", "idle")?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return Ok(());
    }
    let (runtime, own_pools) = runtime_with_own_pools(2)?;
    let busy = Builder::new().worker(0).spawn_on(&runtime.handle(), move || {
        spawn_many(200, own_pools[0]); // more than a worker that steals checks at first
        while worker_ticks(0).unwrap() < 40 {
            (0..100_000).for_each(|_| std::hint::spin_loop());
        }
        worker_ticks(1).unwrap()
    })?;
    let idle_ticks = busy.join()?;
    assert!(idle_ticks < 20, "{idle_ticks} ticks of a CPU, where the other computed for 40");
    Ok(())
}

#[test]
fn worker_checks_the_first_fibers_of_a_long_queue_and_sleeps_in_turn() -> TestResult {
    let (runtime, own_pools) = runtime_with_own_pools(2)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let is_busy_until = Arc::clone(&is_over);
    let (spawned, has_spawned) = mpsc::channel();
    let busy = Builder::new().worker(0).spawn_on(&runtime.handle(), move || {
        // More than a worker checks at a time when it steals, and one that could be stolen.
        spawn_many(3_000, own_pools[0]);
        let is_stolen = Arc::new(AtomicBool::new(false));
        let has_run = Arc::clone(&is_stolen);
        spawn_detached(move || has_run.store(true, SeqCst)).unwrap();
        spawned.send(()).unwrap();
        while !is_busy_until.load(SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        is_stolen.load(SeqCst)
    })?;
    has_spawned.recv()?;
    let parks_min = runtime.stats().parks_count + 20;
    let until = Instant::now() + Duration::from_secs(10);
    while runtime.stats().parks_count < parks_min && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    let has_slept = runtime.stats().parks_count >= parks_min;
    is_over.store(true, SeqCst);
    assert!(!busy.join()?, "stolen from behind 3,000 others");
    assert!(has_slept, "the worker does not sleep, or does not wake to check again");
    Ok(())
}

/// Occupies the worker, as a computation does, until `flag` is set or 10 s have passed. Returns
/// the value of `flag`.
fn occupy_until(flag: &AtomicBool) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while !flag.load(SeqCst) && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    flag.load(SeqCst)
}

#[test]
fn fibers_are_stolen_behind_others_although_another_worker_has_a_longer_queue() -> TestResult {
    let (runtime, own_pools) = runtime_with_own_pools(3)?;
    let (longer_pool, pool) = (own_pools[1], own_pools[2]);
    let is_over = Arc::new(AtomicBool::new(false));
    let is_busy_until = Arc::clone(&is_over);
    let (spawned, has_spawned) = mpsc::channel();
    // Worker 0 checks worker 1 first.
    let longer = Builder::new().worker(1).spawn_on(&runtime.handle(), move || {
        spawn_many(3_000, longer_pool);
        spawned.send(()).unwrap();
        occupy_until(&is_busy_until)
    })?;
    has_spawned.recv()?;
    let spawns = Builder::new().worker(2).spawn_on(&runtime.handle(), move || {
        spawn_many(200, pool);
        let until = Instant::now() + Duration::from_secs(10);
        let is_stolen = |_: &u32| {
            let done = Arc::new(AtomicBool::new(false));
            let sets = Arc::clone(&done);
            spawn_detached(move || sets.store(true, SeqCst)).unwrap();
            occupy_until(&done) && Instant::now() < until
        };
        (0..50).take_while(is_stolen).count()
    })?;
    let stolen_count = spawns.join()?;
    is_over.store(true, SeqCst);
    longer.join()?;
    assert_eq!(stolen_count, 50, "the idle worker has not stolen the others within 10 s");
    Ok(())
}

#[test]
fn fiber_is_stolen_although_the_worker_woken_for_it_has_another_to_run() -> TestResult {
    let runtime = Runtime::new(Config::workers(3).stealing(Stealing::UnstartedFibers))?;
    for _ in 0..10 {
        let (go, done) = (Arc::new(Eventual::<()>::new()), Arc::new(AtomicBool::new(false)));
        let has_run = Arc::clone(&done);
        let occupy_until_done = move || occupy_until(&has_run);
        let (waits, occupies) = (Arc::clone(&go), occupy_until_done.clone());
        let woken = Builder::new().worker(0).spawn_on(&runtime.handle(), move || {
            waits.wait();
            occupies()
        })?;
        thread::sleep(Duration::from_millis(10)); // all workers sleep now, probably
        let spawns = Builder::new().worker(1).spawn_on(&runtime.handle(), move || {
            // Wakes worker 0, which another offer probably finds still idle.
            go.set(()).unwrap();
            spawn_detached(move || done.store(true, SeqCst)).unwrap();
            occupy_until_done()
        })?;
        assert!(spawns.join()? && woken.join()?, "no idle worker has stolen the fiber");
    }
    Ok(())
}

#[test]
fn fiber_is_stolen_although_the_worker_woken_for_it_leaves_it_unchecked() -> TestResult {
    let (runtime, own_pools) = runtime_with_own_pools(3)?;
    let own = own_pools[1];
    for _ in 0..10 {
        let (check, go) = (Arc::new(Eventual::<()>::new()), Arc::new(Eventual::<()>::new()));
        let (checks, waits) = (Arc::clone(&check), Arc::clone(&go));
        let done = Arc::new(AtomicBool::new(false));
        let has_run = Arc::clone(&done);
        let woken = Builder::new().worker(0).spawn_on(&runtime.handle(), move || {
            checks.wait();
            waits.wait();
            occupy_until(&has_run)
        })?;
        thread::sleep(Duration::from_millis(5)); // all workers sleep now, probably
        let spawns = Builder::new().worker(1).spawn_on(&runtime.handle(), move || {
            spawn_many(200, own);
            // Worker 0 finds nothing to steal among the 200 fibers. Until a millisecond later it
            // checks at most the first ones again.
            check.set(()).unwrap();
            thread::sleep(Duration::from_micros(200));
            let sets = Arc::clone(&done);
            // Wakes worker 0, which then has another fiber to run.
            spawn_detached(move || sets.store(true, SeqCst)).unwrap();
            go.set(()).unwrap();
            occupy_until(&done)
        })?;
        assert!(spawns.join()? && woken.join()?, "no idle worker has stolen the fiber");
    }
    Ok(())
}

#[test]
fn fiber_is_stolen_although_the_worker_woken_for_it_steals_one_of_another_pool() -> TestResult {
    let urgent = PoolConfig::new("urgent", 0).workers(vec![0, 1]);
    let pools = vec![PoolConfig::new("all", 4), urgent];
    let config = Config::workers(3).stealing(Stealing::UnstartedFibers).pools(pools);
    let runtime = Runtime::new(config)?;
    let urgent = runtime.pool("urgent").expect("it is configured");
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(10)); // all workers sleep now, probably
        let spawns = Builder::new().worker(1).spawn_on(&runtime.handle(), move || {
            let done = Arc::new(AtomicBool::new(false));
            let (sets, urgently_waits) = (Arc::clone(&done), Arc::clone(&done));
            // Wakes worker 0, which probably steals the urgent fiber. Worker 2 may not.
            spawn_detached(move || sets.store(true, SeqCst)).unwrap();
            let stolen =
                Builder::new().pool(urgent).spawn(move || occupy_until(&urgently_waits)).unwrap();
            occupy_until(&done) && stolen.join().unwrap()
        })?;
        assert!(spawns.join()?, "no idle worker has stolen the fiber");
    }
    Ok(())
}

#[test]
fn spawn_fails_without_stack_memory_and_other_fibers_continue() -> TestResult {
    if child_argument().is_none() {
        let test = "contract::spawn_fails_without_stack_memory_and_other_fibers_continue";
        let output = Command::new("sh")
            .args(["-c", "ulimit -v 2000000; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe()?)
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env("HANDOVER_FIBER_CHILD", "memory")
            // The stacks leave less than 1 MiB of address space: glibc must have the memory for
            // the test's own small allocations before, for all threads.
            .env("GLIBC_TUNABLES", "glibc.malloc.arena_max=1:glibc.malloc.top_pad=33554432")
            .output()?;
        assert_passed(&output);
        return Ok(());
    }
    let go = Arc::new(Eventual::<()>::new());
    let runtime = Runtime::new(Config::default().stack_bytes(1 << 20))?;
    let ended = Arc::new(AtomicU32::new(0));
    let mut spawned_count = 0;
    let refused = loop {
        let (go, ended) = (Arc::clone(&go), Arc::clone(&ended));
        let spawned = runtime.spawn_detached(move || {
            go.wait();
            ended.fetch_add(1, SeqCst);
        });
        match spawned {
            Ok(()) => spawned_count += 1,
            Err(refused) => break refused,
        }
        assert!(spawned_count < 10_000, "2 GB are enough for 2,000");
    };
    assert!(refused.to_string().starts_with("cannot map memory for 1 more stacks"), "{refused}");
    assert!(spawned_count > 100);
    go.set(())?;
    while ended.load(SeqCst) < spawned_count {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(runtime.spawn(|| 5)?.join()?, 5, "there are stacks again");
    Ok(())
}

/// Makes a runtime on a kernel without guard marks; fails if the kernel refuses the filter.
fn without_marks() -> Result<Runtime, Box<dyn std::error::Error>> {
    deny::marked_guards()?;
    let runtime = Runtime::new(Config::default().stack_bytes(20 << 10))?;
    assert_eq!(runtime.spawn(|| 5)?.join()?, 5);
    assert!(runtime.stats().has_mapped_guards);
    Ok(runtime)
}

#[test]
fn stack_overflow_is_reported_with_mapped_guards() -> TestResult {
    if child_argument().is_some() {
        let runtime = without_marks()?;
        Builder::new().name("digger").spawn_on(&runtime.handle(), || recurse(0))?.join()?;
        return Ok(());
    }
    let output = child("stack_overflow_is_reported_with_mapped_guards", "mapped overflow")?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("fiber 'digger' (number "), "{text}");
    assert!(text.contains("has overflowed its stack of 20480 bytes"), "{text}");
    Ok(())
}

#[test]
fn spawn_fails_at_the_mapping_limit_and_other_fibers_continue() -> TestResult {
    if child_argument().is_none() {
        let test = "spawn_fails_at_the_mapping_limit_and_other_fibers_continue";
        let output = child(test, "mapped")?;
        assert_passed(&output);
        return Ok(());
    }
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count")?;
    let maps_max: usize = text.trim().parse()?;
    if maps_max > 200_000 {
        println!("skipped: the bound on mappings: {maps_max} of them take too long here");
        return Ok(());
    }
    let runtime = without_marks()?;
    let go = Arc::new(Eventual::<()>::new());
    let mut spawned_count = 0;
    let refused = loop {
        let go = Arc::clone(&go);
        match runtime.spawn_detached(move || go.wait().to_owned()) {
            Ok(()) => spawned_count += 1,
            Err(refused) => break refused,
        }
        assert!(spawned_count < maps_max);
    };
    assert!(refused.to_string().contains("need two mappings for each"), "{refused}");
    assert!(refused.to_string().contains(&maps_max.to_string()), "{refused}");
    assert!(spawned_count > maps_max / 4, "{spawned_count}");
    go.set(())?;
    while runtime.stats().alive_count > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(runtime.spawn(|| 5)?.join()?, 5, "there are stacks again");
    Ok(())
}

#[test]
fn parked_fibers_take_one_page_and_stacks_are_reused() -> TestResult {
    static GO: Eventual = Eventual::new();
    let runtime = Runtime::new(Config::default().stack_bytes(36 << 10))?;
    let spawns = runtime.spawn(|| {
        for _ in 0..1000 {
            spawn_detached(|| GO.wait()).unwrap();
        }
        yield_now();
    })?;
    spawns.join()?;
    // A fiber is counted as ended after its end was announced.
    while runtime.stats().alive_count > 1000 {
        std::thread::yield_now();
    }
    let stats = runtime.stats();
    assert_eq!((stats.alive_count, stats.stacks_count), (1000, 1001));
    assert!(stats.stack_high_water_bytes >= 4096);
    if cfg!(not(debug_assertions)) {
        let each = stats.stacks_resident_bytes / stats.stacks_count;
        assert!(each <= 4608, "{each} bytes");
    }
    GO.set(())?;
    let again = runtime.spawn(|| {
        for _ in 0..2000 {
            spawn_detached(|| ()).unwrap();
            yield_now();
        }
    })?;
    again.join()?;
    assert_eq!(runtime.stats().stacks_count, 1001);
    runtime.shutdown();
    assert!(Runtime::new(Config::default().stack_bytes(36 << 10))?.trim() >= 1001);
    Ok(())
}

#[test]
fn wakeups_between_workers_and_threads_are_never_lost() -> TestResult {
    let runtime = Runtime::new(Config::workers(2))?;
    let handle = runtime.handle();
    for round in 0..300u32 {
        let asked = Arc::new(Eventual::<u32>::new());
        let answered = Arc::new(Eventual::<u32>::new());
        let (to, from) = (Arc::clone(&asked), Arc::clone(&answered));
        Builder::new().worker(round % 2).spawn_detached_on(&handle, move || {
            from.set(to.wait() + 1).unwrap();
        })?;
        match round % 3 {
            0 => asked.set(round)?,
            1 => runtime.spawn(move || asked.set(round).is_ok()).map(drop)?,
            _ => Builder::new()
                .worker((round + 1) % 2)
                .spawn_detached_on(&handle, move || asked.set(round).unwrap())?,
        }
        assert_eq!(*answered.wait(), round + 1);
    }
    Ok(())
}
