//! Examples of the fiber API: one test for each promise of the documentation.

use handover_fiber::{
    Barrier, Builder, Condition, Config, ConfigError, Eventual, FiberPanic, Mutex, PoolConfig,
    Runtime, SpawnError, Stealing, channel, current_id, current_worker, is_fiber, sleep, spawn,
    spawn_detached, spawn_local, yield_now,
};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[test]
fn join_returns_the_result_of_the_fiber() -> TestResult {
    let runtime = Runtime::new(Config::default())?;
    let text = String::from("moved in");
    assert_eq!(runtime.spawn(move || text + " and out")?.join()?, "moved in and out");
    let large = [7u64; 400];
    assert_eq!(runtime.spawn(move || large)?.join()?, large);
    Ok(())
}

#[test]
fn fibers_can_join_running_and_ended_fibers() -> TestResult {
    let runtime = Runtime::new(Config::workers(2))?;
    let sum = runtime.spawn(|| {
        let early: Vec<_> = (0..100u32).map(|i| spawn(move || i).unwrap()).collect();
        let goes_on = Arc::new(Eventual::new());
        let waits = Arc::clone(&goes_on);
        let late = spawn(move || *waits.wait()).unwrap();
        yield_now();
        let sum: u32 = early.into_iter().map(|one| one.join().unwrap()).sum();
        assert!(!late.is_finished());
        goes_on.set(()).unwrap();
        late.join().unwrap();
        sum
    })?;
    assert_eq!(sum.join()?, 4950);
    Ok(())
}

#[test]
fn panic_is_returned_by_join_and_worker_continues() -> TestResult {
    let runtime = Runtime::new(Config::default())?;
    let fails = runtime.spawn(|| -> u32 { panic!("with number {}", 7) })?;
    let panicked: FiberPanic = fails.join().unwrap_err();
    assert_eq!(panicked.message(), Some("with number 7"));
    assert_eq!(panicked.to_string(), "the fiber panicked: with number 7");
    runtime.spawn_detached(|| panic!("detached"))?;
    assert_eq!(runtime.spawn(|| 1)?.join()?, 1);
    assert_eq!(runtime.stats().panicked_count, 2);
    Ok(())
}

#[test]
fn owned_values_are_dropped_once_however_the_fiber_ends() -> TestResult {
    static DROPS: AtomicU32 = AtomicU32::new(0);
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPS.fetch_add(1, SeqCst);
        }
    }
    let runtime = Runtime::new(Config::default())?;
    drop(runtime.spawn(|| Counted)?.join()?);
    runtime.spawn_detached(|| Counted)?;
    drop(runtime.spawn(|| Counted)?); // before or after the fiber ends
    let late = runtime.spawn(|| Counted)?;
    while !late.is_finished() {
        std::thread::yield_now();
    }
    drop(late);
    let kept = Counted;
    let fails = runtime.spawn(move || {
        let _kept = kept;
        panic!("dropped while unwinding");
    })?;
    fails.join().unwrap_err();
    runtime.shutdown();
    assert_eq!(DROPS.load(SeqCst), 5);
    Ok(())
}

#[test]
fn stack_is_reused_although_the_drop_of_the_result_panics() -> TestResult {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in the drop of a result");
        }
    }
    const ROUNDS: u64 = 200;
    // A stack size that no other test uses, since runtimes share the stacks of one size.
    let runtime = Runtime::new(Config::default().stack_bytes(44 << 10))?;
    runtime
        .spawn(|| {
            for _ in 0..ROUNDS {
                drop(handover_fiber::spawn(|| Bomb).unwrap());
                yield_now(); // the fiber ends
                yield_now(); // its result is dropped
            }
        })?
        .join()?;
    let stats = runtime.stats();
    assert_eq!(stats.panicked_count, ROUNDS, "one for each fiber that dropped a result");
    assert!(stats.stacks_count < ROUNDS as usize, "{} stacks", stats.stacks_count);
    Ok(())
}

