//! Eventuals awaited by tasks, and futures run on fibers and threads.

use handover_base::sync::auto_traits;
use handover_fiber::{
    Config, Eventual, EventualFuture, Runtime, block_on, current_id, sleep, spawn, spawn_detached,
    yield_now,
};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Counts how often its task is woken.
#[derive(Default)]
struct Task(AtomicUsize);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn task() -> (Arc<Task>, Waker) {
    let task = Arc::new(Task::default());
    (Arc::clone(&task), Waker::from(task))
}

fn poll<'a, T>(future: &mut EventualFuture<'a, T>, waker: &Waker) -> Poll<&'a T> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

#[test]
fn future_is_ready_once_the_value_is_set() -> TestResult {
    let answer = Eventual::new();
    let (task, waker) = task();
    let mut early = answer.wait_async();
    assert_eq!(poll(&mut early, &waker), Poll::Pending);
    assert_eq!(poll(&mut early, &waker), Poll::Pending);
    answer.set("set")?;
    assert_eq!(task.0.load(SeqCst), 1, "woken once");
    assert_eq!(poll(&mut early, &waker), Poll::Ready(&"set"));
    assert_eq!(poll(&mut answer.wait_async(), Waker::noop()), Poll::Ready(&"set"));
    drop((early, waker));
    assert_eq!(Arc::strong_count(&task), 1, "a waker is left");
    Ok(())
}

/// Waker that sleeps, and stores for how long it did.
#[derive(Default)]
struct Sleeper(Mutex<Option<Duration>>);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        let began = Instant::now();
        sleep(Duration::from_millis(20));
        *self.0.lock().unwrap() = Some(began.elapsed());
    }
}

#[test]
fn waker_that_a_worker_calls_can_sleep() -> TestResult {
    let sleeper = Arc::new(Sleeper::default());
    let runtime = Runtime::new(Config::default())?;
    let mut handle = runtime.spawn(yield_now)?;
    let waker = Waker::from(Arc::clone(&sleeper));
    let polled = Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
    drop(runtime); // waits for the fiber and its joiners
    if polled.is_pending() {
        let slept = *sleeper.0.lock().unwrap();
        assert!(slept >= Some(Duration::from_millis(20)), "{slept:?}");
    }
    Ok(())
}

#[test]
fn task_of_the_last_poll_is_woken() -> TestResult {
    let answer = Eventual::new();
    let ((first, first_waker), (last, last_waker)) = (task(), task());
    let mut future = answer.wait_async();
    assert!(poll(&mut future, &first_waker).is_pending());
    assert!(poll(&mut future, &last_waker).is_pending());
    drop(first_waker);
    assert_eq!(Arc::strong_count(&first), 1, "the eventual keeps a replaced waker");
    answer.set(())?;
    assert_eq!((first.0.load(SeqCst), last.0.load(SeqCst)), (0, 1));
    Ok(())
}

#[test]
fn dropped_future_is_not_woken_and_other_waiters_are() -> TestResult {
    let answer = Arc::new(Eventual::new());
    let tasks = [(); 3].map(|()| task());
    let mut futures = [(); 3].map(|()| Some(answer.wait_async()));
    for (future, (_, waker)) in futures.iter_mut().zip(&tasks) {
        assert!(poll(future.as_mut().unwrap(), waker).is_pending());
    }
    let waits = {
        let answer = Arc::clone(&answer);
        thread::spawn(move || *answer.wait())
    };
    thread::sleep(Duration::from_millis(5));
    futures[1] = None;
    assert_eq!(Arc::strong_count(&tasks[1].0), 2, "the eventual keeps the waker");
    answer.set(7)?;
    assert_eq!(waits.join().unwrap(), 7);
    assert_eq!(tasks.each_ref().map(|(task, _)| task.0.load(SeqCst)), [1, 0, 1]);
    // Dropped without a set, and without another poll after it.
    drop(futures);
    assert_eq!(tasks.each_ref().map(|(task, _)| Arc::strong_count(task)), [2; 3]);
    Ok(())
}

#[test]
fn waker_may_drop_other_futures_of_the_same_eventual() -> TestResult {
    type Slot = Mutex<Option<EventualFuture<'static, u32>>>;
    struct Dropper(Arc<Slot>);
    impl Wake for Dropper {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
        }
    }
    static ANSWER: Eventual<u32> = Eventual::new();
    let other: Arc<Slot> = Arc::default();
    let mut first = ANSWER.wait_async();
    assert!(poll(&mut first, &Waker::from(Arc::new(Dropper(Arc::clone(&other))))).is_pending());
    let mut second = ANSWER.wait_async();
    assert!(poll(&mut second, Waker::noop()).is_pending());
    *other.lock().unwrap() = Some(second);
    ANSWER.set(1)?;
    assert!(other.lock().unwrap().is_none());
    Ok(())
}

