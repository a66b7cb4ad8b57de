//! Contenders: this project's runtime, bare coroutines, and threads.

use super::{AcrossContender, FiberContender};
use crate::common::{ensure, time_ticks};
use crate::floor::wait_word::{WaitLine, WaitMode};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use handover_base::affinity;
use handover_fiber::{
    Builder, Config, Eventual, Handle, Mutex, Runtime, sleep, spawn, spawn_detached, yield_now,
};
use handover_harness::Fault;
use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;
use zerocopy::FromZeros;

pub(super) const ONE_MS: Duration = Duration::from_millis(1);

/// Contender: fibers of this project's runtime.
pub(super) struct HandoverFibers {
    runtime: Runtime,
    handle: Handle,
    workers_count: u32,
}

impl HandoverFibers {
    /// Starts a runtime with a worker on each of the CPUs.
    fn with_workers(cpus: Vec<u32>) -> Result<Self, Fault> {
        let workers_count = cpus.len() as u32;
        let config = Config::workers(workers_count).cpus(cpus);
        let runtime = Runtime::new(config).map_err(Fault::from_error)?;
        Ok(HandoverFibers { handle: runtime.handle(), runtime, workers_count })
    }

    /// Runs a function in a fiber of worker 0; returns its result.
    fn within<T: Send + 'static>(
        &self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        Builder::new()
            .worker(0)
            .spawn_on(&self.handle, run)
            .map_err(Fault::from_error)?
            .join()
            .map_err(Fault::from_error)
    }
}

#[inline(never)]
fn yield_repeatedly(count: u64) {
    for _ in 0..count {
        yield_now();
    }
}

impl FiberContender for HandoverFibers {
    fn begin() -> Result<Self, Fault> {
        HandoverFibers::with_workers(vec![affinity::current_cpu()])
    }

    fn time_yields(&mut self, count: u64) -> Result<u64, Fault> {
        self.within(move || {
            let other = spawn(move || yield_repeatedly(count / 2)).ok()?;
            let ticks = time_ticks(|| yield_repeatedly(count / 2));
            other.join().ok()?;
            Some(ticks)
        })?
        .ok_or_else(|| Fault::new("a fiber has returned no result"))
    }

    fn time_yields_alone(&mut self, count: u64) -> Result<u64, Fault> {
        self.within(move || time_ticks(|| yield_repeatedly(count)))
    }

    fn time_spawns(&mut self, count: u64) -> Result<u64, Fault> {
        self.within(move || {
            let mut sum = 0;
            let ticks = time_ticks(|| {
                for i in 0..count {
                    let fiber = spawn(move || black_box(i));
                    sum += fiber.ok().and_then(|fiber| fiber.join().ok()).unwrap_or(0);
                }
            });
            check_count(sum, count * (count - 1) / 2, ticks)
        })?
    }

    fn time_detached_spawns(&mut self, count: u64) -> Result<u64, Fault> {
        self.within(move || {
            time_ticks(|| {
                for i in 0..count {
                    if spawn_detached(move || black_box(i)).is_ok() {
                        yield_now();
                    }
                }
            })
        })
    }

    fn time_wakes(&mut self, count: u64) -> Result<u64, Fault> {
        let to = Arc::new([const { Eventual::<()>::new() }; 2]);
        let from = Arc::clone(&to);
        let other = self.workers_count - 1;
        let answers = Builder::new().worker(other).spawn_on(&self.handle, move || {
            for _ in 0..count / 2 {
                from[0].wait();
                from[0].rearm();
                let _ = from[1].set(());
            }
        });
        let answers = answers.map_err(Fault::from_error)?;
        let ticks = self.within(move || {
            time_ticks(|| {
                for _ in 0..count / 2 {
                    let _ = to[0].set(());
                    to[1].wait();
                    to[1].rearm();
                }
            })
        })?;
        answers.join().map_err(Fault::from_error)?;
        Ok(ticks)
    }