#[test]
fn sleep_lasts_for_its_duration_while_other_fibers_run() -> TestResult {
    let runtime = Runtime::new(Config::default())?;
    let begin = Instant::now();
    // One after the other, they would sleep for 25 s.
    let sleeps: Vec<_> = (0..1000u64)
        .map(|i| {
            runtime.spawn(move || {
                let begin = Instant::now();
                let asked = Duration::from_micros(20_000 + 10 * i);
                sleep(asked);
                assert!(begin.elapsed() >= asked - Duration::from_micros(20), "clocks differ");
            })
        })
        .collect::<Result<_, _>>()?;
    for one in sleeps {
        one.join()?;
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "all slept at the same time");
    Ok(())
}

#[test]
fn eventual_is_set_once_and_all_waiters_see_the_value() -> TestResult {
    static VALUE: Eventual<String> = Eventual::new();
    let runtime = Runtime::new(Config::workers(2))?;
    assert_eq!(VALUE.test(), None);
    let waits: Vec<_> =
        (0..10).map(|_| runtime.spawn(|| VALUE.wait().len())).collect::<Result<_, _>>()?;
    let thread = std::thread::spawn(|| VALUE.wait().clone());
    std::thread::sleep(Duration::from_millis(5));
    runtime.spawn(|| VALUE.set("five!".into()).unwrap())?.join()?;
    for one in waits {
        assert_eq!(one.join()?, 5);
    }
    assert_eq!(thread.join().unwrap(), "five!");
    let refused = VALUE.set("again".into()).unwrap_err();
    assert_eq!(refused.0, "again");
    assert_eq!(VALUE.test().map(String::as_str), Some("five!"));
    Ok(())
}

#[test]
fn eventual_can_be_reset_or_rearmed() -> TestResult {
    let mut local = Eventual::new();
    local.set(3)?;
    assert_eq!((*local.wait(), local.reset(), local.test()), (3, Some(3), None));
    local.set(4)?;
    assert_eq!(local.into_inner(), Some(4));

    let runtime = Runtime::new(Config::default())?;
    let shared = Arc::new(Eventual::new());
    for _ in 0..3 {
        let sets = Arc::clone(&shared);
        runtime.spawn_detached(move || sets.set(()).unwrap())?;
        shared.wait();
        assert!(shared.rearm());
        assert!(!shared.rearm());
    }
    let mut unit = Eventual::<()>::new();
    unit.set(())?;
    assert!(unit.set(()).is_err());
    assert_eq!(unit.reset(), Some(()));
    Ok(())
}

#[test]
fn woken_waiter_returns_although_the_eventual_is_rearmed_at_once() -> TestResult {
    const LONG_TIMEOUT: Duration = Duration::from_secs(10);
    let runtime = Runtime::new(Config::default())?;
    let waiter_goes_on = |wait: fn(&Eventual) -> bool| {
        runtime.spawn(move || {
            let event = Arc::new(Eventual::new());
            let waits = Arc::clone(&event);
            let waiter = spawn(move || wait(&waits)).unwrap();
            yield_now(); // the other fiber waits now
            event.set(()).unwrap();
            assert!(event.rearm());
            let outcome = waiter.join_timeout(LONG_TIMEOUT);
            let _ = event.set(());
            matches!(outcome, Ok(Ok(true)))
        })
    };
    let waits_for_ever = waiter_goes_on(|event| {
        event.wait();
        true
    })?;
    assert!(waits_for_ever.join()?);
    let waits_until_a_time =
        waiter_goes_on(|event| event.wait_timeout(LONG_TIMEOUT / 2).is_some())?;
    assert!(waits_until_a_time.join()?);
    runtime.shutdown();
    Ok(())
}

#[test]
fn mutex_held_across_suspensions_excludes_others() -> TestResult {
    for workers in [1, 2] {
        let runtime = Runtime::new(Config::workers(workers))?;
        let count = Arc::new(Mutex::new(0u32));
        let fibers: Vec<_> = (0..50)
            .map(|i| {
                let count = Arc::clone(&count);
                runtime.spawn(move || {
                    for _ in 0..20 {
                        let mut count = count.lock();
                        let before = *count;
                        if i % 2 == 0 {
                            yield_now();
                        }
                        *count = before + 1;
                    }
                })
            })
            .collect::<Result<_, _>>()?;
        let held = count.lock(); // locked by an ordinary thread
        assert!(count.try_lock().is_none());
        drop(held);
        for one in fibers {
            one.join()?;
        }
        assert_eq!(*count.lock(), 1000);
    }
    Ok(())
}