#[test]
fn block_on_parks_the_fiber_and_not_its_worker() -> TestResult {
    let runtime = Runtime::new(Config::default())?; // one worker
    let answer = runtime.spawn(|| {
        let answer = Arc::new(Eventual::new());
        let sets = Arc::clone(&answer);
        spawn_detached(move || {
            sleep(Duration::from_millis(1));
            sets.set(current_id().expect("on a fiber")).expect("it is set once");
        })?;
        let id = block_on(async { *answer.wait_async().await });
        Ok::<_, handover_fiber::SpawnError>((id, current_id()))
    })?;
    let (setter, waiter) = answer.join()??;
    assert_ne!(Some(setter), waiter);
    Ok(())
}

#[test]
fn wake_up_during_a_poll_is_not_lost() {
    let mut polls = 0;
    let output = block_on(std::future::poll_fn(|context| {
        polls += 1;
        context.waker().wake_by_ref();
        if polls < 10 { Poll::Pending } else { Poll::Ready("done") }
    }));
    assert_eq!((output, polls), ("done", 10));
}

#[test]
fn fibers_and_threads_and_tasks_wait_for_the_same_eventuals() -> TestResult {
    let rounds = if std::env::var_os("HANDOVER_LONG").is_some() { 20_000 } else { 500 };
    let runtime = Runtime::new(Config::workers(2))?;
    let eventuals: Arc<Vec<Eventual<usize>>> =
        Arc::new((0..rounds).map(|_| Eventual::new()).collect());
    let mut joins = Vec::new();
    for waiter in 0..4 {
        let eventuals = Arc::clone(&eventuals);
        joins.push(runtime.spawn(move || {
            let mut sum = 0;
            for (round, eventual) in eventuals.iter().enumerate() {
                if (round + waiter) % 3 == 0 {
                    // Given up after a poll, while the value may be being set.
                    let mut cancelled = eventual.wait_async();
                    let _ = poll(&mut cancelled, Waker::noop());
                    yield_now();
                }
                sum += match (round + waiter) % 2 {
                    0 => block_on(async { *eventual.wait_async().await }),
                    _ => *eventual.wait(),
                };
            }
            sum
        })?);
    }
    let sets = Arc::clone(&eventuals);
    runtime.spawn_detached(move || {
        for (round, eventual) in sets.iter().enumerate() {
            eventual.set(round).expect("it is set once");
            if round % 7 == 0 {
                yield_now();
            }
        }
    })?;
    let waits_as_task =
        thread::spawn(move || block_on(async { *eventuals[rounds - 1].wait_async().await }));
    for join in joins {
        assert_eq!(join.join()?, rounds * (rounds - 1) / 2);
    }
    assert_eq!(waits_as_task.join().unwrap(), rounds - 1);
    Ok(())
}

#[test]
fn panic_of_a_future_reaches_the_joiner() -> TestResult {
    let runtime = Runtime::new(Config::default())?;
    let panics = runtime.spawn(|| {
        let inner = spawn(|| block_on(async { std::panic::resume_unwind(Box::new("on purpose")) }))
            .expect("a fiber");
        let result: Result<(), _> = inner.join();
        result.is_err()
    })?;
    assert!(panics.join()?);
    Ok(())
}

#[test]
fn join_handle_is_awaited_by_tasks() -> TestResult {
    let runtime = Runtime::new(Config::default())?;
    let (task, waker) = task();
    let goes_on = Arc::new(Eventual::new());
    let waits = Arc::clone(&goes_on);
    let mut handle = runtime.spawn(move || {
        waits.wait();
        "done"
    })?;
    let mut context = Context::from_waker(&waker);
    assert!(Pin::new(&mut handle).poll(&mut context).is_pending());
    let polled_and_joined = {
        let waits = Arc::clone(&goes_on);
        let mut handle = runtime.spawn(move || *waits.wait())?;
        assert!(Pin::new(&mut handle).poll(&mut context).is_pending());
        handle
    };
    assert_eq!(task.0.load(SeqCst), 0);
    goes_on.set(())?;
    assert_eq!(block_on(&mut handle)?, "done");
    polled_and_joined.join()?;
    drop((handle, waker));
    assert_eq!(Arc::strong_count(&task), 1, "a waker is left");

    let panics = runtime.spawn(|| std::panic::resume_unwind(Box::new("on purpose")))?;
    let result: Result<(), _> = block_on(panics);
    assert!(result.is_err());
    Ok(())
}

