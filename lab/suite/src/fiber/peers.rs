//! Peers: tokio's tasks, which the compiler turns into state machines, and another crate with
//! stacks.

use super::FiberContender;
use super::contenders::{ONE_MS, SuspendingCoroutine};
use crate::common::{time_ticks, time_ticks_async};
use generator::{Generator, Gn};
use handover_base::clock;
use handover_harness::Fault;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, Notify, oneshot};
use tokio::task::yield_now;

async fn yield_repeatedly(count: u64) {
    for _ in 0..count {
        yield_now().await;
    }
}

/// Compared implementation: tasks on tokio's single-threaded runtime.
pub(super) struct TokioTasks(Runtime);

impl FiberContender for TokioTasks {
    fn begin() -> Result<Self, Fault> {
        Ok(TokioTasks(Builder::new_current_thread().enable_time().build()?))
    }

    fn time_yields(&mut self, count: u64) -> Result<u64, Fault> {
        self.run(async move {
            let other = tokio::spawn(yield_repeatedly(count / 2));
            let ticks = time_ticks_async(yield_repeatedly(count / 2)).await;
            other.await.map_err(Fault::from_error)?;
            Ok(ticks)
        })
    }

    fn time_yields_alone(&mut self, count: u64) -> Result<u64, Fault> {
        self.run(async move { Ok(time_ticks_async(yield_repeatedly(count)).await) })
    }

    fn time_spawns(&mut self, count: u64) -> Result<u64, Fault> {
        self.run(async move {
            let began = clock::ticks();
            for i in 0..count {
                tokio::spawn(async move { black_box(i) }).await.map_err(Fault::from_error)?;
            }
            Ok(clock::ticks().saturating_sub(began))
        })
    }

    fn time_detached_spawns(&mut self, count: u64) -> Result<u64, Fault> {
        self.run(async move {
            let began = clock::ticks();
            for i in 0..count {
                drop(tokio::spawn(async move { black_box(i) }));
                yield_now().await;
            }
            Ok(clock::ticks().saturating_sub(began))
        })
    }

    fn time_wakes(&mut self, count: u64) -> Result<u64, Fault> {
        let pair = Arc::new([Notify::new(), Notify::new()]);
        self.run(async move {
            let its = Arc::clone(&pair);
            let other = tokio::spawn(async move {
                for _ in 0..count / 2 {
                    its[0].notified().await;
                    its[1].notify_one();
                }
            });
            let began = clock::ticks();
            for _ in 0..count / 2 {
                pair[0].notify_one();
                pair[1].notified().await;
            }
            let ticks = clock::ticks().saturating_sub(began);
            other.await.map_err(Fault::from_error)?;
            Ok(ticks)
        })
    }

    fn time_mutex_passes(&mut self, count: u64) -> Result<u64, Fault> {
        async fn lock_repeatedly(mutex: Arc<Mutex<u64>>, count: u64) {
            for _ in 0..count {
                let mut held = mutex.lock().await;
                *held += 1;
                yield_now().await; // the other task comes to wait for the mutex
            }
        }
        let mutex = Arc::new(Mutex::new(0));
        self.run(async move {
            let other = tokio::spawn(lock_repeatedly(Arc::clone(&mutex), count / 2));
            let ticks = time_ticks_async(lock_repeatedly(mutex, count / 2)).await;
            other.await.map_err(Fault::from_error)?;
            Ok(ticks)
        })
    }

    fn time_sleeps(&mut self, count: u64) -> Result<u64, Fault> {
        self.run(async move {
            let began = clock::ticks();
            for _ in 0..count {
                tokio::time::sleep(ONE_MS).await;
            }
            Ok(clock::ticks().saturating_sub(began))
        })
    }

    fn time_loops(&mut self, fibers: u32, count: u64) -> Result<u64, Fault> {
        async fn run_iteration() {
            let (sets, is_set) = oneshot::channel();
            drop(tokio::spawn(async move {
                tokio::time::sleep(ONE_MS).await;
                let _ = sets.send(());
            }));
            let _ = is_set.await;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        self.run(async move {
            let others: Vec<_> = (1..fibers)
                .map(|_| {
                    let is_over = Arc::clone(&is_over);
                    tokio::spawn(async move {
                        while !is_over.load(Relaxed) {
                            run_iteration().await;
                        }
                    })
                })
                .collect();
            run_iteration().await;
            let began = clock::ticks();
            for _ in 0..count {
                run_iteration().await;
            }
            let ticks = clock::ticks().saturating_sub(began);
            is_over.store(true, Relaxed);
            for other in others {
                other.await.map_err(Fault::from_error)?;
            }
            Ok(ticks)
        })
    }
}

impl TokioTasks {
    /// Spawns a task that runs `future`, and blocks until it has ended; returns its output.
    fn run(
        &self,
        future: impl Future<Output = Result<u64, Fault>> + Send + 'static,
    ) -> Result<u64, Fault> {
        // Awaited by its handle, of one type for all tasks, so that block_on() is compiled once.
        self.0.block_on(self.0.spawn(future)).map_err(Fault::from_error)?
    }
}

/// Coroutine with its own stack, of the crate `generator`.
pub(super) struct GeneratorCoroutine(Generator<'static, (), ()>);

impl SuspendingCoroutine for GeneratorCoroutine {
    fn new() -> Self {
        GeneratorCoroutine(Gn::new_scoped(|mut scope| {
            loop {
                scope.yield_(());
            }
        }))
    }

    #[inline(always)]
    fn resume(&mut self) -> bool {
        self.0.resume().is_some()
    }

    fn time_spawns(count: u64) -> Result<(u64, u64), Fault> {
        let mut sum = 0;
        let ticks = time_ticks(|| {
            for i in 0..count {
                sum += Gn::<()>::new_scoped(move |_| black_box(i)).resume().unwrap_or(0);
            }
        });
        Ok((ticks, sum))
    }
}