#[test]
fn condition_wait_releases_and_locks_the_mutex() -> TestResult {
    let runtime = Runtime::new(Config::workers(2))?;
    let shared = Arc::new((Mutex::new(0u32), Condition::new()));
    let waits: Vec<_> = (0..10u32)
        .map(|i| {
            let shared = Arc::clone(&shared);
            runtime.spawn(move || {
                let (turn, changed) = &*shared;
                let mut turn = turn.lock();
                while *turn != i {
                    turn = changed.wait(turn);
                }
                *turn += 1;
                changed.notify_all();
            })
        })
        .collect::<Result<_, _>>()?;
    for one in waits {
        one.join()?;
    }
    assert_eq!(*shared.0.lock(), 10);
    assert!(!shared.1.notify_one(), "no waiter is left");
    Ok(())
}

#[test]
fn barrier_releases_after_all_arrive_and_is_reusable() -> TestResult {
    let runtime = Runtime::new(Config::workers(2))?;
    let (participants, rounds) = (7, 50);
    let barrier = Arc::new(Barrier::new(participants));
    let arrived = Arc::new(AtomicU32::new(0));
    let fibers: Vec<_> = (0..participants)
        .map(|_| {
            let (barrier, arrived) = (Arc::clone(&barrier), Arc::clone(&arrived));
            runtime.spawn(move || {
                let mut last_count = 0;
                for round in 1..=rounds {
                    arrived.fetch_add(1, SeqCst);
                    last_count += u32::from(barrier.wait());
                    assert!(arrived.load(SeqCst) >= round * participants as u32);
                }
                last_count
            })
        })
        .collect::<Result<_, _>>()?;
    let mut last_count = 0;
    for one in fibers {
        last_count += one.join()?;
    }
    assert_eq!(last_count, rounds, "exactly one fiber per round arrives last");
    Ok(())
}

#[test]
fn channel_keeps_order_blocks_when_full_and_reports_disconnection() -> TestResult {
    let runtime = Runtime::new(Config::workers(2))?;
    let (sender, receiver) = channel(2);
    sender.try_send(0)?;
    sender.try_send(1)?;
    assert!(sender.try_send(2).is_err());
    let sends = runtime.spawn(move || (2..1000).try_for_each(|i| sender.send(i)).is_ok())?;
    let receives = runtime.spawn(move || {
        for i in 0..1000 {
            assert_eq!(receiver.recv(), Ok(i));
        }
        receiver.recv().is_err()
    })?;
    assert!(sends.join()?);
    assert!(receives.join()?);

    let (sender, receiver) = channel::<u32>(1);
    drop(receiver);
    assert_eq!(sender.send(5).unwrap_err().0, 5);
    Ok(())
}

#[test]
fn channel_with_several_senders_and_receivers_loses_no_value() -> TestResult {
    let runtime = Runtime::new(Config::workers(2))?;
    let (sender, receiver) = channel(3);
    for _ in 0..4 {
        let sender = sender.clone();
        runtime.spawn_detached(move || (1..=500u64).for_each(|i| sender.send(i).unwrap()))?;
    }
    drop(sender);
    let sums: Vec<_> = (0..3)
        .map(|_| {
            let receiver = receiver.clone();
            runtime.spawn(move || std::iter::from_fn(|| receiver.recv().ok()).sum::<u64>())
        })
        .collect::<Result<_, _>>()?;
    let mut sum = 0;
    for one in sums {
        sum += one.join()?;
    }
    assert_eq!(sum, 4 * 500 * 501 / 2);
    Ok(())
}