#[test]
fn polled_join_handle_that_is_dropped_detaches_its_fiber() -> TestResult {
    let rounds = if std::env::var_os("HANDOVER_LONG").is_some() { 100_000 } else { 2_000 };
    let runtime = Runtime::new(Config::workers(2))?;
    let (task, waker) = task();
    for round in 0..rounds {
        let mut handle = runtime.spawn(move || (round % 2 == 0).then(yield_now))?;
        let polled = Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
        match round % 3 {
            _ if polled.is_ready() => {}
            0 => drop(handle),
            1 => drop(handle.join_timeout(Duration::ZERO)),
            _ => drop(runtime.spawn(move || drop(handle))?),
        }
    }
    runtime.shutdown();
    drop(waker);
    assert_eq!(Arc::strong_count(&task), 1, "a waker is left");
    Ok(())
}

#[test]
fn waker_of_a_joiner_may_suspend_or_panic() -> TestResult {
    struct Suspends;
    impl Wake for Suspends {
        fn wake(self: Arc<Self>) {
            yield_now();
            sleep(Duration::from_micros(1));
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
    let runtime = Runtime::new(Config::default())?;
    let goes_on = Arc::new(Eventual::new());
    let waits = Arc::clone(&goes_on);
    let mut handle = runtime.spawn(move || *waits.wait())?;
    let waker = Waker::from(Arc::new(Suspends));
    assert!(Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)).is_pending());
    goes_on.set(())?;
    while !handle.is_finished() {
        thread::yield_now();
    }
    assert_eq!(runtime.spawn(|| 1)?.join()?, 1, "the worker goes on");
    // The fiber was finished before it called the waker, which may still sleep.
    while runtime.stats().panicked_count == 0 {
        thread::yield_now();
    }
    assert_eq!(runtime.stats().panicked_count, 1);
    Ok(())
}

#[test]
fn future_is_send_and_sync_if_the_eventual_can_be_shared() {
    assert_eq!(auto_traits!(EventualFuture<'static, u8>), "Send + Sync");
    assert_eq!(auto_traits!(EventualFuture<'static, std::cell::Cell<u8>>), "neither");
}

/// Futures under an executor with wakers and timers of its own.
mod under_tokio {
    use super::*;
    use tokio::runtime::{Builder, Runtime as Executor};
    use tokio::time::timeout;

    /// Time-out of a wait that does not succeed; tokio's timers have a granularity of 1 ms.
    const SHORT_TIMEOUT: Duration = Duration::from_millis(1);

    fn executor() -> std::io::Result<Executor> {
        Builder::new_current_thread().enable_time().build()
    }

    #[test]
    fn task_and_fiber_wake_each_other() -> TestResult {
        const ROUNDS: usize = 1_000;
        let runtime = Runtime::new(Config::default())?;
        let pairs: Arc<Vec<(Eventual<usize>, Eventual<usize>)>> =
            Arc::new((0..ROUNDS).map(|_| (Eventual::new(), Eventual::new())).collect());
        let its = Arc::clone(&pairs);
        let fiber = runtime.spawn(move || {
            for (question, answer) in its.iter() {
                answer.set(question.wait() + 1).expect("it is set once");
            }
            "done"
        })?;
        let executor = executor()?;
        let task = executor.spawn(async move {
            for (round, (question, answer)) in pairs.iter().enumerate() {
                question.set(round).expect("it is set once");
                assert_eq!(*answer.wait_async().await, round + 1);
            }
            fiber.await
        });
        assert_eq!(executor.block_on(task)??, "done");
        Ok(())
    }

    #[test]
    fn cancelled_waits_leave_the_value_and_the_result_to_later_ones() -> TestResult {
        let runtime = Runtime::new(Config::default())?;
        let (question, answer) = (Arc::new(Eventual::new()), Arc::new(Eventual::new()));
        let (waits, sets) = (Arc::clone(&question), Arc::clone(&answer));
        let mut fiber = runtime.spawn(move || {
            waits.wait();
            sets.set(7).expect("it is set once");
        })?;
        executor()?.block_on(async {
            assert!(timeout(SHORT_TIMEOUT, answer.wait_async()).await.is_err());
            assert!(timeout(SHORT_TIMEOUT, &mut fiber).await.is_err());
            question.set(()).expect("it is set once");
            assert_eq!(*answer.wait_async().await, 7);
            fiber.await
        })?;
        Ok(())
    }

    #[test]
    fn value_set_during_a_cancellation_is_not_lost() -> TestResult {
        const ROUNDS: u64 = 50;
        let runtime = Runtime::new(Config::default())?;
        let executor = executor()?;
        for round in 0..ROUNDS {
            let answer = Arc::new(Eventual::new());
            let sets = Arc::clone(&answer);
            runtime.spawn_detached(move || {
                sleep(Duration::from_micros(round * 40)); // before, at and after the time-out
                sets.set(round).expect("it is set once");
            })?;
            let value = executor.block_on(async {
                loop {
                    if let Ok(value) = timeout(SHORT_TIMEOUT, answer.wait_async()).await {
                        break *value;
                    }
                }
            });
            assert_eq!(value, round);
        }
        Ok(())
    }
}