    fn time_mutex_passes(&mut self, count: u64) -> Result<u64, Fault> {
        let mutex = Arc::new(Mutex::new(0u64));
        let (its, each) = (Arc::clone(&mutex), count / 2);
        let take = |mutex: &Mutex<u64>| {
            let mut held = mutex.lock();
            *held += 1;
            yield_now(); // the other fiber comes to wait for the mutex
        };
        let ticks = self.within(move || {
            let other = spawn(move || (0..each).for_each(|_| take(&its))).ok()?;
            let ticks = time_ticks(|| (0..each).for_each(|_| take(&mutex)));
            other.join().ok()?;
            (*mutex.lock() == 2 * each).then_some(ticks)
        })?;
        ticks.ok_or_else(|| Fault::new("the mutex was held by two fibers at once"))
    }

    fn time_sleeps(&mut self, count: u64) -> Result<u64, Fault> {
        self.within(move || time_ticks(|| (0..count).for_each(|_| sleep(ONE_MS))))
    }

    fn time_loops(&mut self, fibers: u32, count: u64) -> Result<u64, Fault> {
        let once = || drop(super::eventuals::run_iteration(ONE_MS));
        let is_over = Arc::new(AtomicBool::new(false));
        let others = (1..fibers).map(|_| {
            let is_over = Arc::clone(&is_over);
            let goes = move || {
                while !is_over.load(Relaxed) {
                    once();
                }
            };
            self.runtime.spawn(goes).map_err(Fault::from_error)
        });
        let others: Vec<_> = others.collect();
        let ticks = self.within(move || {
            once();
            time_ticks(|| (0..count).for_each(|_| once()))
        });
        // Also if not all could be started.
        is_over.store(true, Relaxed);
        for other in others {
            let _ = other?.join();
        }
        ticks
    }
}

/// Coroutine of a library, which suspends itself each time that it is resumed.
pub(super) trait SuspendingCoroutine: Sized + 'static {
    fn new() -> Self;
    /// Resumes the coroutine; returns `true` if it suspended itself again.
    fn resume(&mut self) -> bool;
    /// Creates and runs a coroutine that returns its number, `count` times. Returns the duration in
    /// clock ticks, and the sum of the numbers.
    fn time_spawns(count: u64) -> Result<(u64, u64), Fault>;
}

/// Contender: two coroutines without a runtime, resumed in turn.
pub(super) struct CoroutinePair<C>([C; 2]);

impl<C: SuspendingCoroutine> FiberContender for CoroutinePair<C> {
    fn begin() -> Result<Self, Fault> {
        Ok(CoroutinePair([C::new(), C::new()]))
    }

    fn time_yields(&mut self, count: u64) -> Result<u64, Fault> {
        let mut suspended = 0;
        let ticks = time_ticks(|| {
            for _ in 0..count / 2 {
                for one in &mut self.0 {
                    suspended += u64::from(one.resume());
                }
            }
        });
        check_count(suspended, count, ticks)
    }

    fn time_yields_alone(&mut self, count: u64) -> Result<u64, Fault> {
        let mut suspended = 0;
        let one = &mut self.0[0];
        let ticks = time_ticks(|| (0..count).for_each(|_| suspended += u64::from(one.resume())));
        check_count(suspended, count, ticks)
    }

    fn time_spawns(&mut self, count: u64) -> Result<u64, Fault> {
        let (ticks, sum) = C::time_spawns(count)?;
        check_count(sum, count * (count - 1) / 2, ticks)
    }

    fn time_detached_spawns(&mut self, count: u64) -> Result<u64, Fault> {
        self.time_spawns(count)
    }

    fn time_wakes(&mut self, count: u64) -> Result<u64, Fault> {
        self.time_yields(count)
    }

    fn time_mutex_passes(&mut self, count: u64) -> Result<u64, Fault> {
        self.time_yields(count)
    }
}