#[test]
fn more_urgent_pool_runs_first_and_less_urgent_pool_does_not_starve() -> TestResult {
    const EACH: usize = 8;
    let pools = vec![PoolConfig::new("low", 7), PoolConfig::new("high", 0)];
    let runtime = Runtime::new(Config::default().pools(pools))?;
    let (low, high) = (runtime.pool("low").unwrap(), runtime.pool("high").unwrap());
    assert_eq!(runtime.pool("none"), None);
    let handle = runtime.handle();
    let order = runtime.spawn(move || {
        let order = Arc::new(Mutex::new(Vec::new()));
        let all: Vec<_> = [(low, 'l'), (high, 'h')]
            .into_iter()
            .cycle()
            .take(2 * EACH)
            .map(|(pool, letter)| {
                let order = Arc::clone(&order);
                Builder::new().pool(pool).spawn_on(&handle, move || order.lock().push(letter))
            })
            .collect::<Result<_, _>>()
            .unwrap();
        all.into_iter().for_each(|one| one.join().unwrap());
        order.lock().iter().collect::<String>()
    })?;
    // A worker that polls takes a less urgent fiber every fourth time: at most thrice in these.
    let order = order.join()?;
    let urgent_count = order[..EACH].chars().filter(|letter| *letter == 'h').count();
    assert!(urgent_count >= EACH - 3, "{order}");

    let is_done = Arc::new(AtomicBool::new(false));
    let sets = Arc::clone(&is_done);
    Builder::new()
        .pool(low)
        .spawn_detached_on(&runtime.handle(), move || sets.store(true, SeqCst))?;
    let busy = Builder::new().pool(high).spawn_on(&runtime.handle(), move || {
        while !is_done.load(SeqCst) {
            yield_now(); // always ready, and more urgent
        }
    })?;
    busy.join()?;
    Ok(())
}

#[test]
fn yielding_fibers_run_in_turn() -> TestResult {
    let runtime = Runtime::new(Config::default())?;
    let turns = runtime.spawn(|| {
        let turns = Arc::new(Mutex::new(Vec::new()));
        let fibers: Vec<_> = (0..3u32)
            .map(|number| {
                let turns = Arc::clone(&turns);
                spawn(move || {
                    for round in 0..500u32 {
                        turns.lock().push((round, number));
                        yield_now();
                    }
                })
            })
            .collect::<Result<_, _>>()
            .unwrap();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        turns.lock().clone()
    })?;
    let turns = turns.join()?;
    assert_eq!(turns.len(), 1500);
    assert!(turns.is_sorted(), "{turns:?}");
    Ok(())
}

#[test]
fn fiber_that_yields_alone_lets_timers_and_other_threads_wake_fibers() -> TestResult {
    let runtime = Runtime::new(Config::default())?;
    let [by_timer, by_thread] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (timer_sets, thread_sets) = (Arc::clone(&by_timer), Arc::clone(&by_thread));
    let yields = runtime.spawn(move || {
        spawn_detached(move || {
            sleep(Duration::from_millis(1));
            timer_sets.store(true, SeqCst);
        })
        .unwrap();
        while !by_timer.load(SeqCst) || !by_thread.load(SeqCst) {
            yield_now();
        }
    })?;
    runtime.spawn_detached(move || thread_sets.store(true, SeqCst))?;
    yields.join()?;
    Ok(())
}

#[test]
fn every_priority_makes_progress_under_load() -> TestResult {
    let priorities = [0, 2, 4, 7];
    let pools = priorities.map(|it| PoolConfig::new(format!("priority {it}"), it)).to_vec();
    let runtime = Runtime::new(Config::default().pools(pools))?;
    const RUNS_WANTED: u32 = 3;
    const MOST_URGENT_RUNS_MAX: u32 = 1_000_000;
    let runs: Arc<[AtomicU32; 4]> = Arc::default();
    let mut fibers = Vec::new();
    for (at, priority) in priorities.into_iter().enumerate() {
        let pool = runtime.pool(&format!("priority {priority}")).expect("it is configured");
        let runs = Arc::clone(&runs);
        let stays_ready = move || {
            while runs.iter().any(|it| it.load(SeqCst) < RUNS_WANTED)
                && runs[0].load(SeqCst) < MOST_URGENT_RUNS_MAX
            {
                runs[at].fetch_add(1, SeqCst);
                yield_now();
            }
        };
        fibers.push(Builder::new().pool(pool).spawn_on(&runtime.handle(), stays_ready)?);
    }
    for fiber in fibers {
        fiber.join()?;
    }
    let runs = runs.each_ref().map(|it| it.load(SeqCst));
    assert!(runs.iter().all(|&count| count >= RUNS_WANTED), "{runs:?}");
    Ok(())
}

