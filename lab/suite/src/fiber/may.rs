//! Compared implementation: the coroutines of `may`, with stacks of their own, on one worker
//! thread.
//!
//! The worker is started with the first coroutine of a process, stays until the process ends, and
//! runs on the CPU of the participant that started it.

use super::FiberContender;
use super::contenders::{ONE_MS, check_count};
use crate::common::time_ticks;
use handover_harness::Fault;
use may::coroutine::{JoinHandle, sleep, yield_now};
use may::go;
use may::sync::{Mutex, Semphore};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

/// Compared implementation: coroutines of the crate `may`.
pub(super) struct MayCoroutines;

fn join<T>(coroutine: JoinHandle<T>) -> Result<T, Fault> {
    coroutine.join().map_err(|_| Fault::new("a coroutine panicked"))
}

fn yield_repeatedly(count: u64) {
    for _ in 0..count {
        yield_now();
    }
}

impl FiberContender for MayCoroutines {
    fn begin() -> Result<Self, Fault> {
        // Without pinning, the worker inherits the CPU of its creator.
        may::config().set_workers(1).set_worker_pin(false);
        Ok(MayCoroutines)
    }

    fn time_yields(&mut self, count: u64) -> Result<u64, Fault> {
        join(go!(move || {
            let other = go!(move || yield_repeatedly(count / 2));
            let ticks = time_ticks(|| yield_repeatedly(count / 2));
            join(other)?;
            Ok(ticks)
        }))?
    }

    fn time_yields_alone(&mut self, count: u64) -> Result<u64, Fault> {
        join(go!(move || time_ticks(|| yield_repeatedly(count))))
    }

    fn time_spawns(&mut self, count: u64) -> Result<u64, Fault> {
        let (ticks, sum) = join(go!(move || {
            let mut sum = 0;
            let ticks = time_ticks(|| {
                for i in 0..count {
                    sum += go!(move || black_box(i)).join().unwrap_or(0);
                }
            });
            (ticks, sum)
        }))?;
        check_count(sum, count * (count - 1) / 2, ticks)
    }

    fn time_detached_spawns(&mut self, count: u64) -> Result<u64, Fault> {
        join(go!(move || {
            time_ticks(|| {
                for i in 0..count {
                    drop(go!(move || black_box(i)));
                    yield_now();
                }
            })
        }))
    }

    fn time_wakes(&mut self, count: u64) -> Result<u64, Fault> {
        let pair = Arc::new([Semphore::new(0), Semphore::new(0)]);
        join(go!(move || {
            let its = Arc::clone(&pair);
            let other = go!(move || {
                for _ in 0..count / 2 {
                    its[0].wait();
                    its[1].post();
                }
            });
            let ticks = time_ticks(|| {
                for _ in 0..count / 2 {
                    pair[0].post();
                    pair[1].wait();
                }
            });
            join(other)?;
            Ok(ticks)
        }))?
    }

    fn time_mutex_passes(&mut self, count: u64) -> Result<u64, Fault> {
        fn lock_repeatedly(mutex: &Mutex<u64>, count: u64) {
            for _ in 0..count {
                let mut held = mutex.lock().unwrap_or_else(PoisonError::into_inner);
                *held += 1;
                yield_now(); // the other coroutine comes to wait for the mutex
            }
        }
        let mutex = Arc::new(Mutex::new(0));
        join(go!(move || {
            let its = Arc::clone(&mutex);
            let other = go!(move || lock_repeatedly(&its, count / 2));
            let ticks = time_ticks(|| lock_repeatedly(&mutex, count / 2));
            join(other)?;
            let sum = *mutex.lock().map_err(Fault::from_error)?;
            check_count(sum, count / 2 * 2, ticks)
        }))?
    }

    fn time_sleeps(&mut self, count: u64) -> Result<u64, Fault> {
        join(go!(move || time_ticks(|| (0..count).for_each(|_| sleep(ONE_MS)))))
    }

    fn time_loops(&mut self, fibers: u32, count: u64) -> Result<u64, Fault> {
        fn run_iteration() {
            let is_set = Arc::new(Semphore::new(0));
            let sets = Arc::clone(&is_set);
            drop(go!(move || {
                sleep(ONE_MS);
                sets.post();
            }));
            is_set.wait();
        }
        let is_over = Arc::new(AtomicBool::new(false));
        join(go!(move || {
            let others: Vec<_> = (1..fibers)
                .map(|_| {
                    let is_over = Arc::clone(&is_over);
                    go!(move || {
                        while !is_over.load(Relaxed) {
                            run_iteration();
                        }
                    })
                })
                .collect();
            run_iteration();
            let ticks = time_ticks(|| (0..count).for_each(|_| run_iteration()));
            is_over.store(true, Relaxed);
            others.into_iter().try_for_each(join)?;
            Ok(ticks)
        }))?
    }
}