/// Returns `ticks`; fails if `counted` differs from `expected`.
pub(super) fn check_count(counted: u64, expected: u64, ticks: u64) -> Result<u64, Fault> {
    ensure(counted == expected, || {
        format!("the fibers counted to {counted}, expected {expected}")
    })?;
    Ok(ticks)
}

/// Coroutine of the crate `corosensei`, without a runtime.
pub(super) struct CorosenseiCoroutine(Coroutine<(), (), ()>);

impl Drop for CorosenseiCoroutine {
    fn drop(&mut self) {
        self.0.force_unwind();
    }
}

impl SuspendingCoroutine for CorosenseiCoroutine {
    fn new() -> Self {
        CorosenseiCoroutine(Coroutine::new(|yielder, ()| {
            loop {
                yielder.suspend(());
            }
        }))
    }

    #[inline(always)]
    fn resume(&mut self) -> bool {
        matches!(self.0.resume(()), CoroutineResult::Yield(()))
    }

    fn time_spawns(count: u64) -> Result<(u64, u64), Fault> {
        // One stack, reused.
        let mut stack = Some(DefaultStack::new(64 << 10)?);
        let mut sum = 0;
        let ticks = time_ticks(|| {
            for i in 0..count {
                let Some(own) = stack.take() else { break };
                let mut one = Coroutine::<(), (), u64>::with_stack(own, move |_, ()| black_box(i));
                if let CoroutineResult::Return(it) = one.resume(()) {
                    sum += it;
                    stack = Some(one.into_stack());
                }
            }
        });
        Ok((ticks, sum))
    }
}

/// Floor: the kernel's sleep, with the smallest timer slack.
pub(super) struct KernelSleep;

impl FiberContender for KernelSleep {
    fn begin() -> Result<Self, Fault> {
        Ok(KernelSleep)
    }

    fn time_sleeps(&mut self, count: u64) -> Result<u64, Fault> {
        // The smallest slack: 1 ns.
        let before = rustix::thread::current_timer_slack()?;
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        let ticks = time_ticks(|| (0..count).for_each(|_| thread::sleep(ONE_MS)));
        rustix::thread::set_current_timer_slack(NonZeroU64::new(before))?;
        Ok(ticks)
    }

    // One sleep at a time, of this thread.
    fn loops_count(_: u32) -> u32 {
        1
    }

    fn time_loops(&mut self, _: u32, count: u64) -> Result<u64, Fault> {
        self.time_sleeps(count)
    }
}

impl AcrossContender for HandoverFibers {
    fn begin_across(cpus: [u32; 2]) -> Result<Self, Fault> {
        HandoverFibers::with_workers(cpus.into())
    }

    fn time_wakes_across(&mut self, count: u64) -> Result<u64, Fault> {
        self.time_wakes(count)
    }
}

/// Floor: two threads on two CPUs that signal each other. There is a word of memory in each
/// direction.
pub(super) struct WordThreads {
    /// CPU of the thread that answers.
    other: u32,
    mode: WaitMode,
}

impl AcrossContender for WordThreads {
    fn begin_across([first, other]: [u32; 2]) -> Result<Self, Fault> {
        Ok(WordThreads { other, mode: WaitMode::ADAPTIVE.with_yields(first == other) })
    }

    fn time_wakes_across(&mut self, count: u64) -> Result<u64, Fault> {
        let WordThreads { other, mode } = *self;
        let turns = (count / 2) as u32;
        let line = Arc::new(WaitLine::<2>::new_zeroed());
        let its = Arc::clone(&line);
        let answers = thread::spawn(move || {
            let pinned = affinity::set_thread_cpus(&[other]);
            let [there, back] = &its.0;
            for turn in 0..=turns {
                there.wait(mode, |it| it == turn + 1);
                back.publish(turn + 1, mode);
            }
            pinned.is_ok()
        });
        let [there, back] = &line.0;
        let exchange = |turn: u32| {
            there.publish(turn + 1, mode);
            back.wait(mode, |it| it == turn + 1);
        };
        exchange(0); // untimed: the other thread starts and moves to its CPU
        let ticks = time_ticks(|| (1..=turns).for_each(exchange));
        match answers.join() {
            Ok(true) => Ok(ticks),
            _ => Err(Fault::new("a thread could not be pinned to the other CPU")),
        }
    }
}