#[test]
fn spawn_on_worker_or_pool_out_of_range_names_the_value() -> TestResult {
    let pools = vec![PoolConfig::new("first", 4), PoolConfig::new("second", 4)];
    let with_two_pools = Runtime::new(Config::default().pools(pools))?;
    let second = with_two_pools.pool("second").expect("it is configured");
    let runtime = Runtime::new(Config::workers(2))?;
    let no_worker = "worker 2 does not exist: the runtime has 2 workers, numbered from 0";
    let no_pool = "pool 1 does not exist: the runtime has 1 pools, numbered from 0; use a pool of this runtime";

    let handle = runtime.handle();
    let (bad_worker, bad_pool) = (Builder::new().worker(2), Builder::new().pool(second));
    let error = bad_worker.spawn_on(&handle, || ()).map(drop).unwrap_err();
    assert_eq!(error.to_string(), no_worker);
    let error = bad_pool.spawn_detached_on(&handle, || ()).unwrap_err();
    assert_eq!(error.to_string(), no_pool);
    let in_fiber = runtime.spawn(move || {
        let worker = bad_worker.spawn_detached(|| ()).unwrap_err();
        let pool = bad_pool.spawn(|| ()).map(drop).unwrap_err();
        (worker.to_string(), pool.to_string())
    })?;
    assert_eq!(in_fiber.join()?, (no_worker.to_owned(), no_pool.to_owned()));
    assert_eq!(Builder::new().worker(1).spawn_on(&handle, current_worker)?.join()?, Some(1));
    while runtime.stats().alive_count > 0 {
        std::thread::yield_now();
    }
    assert_eq!(runtime.stats().spawned_count, 2, "a refused spawn is not counted");
    Ok(())
}

#[test]
fn pool_is_served_only_by_its_workers() -> TestResult {
    let pinned = PoolConfig::new("second", 4).workers(vec![1]);
    let pools = vec![PoolConfig::new("all", 4), pinned];
    let runtime = Runtime::new(Config::workers(2).pools(pools))?;
    let second = runtime.pool("second").unwrap();
    for _ in 0..4 {
        let worker =
            Builder::new().pool(second).spawn_on(&runtime.handle(), current_worker)?.join()?;
        assert_eq!(worker, Some(1));
    }
    let first = Builder::new().worker(0).spawn_on(&runtime.handle(), move || {
        let there = Builder::new().pool(second).spawn(current_worker).unwrap();
        (current_worker(), there.join().unwrap())
    })?;
    assert_eq!(first.join()?, (Some(0), Some(1)));
    Ok(())
}

#[test]
fn local_fiber_can_own_non_send_values() -> TestResult {
    let runtime = Runtime::new(Config::workers(2))?;
    let count = runtime.spawn(|| {
        let shared = Rc::new(5);
        let twin = Rc::clone(&shared);
        let five = spawn_local(move || *twin).unwrap().join().unwrap();
        five + Rc::strong_count(&shared)
    })?;
    assert_eq!(count.join()?, 6);
    Ok(())
}

#[test]
fn free_spawn_functions_fail_outside_fibers() -> TestResult {
    assert_eq!(spawn(|| 1).unwrap_err(), SpawnError::NotInFiber);
    assert_eq!(spawn_detached(|| 1).unwrap_err(), SpawnError::NotInFiber);
    assert_eq!((is_fiber(), current_id(), current_worker()), (false, None, None));
    yield_now();
    sleep(Duration::from_nanos(1));
    let runtime = Runtime::new(Config::default())?;
    assert!(runtime.spawn(|| is_fiber() && current_id().is_some())?.join()?);
    Ok(())
}

#[test]
fn closure_that_exceeds_the_stack_is_refused() -> TestResult {
    let runtime = Runtime::new(Config::default().stack_bytes(16 << 10))?;
    let large = [1u8; 10_000];
    let refused = runtime.spawn(move || large.len()).unwrap_err();
    assert!(
        refused.to_string().starts_with("a closure of 10000 bytes and a result of 8 bytes do not"),
        "{refused}"
    );
    Ok(())
}

#[test]
fn shutdown_runs_all_fibers_and_refuses_new_ones() -> TestResult {
    let runtime = Runtime::new(Config::workers(2))?;
    let handle = runtime.handle();
    let count = Arc::new(AtomicU32::new(0));
    for _ in 0..10 {
        let count = Arc::clone(&count);
        runtime.spawn_detached(move || {
            let inner = Arc::clone(&count);
            sleep(Duration::from_millis(2));
            spawn_detached(move || inner.fetch_add(1, SeqCst)).unwrap();
        })?;
    }
    runtime.shutdown();
    assert_eq!(count.load(SeqCst), 10);
    assert_eq!(handle.spawn(|| 1).unwrap_err(), SpawnError::ShuttingDown);
    Ok(())
}

#[test]
fn abandoned_runtime_never_resumes_waiting_fibers() -> TestResult {
    static NEVER: Eventual = Eventual::new();
    let runtime = Runtime::new(Config::default())?;
    let waits = runtime.spawn(|| NEVER.wait())?;
    while runtime.stats().parks_count == 0 {
        std::thread::yield_now();
    }
    runtime.abandon();
    assert!(!waits.is_finished());
    NEVER.set(())?; // wakes a fiber that will never run
    assert!(!waits.is_finished());
    Ok(())
}

#[test]
fn thread_local_variable_outlives_the_fiber_of_an_abandoned_runtime_that_borrows_it() -> TestResult
{
    static NEVER: Eventual = Eventual::new();
    static IS_BORROWED: AtomicBool = AtomicBool::new(false);
    static IS_DROPPED: AtomicBool = AtomicBool::new(false);
    struct Value;
    impl Drop for Value {
        fn drop(&mut self) {
            IS_DROPPED.store(true, SeqCst);
        }
    }
    thread_local!(static VALUE: Value = const { Value });
    let runtime = Runtime::new(Config::default())?;
    runtime.spawn_detached(|| {
        VALUE.with(|_value| {
            IS_BORROWED.store(true, SeqCst);
            NEVER.wait();
        });
    })?;
    while !IS_BORROWED.load(SeqCst) {
        std::thread::yield_now();
    }
    runtime.abandon();
    std::thread::sleep(Duration::from_millis(200)); // the worker stops
    assert!(!IS_DROPPED.load(SeqCst));
    Ok(())
}

#[test]
fn fresh_fibers_are_stolen_from_a_busy_worker() -> TestResult {
    let config = Config::workers(2).stealing(Stealing::UnstartedFibers);
    let runtime = Runtime::new(config)?;
    let workers = Builder::new().worker(0).spawn_on(&runtime.handle(), || {
        let done = Arc::new(AtomicU32::new(0));
        for _ in 0..4 {
            let done = Arc::clone(&done);
            spawn_detached(move || {
                assert_eq!(current_worker(), Some(1), "worker 0 is busy");
                done.fetch_add(1, SeqCst);
            })
            .unwrap();
        }
        while done.load(SeqCst) < 4 {
            std::hint::spin_loop(); // never suspended
        }
    })?;
    workers.join()?;
    assert!(runtime.stats().stolen_count >= 4);
    Ok(())
}

#[test]
fn fresh_fiber_is_not_stolen_across_pools_or_from_a_named_worker() -> TestResult {
    let own = PoolConfig::new("own", 4).workers(vec![0]);
    let pools = vec![PoolConfig::new("all", 4), own];
    let config = Config::workers(2).stealing(Stealing::UnstartedFibers).pools(pools);
    let runtime = Runtime::new(config)?;
    let own = runtime.pool("own").expect("it is configured");
    for builder in [Builder::new().pool(own), Builder::new().worker(0)] {
        let busy = Builder::new().worker(0).spawn_on(&runtime.handle(), move || {
            let fibers: Vec<_> = (0..100).map(|_| builder.spawn(current_worker).unwrap()).collect();
            let until = Instant::now() + Duration::from_millis(20);
            while Instant::now() < until {
                std::hint::spin_loop(); // never suspended, and the other worker is idle
            }
            fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect::<Vec<_>>()
        })?;
        assert_eq!(busy.join()?, [Some(0); 100]);
    }
    assert_eq!(runtime.stats().stolen_count, 0);
    Ok(())
}

#[test]
fn pool_that_names_a_worker_twice_is_served_only_by_it() -> TestResult {
    let twice = PoolConfig::new("twice", 4).workers(vec![1, 1]);
    let pools = vec![PoolConfig::new("all", 4), twice];
    let runtime = Runtime::new(Config::workers(2).pools(pools))?;
    let twice = runtime.pool("twice").expect("it is configured");
    let spawns = Builder::new().worker(0).spawn_on(&runtime.handle(), move || {
        Builder::new().pool(twice).spawn(current_worker).unwrap().join().unwrap()
    })?;
    assert_eq!(spawns.join()?, Some(1));
    Ok(())
}