/// Compared implementation: threads of the operating system.
pub(super) struct OsThreads;

impl FiberContender for OsThreads {
    // Beside other programs, each switch takes their time slices, some ms.
    const BATCH_MAX: u64 = 256;

    fn begin() -> Result<Self, Fault> {
        Ok(OsThreads)
    }

    fn time_yields(&mut self, count: u64) -> Result<u64, Fault> {
        let begins = Arc::new(Barrier::new(2));
        let others = Arc::clone(&begins);
        let other = thread::spawn(move || {
            others.wait();
            (0..count / 2).for_each(|_| thread::yield_now());
        });
        begins.wait(); // until the other thread runs
        let ticks = time_ticks(|| (0..count / 2).for_each(|_| thread::yield_now()));
        other.join().map_err(|_| Fault::new("the other thread panicked"))?;
        Ok(ticks)
    }

    fn time_yields_alone(&mut self, count: u64) -> Result<u64, Fault> {
        Ok(time_ticks(|| (0..count).for_each(|_| thread::yield_now())))
    }

    fn time_detached_spawns(&mut self, count: u64) -> Result<u64, Fault> {
        let ended_count = Arc::new(AtomicU64::new(0));
        let ticks = time_ticks(|| {
            for i in 0..count {
                let ended = Arc::clone(&ended_count);
                drop(thread::spawn(move || {
                    black_box(i);
                    ended.fetch_add(1, Relaxed);
                }));
                while ended_count.load(Relaxed) <= i {
                    thread::yield_now();
                }
            }
        });
        Ok(ticks)
    }

    fn time_spawns(&mut self, count: u64) -> Result<u64, Fault> {
        let mut sum = 0;
        let ticks = time_ticks(|| {
            for i in 0..count {
                sum += thread::spawn(move || black_box(i)).join().unwrap_or(0);
            }
        });
        check_count(sum, count * (count - 1) / 2, ticks)
    }

    fn time_sleeps(&mut self, count: u64) -> Result<u64, Fault> {
        Ok(time_ticks(|| (0..count).for_each(|_| thread::sleep(ONE_MS))))
    }
}

/// Compared implementation: two threads that send each other messages through the standard
/// library's channels.
pub(super) struct ChannelThreads {
    /// CPU of the thread that answers.
    other: u32,
}

impl AcrossContender for ChannelThreads {
    fn begin_across([_, other]: [u32; 2]) -> Result<Self, Fault> {
        Ok(ChannelThreads { other })
    }

    fn time_wakes_across(&mut self, count: u64) -> Result<u64, Fault> {
        let (to, asked) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        let cpu = self.other;
        let other = thread::spawn(move || {
            let pinned = affinity::set_thread_cpus(&[cpu]);
            while asked.recv().is_ok_and(|()| answer.send(()).is_ok()) {}
            pinned.is_ok()
        });
        let mut failed_count = 0u64;
        let mut exchange = |_| {
            failed_count += u64::from(to.send(()).is_err() || answered.recv().is_err());
        };
        exchange(0); // untimed: the other thread starts
        let ticks = time_ticks(|| (0..count / 2).for_each(&mut exchange));
        drop(to);
        ensure(failed_count == 0, || "the other thread has exited before the last message")?;
        let pinned = other.join().map_err(|_| Fault::new("the other thread panicked"))?;
        ensure(pinned, || "a thread could not be pinned to the other CPU")?;
        Ok(ticks)
    }
}