#[test]
fn invalid_configuration_is_refused_with_its_reason() {
    let refused = |config: Config| config.validate().unwrap_err().to_string();
    assert_eq!(refused(Config::workers(0)), "workers_count=0: must lie in 1..=1024");
    assert_eq!(refused(Config::default().pools(vec![])), "pools=0: must lie in 1..=65536");
    assert_eq!(
        refused(Config::default().pools(vec![PoolConfig::new("a", 8)])),
        "priority=8: must lie in 0..=7"
    );
    let two = vec![PoolConfig::new("a", 1), PoolConfig::new("a", 2)];
    assert_eq!(
        Config::default().pools(two).validate(),
        Err(ConfigError::DuplicatePool("a".into()))
    );
    let far = PoolConfig::new("a", 1).workers(vec![3]);
    assert_eq!(
        refused(Config::default().pools(vec![far])),
        "pool \"a\": worker 3 does not exist: must be below 1"
    );
    assert_eq!(
        refused(Config::workers(2).cpus(vec![0])),
        "1 CPUs for 2 workers: name one CPU for each worker, or none"
    );
    assert!(Runtime::new(Config::default().cpus(vec![100_000])).is_err());
}

#[test]
fn names_and_ids_identify_fibers() -> TestResult {
    let runtime = Runtime::new(Config::default())?;
    let one = Builder::new().name("one").spawn_on(&runtime.handle(), current_id)?;
    let other = runtime.spawn(current_id)?;
    assert_eq!(one.name().as_deref(), Some("one"));
    assert_eq!(other.name(), None);
    assert_ne!(one.id(), other.id());
    let id = one.id();
    assert_eq!(one.join()?, Some(id));
    Ok(())
}

mod sent_and_shared {
    use handover_base::sync::auto_traits;
    use handover_fiber::{
        Barrier, Condition, Eventual, Handle, JoinHandle, Mutex, MutexGuard, Receiver, Runtime,
        Sender,
    };
    use std::cell::Cell;
    use std::rc::Rc;

    type Unshared = Cell<u32>; // Send, not Sync
    type Local = Rc<u32>; // neither
    type Lent = std::sync::MutexGuard<'static, u32>; // Sync, not Send

    #[test]
    fn handles_are_send_and_sync_as_their_content_allows() {
        assert_eq!(auto_traits!(Mutex<Unshared>), "Send + Sync");
        assert_eq!(auto_traits!(Mutex<Local>), "neither");
        assert_eq!(auto_traits!(Mutex<Lent>), "neither");
        assert_eq!(auto_traits!(MutexGuard<'static, u32>), "Send + Sync");
        assert_eq!(auto_traits!(MutexGuard<'static, Unshared>), "Send");
        assert_eq!(auto_traits!(MutexGuard<'static, Local>), "neither");
        assert!(!auto_traits!(MutexGuard<'static, Lent>).contains("Send"));
        assert_eq!(auto_traits!(Eventual<u32>), "Send + Sync");
        assert_eq!(auto_traits!(Eventual<Unshared>), "Send");
        assert_eq!(auto_traits!(Eventual<Local>), "neither");
        assert_eq!(auto_traits!(Eventual<Lent>), "neither");
        assert_eq!(auto_traits!(Sender<Unshared>), "Send + Sync");
        assert_eq!(auto_traits!(Sender<Local>), "neither");
        assert_eq!(auto_traits!(Sender<Lent>), "neither");
        assert_eq!(auto_traits!(Receiver<Unshared>), "Send + Sync");
        assert_eq!(auto_traits!(Receiver<Local>), "neither");
        assert_eq!(auto_traits!(Receiver<Lent>), "neither");
        assert_eq!(auto_traits!(JoinHandle<Unshared>), "Send + Sync");
        assert_eq!(auto_traits!(JoinHandle<Local>), "neither");
        assert_eq!(auto_traits!(JoinHandle<Lent>), "neither");
        assert_eq!(auto_traits!(Runtime), "Send + Sync");
        assert_eq!(auto_traits!(Handle), "Send + Sync");
        assert_eq!(auto_traits!(Barrier), "Send + Sync");
        assert_eq!(auto_traits!(Condition), "Send + Sync");
    }
}
