//! Spawning fibers, and joining them.

use super::handle::{Handle, Pool};
use super::state::{ResolvedPool, RuntimeState};
use super::this_fiber::{deadline_ns_after, deadline_ns_at, has_passed};
#[cfg(feature = "async")]
use super::wait::wake_all;
use super::worker::Worker;
use crate::raw::{
    FiberSpec, HomeAddress, ResultHandle, Stack, UnclaimedResult, Withdrawals, closure_fits,
    prepare_fiber, this_worker, wait_for_gate, wait_for_gate_until,
};
#[cfg(feature = "async")]
use crate::raw::{TaskWait, Waiter};
use crate::{FiberPanic, SpawnError};
use handover_base::sync::shared::Ordering;
use handover_probe::probe;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Spawns a fiber in the first pool of the calling fiber's runtime. Returns a handle of the fiber.
/// The fiber starts on the current worker if this worker serves the pool.
///
/// # Errors
/// [`SpawnError`], for example if the caller is not a fiber.
#[inline]
pub fn spawn<F, T>(f: F) -> Result<JoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    spawn_on_current(&Builder::default(), f, true)
}

/// Spawns a fiber as [`spawn`] does, without a handle for its result. A panic ends the fiber, and
/// is reported by the panic hook and counted in [`Stats`](crate::Stats).
///
/// # Errors
/// [`SpawnError`], for example if the caller is not a fiber.
#[inline]
pub fn spawn_detached<F, T>(f: F) -> Result<(), SpawnError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    spawn_on_current(&Builder::default(), f, false).map(drop)
}

/// Spawns a fiber that never moves to another worker. It may own `!Send` data such as an `Rc`.
///
/// # Errors
/// [`SpawnError`], for example if the caller is not a fiber.
pub fn spawn_local<F, T>(f: F) -> Result<JoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    spawn_on_current(&Builder { is_local: true, ..Builder::default() }, f, true)
}

/// Builder that spawns fibers with a name, in a chosen pool or on a chosen worker.
///
/// ```
/// use handover_fiber::{Builder, Config, PoolConfig, Runtime};
/// let pools = vec![PoolConfig::new("work", 4), PoolConfig::new("urgent", 0)];
/// let runtime = Runtime::new(Config::default().pools(pools))?;
/// let urgent = runtime.pool("urgent").expect("find the pool urgent");
/// let fiber = Builder::new().name("answers").pool(urgent).spawn_on(&runtime.handle(), || 42)?;
/// assert_eq!(fiber.name().as_deref(), Some("answers"));
/// assert_eq!(fiber.join()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Builder {
    name: Option<Arc<str>>,
    /// Index of the pool in the configuration.
    pool: usize,
    /// Index of the worker on which the fiber starts, if [`worker`](Self::worker) has set it.
    worker: Option<u32>,
    /// `true` if the fiber never moves to another worker.
    is_local: bool,
}

impl Builder {
    /// Creates a builder with default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the fiber's name, which a message about a stack overflow contains.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the pool of the fiber, which determines its priority and the workers that may run it.
    /// For a pool of another runtime, the pool with the same index in the configuration is used; if
    /// there is none, the spawn fails with [`SpawnError::NoSuchPool`].
    #[must_use]
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pool = pool.index;
        self
    }

    /// Sets the index, from 0, of the worker on which the fiber starts. If no worker has this
    /// index, the spawn fails with [`SpawnError::NoSuchWorker`]. Default: the calling worker; for
    /// spawns from other threads, the workers round robin.
    #[must_use]
    pub fn worker(mut self, worker: u32) -> Self {
        self.worker = Some(worker);
        self
    }

    /// Spawns the fiber on the calling fiber's runtime.
    ///
    /// # Errors
    /// [`SpawnError`], for example if the caller is not a fiber.
    pub fn spawn<F, T>(&self, f: F) -> Result<JoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        spawn_on_current(self, f, true)
    }

    /// Spawns the fiber as [`spawn`](Self::spawn) does, without a handle for its result.
    ///
    /// # Errors
    /// [`SpawnError`], for example if the caller is not a fiber.
    pub fn spawn_detached<F, T>(&self, f: F) -> Result<(), SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        spawn_on_current(self, f, false).map(drop)
    }

    /// Spawns the fiber in the runtime of `handle`, from any thread.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub fn spawn_on<F, T>(&self, handle: &Handle, f: F) -> Result<JoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Ok(JoinHandle::new(spawn_in(&handle.shared, self, f, true)?))
    }

    /// Spawns the fiber as [`spawn_on`](Self::spawn_on) does, without a handle for its result.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub fn spawn_detached_on<F, T>(&self, handle: &Handle, f: F) -> Result<(), SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        spawn_in(&handle.shared, self, f, false).map(drop)
    }
}

impl Handle {
    /// Spawns a fiber as [`Runtime::spawn`](crate::Runtime::spawn) does.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub fn spawn<F, T>(&self, f: F) -> Result<JoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Builder::new().spawn_on(self, f)
    }

    /// Spawns a fiber as [`Runtime::spawn_detached`](crate::Runtime::spawn_detached) does.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub fn spawn_detached<F, T>(&self, f: F) -> Result<(), SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        spawn_in(&self.shared, &Builder::default(), f, false).map(drop)
    }
}

/// Spawns a fiber in the calling fiber's runtime; returns a handle of the new fiber.
#[inline]
fn spawn_on_current<F, T>(
    options: &Builder,
    f: F,
    is_attached: bool,
) -> Result<JoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    let worker = this_worker().ok_or(SpawnError::NotInFiber)?;
    let handle = spawn_from_worker(worker, options, f, is_attached)?;
    Ok(JoinHandle::new(handle))
}

/// Spawns a fiber in a runtime, from any thread; returns a handle of its result if `is_attached`.
fn spawn_in<F, T>(
    shared: &Arc<RuntimeState>,
    options: &Builder,
    f: F,
    is_attached: bool,
) -> Result<Option<ResultHandle<T>>, SpawnError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    if let Some(worker) = this_worker().filter(|worker| Arc::ptr_eq(worker.runtime_state(), shared))
    {
        return spawn_from_worker(worker, options, f, is_attached);
    }
    check_size::<F, T>(shared)?;
    let pool = find_pool(shared, options)?;
    let worker_index = named_worker(shared, options)?;
    let stack = shared.stacks.take_stack()?;
    // SeqCst: pairs, together with the load below, with begin_closing(), which sets the flag and
    // then counts: either the closing side counts this fiber, or this thread sees the flag.
    let number = shared.spawned_outside.fetch_add(1, Ordering::SeqCst);
    // SeqCst: pairs with the store in begin_closing(), as for fetch_add() above.
    if shared.is_closing.load(Ordering::SeqCst) {
        // Release: pairs with the Acquire in RuntimeState::spawned_outside_count().
        shared.spawned_outside.fetch_sub(1, Ordering::Release);
        shared.wake_workers();
        shared.stacks.release([stack]);
        return Err(SpawnError::ShuttingDown);
    }
    let worker = &shared.workers[worker_index.unwrap_or_else(|| pool.next_worker_index())];
    probe!("fiber.create", number);
    let spec = spec(shared, options, pool, HomeAddress::for_worker(worker), number + 1);
    let (fiber, handle) = prepare_fiber(stack, spec, is_attached, f);
    fiber.push_to_home(false);
    Ok(handle)
}

/// Returns the pool whose index `options` contain.
#[inline]
fn find_pool<'a>(
    shared: &'a RuntimeState,
    options: &Builder,
) -> Result<&'a ResolvedPool, SpawnError> {
    let pools_count = shared.pools.len();
    shared.pools.get(options.pool).ok_or(SpawnError::NoSuchPool { pool: options.pool, pools_count })
}

/// Returns the index of the worker set with [`Builder::worker`], if any. The error says that there
/// is no such worker.
#[inline]
fn named_worker(shared: &RuntimeState, options: &Builder) -> Result<Option<usize>, SpawnError> {
    let workers_count = shared.config.workers_count;
    match options.worker {
        Some(worker) if worker >= workers_count => {
            Err(SpawnError::NoSuchWorker { worker, workers_count })
        }
        worker => Ok(worker.map(|worker| worker as usize)),
    }
}

/// Returns the properties of a fiber to be spawned with `options`.
#[inline]
fn spec(
    shared: &RuntimeState,
    options: &Builder,
    pool: &ResolvedPool,
    home: HomeAddress,
    id: u64,
) -> FiberSpec {
    FiberSpec {
        home,
        priority_level: pool.level,
        pool: pool.index,
        is_local: options.is_local,
        is_worker_fixed: options.worker.is_some(),
        can_migrate: shared.can_steal_suspended,
        id,
        name: options.name.clone(),
    }
}

/// Returns an error if the closure or its result is too large for the stack.
#[inline]
fn check_size<F, T>(shared: &RuntimeState) -> Result<(), SpawnError> {
    let stack_bytes = shared.stacks.stack_bytes();
    if closure_fits::<F, T>(stack_bytes) {
        return Ok(());
    }
    Err(SpawnError::TooLarge {
        closure_bytes: size_of::<F>(),
        result_bytes: size_of::<T>(),
        stack_bytes,
    })
}

/// Spawns a fiber that drops the result of a finished fiber, whose handle was dropped earlier.
#[cold]
pub(super) fn drop_unclaimed_result(worker: &Worker, unread: UnclaimedResult) {
    let drops = move || unread.drop_result(release);
    // In the first pool, which this worker need not serve.
    let options = Builder { is_local: true, worker: Some(worker.index()), ..Builder::default() };
    // Without a stack for that fiber, the result is leaked.
    let _ = spawn_from_worker(worker, &options, drops, false);
}

/// Spawns a fiber; called by a fiber that runs on `worker`. The new fiber starts on the worker that
/// `options` name, else on `worker` if it serves the pool, else on one that does.
#[inline]
fn spawn_from_worker<F, T>(
    worker: &Worker,
    options: &Builder,
    f: F,
    is_attached: bool,
) -> Result<Option<ResultHandle<T>>, SpawnError>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    let shared = worker.runtime_state();
    check_size::<F, T>(shared)?;
    let pool = find_pool(shared, options)?;
    let is_served = pool.is_served_by(worker.index());
    let index = match named_worker(shared, options)? {
        Some(index) => index,
        None if is_served => worker.index() as usize,
        None if options.is_local => return Err(SpawnError::NotInPool { worker: worker.index() }),
        None => pool.next_worker_index(),
    };
    let stack = worker.take_stack()?;
    let id = worker.next_fiber_id();
    probe!("fiber.create", id);
    let is_here = index == worker.index() as usize;
    let home = if is_here {
        worker.home_address()
    } else {
        HomeAddress::for_worker(&shared.workers[index])
    };
    let spec = spec(shared, options, pool, home, id);
    let (fiber, handle) = prepare_fiber(stack, spec, is_attached, f);
    worker.fiber_counts().add_spawned();
    if is_here {
        worker.push_ready(fiber);
    } else {
        fiber.push_to_home(true);
    }
    Ok(handle)
}

/// Handle for waiting until a fiber has finished, and receiving its result. Dropping the handle
/// detaches the fiber.
///
/// With the feature `async`, the handle is a future as well, for any executor.
pub struct JoinHandle<T> {
    /// Handle of the fiber's result; `None` once the result was taken.
    pub(super) handle: Option<ResultHandle<T>>,
    /// Wait of the async task that awaits the handle.
    #[cfg(feature = "async")]
    pub(super) wait: TaskWait<Waiter>,
}

impl<T> JoinHandle<T> {
    fn new(handle: Option<ResultHandle<T>>) -> Self {
        Self {
            handle,
            #[cfg(feature = "async")]
            wait: TaskWait::new(),
        }
    }

    /// Waits until the fiber has finished, and returns the result of its closure.
    ///
    /// # Errors
    /// [`FiberPanic`] holds the payload if the fiber panicked.
    ///
    /// # Panics
    /// If the handle was awaited, and has returned the result.
    ///
    /// # Blocking
    /// Blocks the calling fiber, or the ordinary thread.
    #[inline(always)] // see park_running()
    pub fn join(mut self) -> Result<T, FiberPanic> {
        self.cancel_wait();
        loop {
            if let Some(result) = self.take_result() {
                return result;
            }
            if let Some(handle) = &self.handle {
                wait_for_gate(handle.finished_gate());
            }
        }
    }

    /// Returns the fiber's result, and frees its stack, if the fiber has finished. Called while no
    /// task waits.
    #[inline(always)] // in join()
    pub(super) fn take_result(&mut self) -> Option<Result<T, FiberPanic>> {
        let handle = self.handle.take().expect("the fiber's result was already taken");
        match handle.take_result() {
            Ok((result, stack)) => {
                release(stack);
                Some(result.map_err(FiberPanic))
            }
            Err(handle) => {
                self.handle = Some(handle);
                None
            }
        }
    }

    /// Ends the wait of the task that awaits the handle, if there is one.
    #[inline]
    pub(super) fn cancel_wait(&mut self) {
        #[cfg(feature = "async")]
        if let Some(handle) = &self.handle {
            self.wait.cancel(handle.finished_gate(), &Withdrawals::new(), wake_all);
        }
    }

    /// Waits for at most `timeout` until the fiber has finished; returns the fiber's result.
    /// Returns the handle on a time-out.
    ///
    /// # Errors
    /// The handle, if the fiber has not ended by then; in the inner result, [`FiberPanic`] if the
    /// fiber panicked.
    ///
    /// # Blocking
    /// As [`join`](Self::join), until the time-out.
    pub fn join_timeout(self, timeout: Duration) -> Result<Result<T, FiberPanic>, Self> {
        self.join_until_ns(deadline_ns_after(timeout))
    }

    /// Waits until the fiber has finished or `deadline` passes; returns the fiber's result. Returns
    /// the handle if the deadline passes first.
    ///
    /// # Errors
    /// As [`join_timeout`](Self::join_timeout).
    ///
    /// # Blocking
    /// As [`join`](Self::join), until the deadline.
    pub fn join_until(self, deadline: Instant) -> Result<Result<T, FiberPanic>, Self> {
        self.join_until_ns(deadline_ns_at(deadline))
    }

    /// Waits until the fiber has finished or `deadline_ns` on CLOCK_MONOTONIC passes; returns the
    /// fiber's result. Returns the handle if the deadline passes first.
    ///
    /// # Errors
    /// As [`join_timeout`](Self::join_timeout).
    ///
    /// # Blocking
    /// As [`join`](Self::join), until the deadline.
    pub fn join_until_ns(mut self, deadline_ns: u64) -> Result<Result<T, FiberPanic>, Self> {
        self.cancel_wait();
        while !self.is_finished() {
            if has_passed(deadline_ns) {
                return Err(self);
            }
            if let Some(handle) = &self.handle {
                wait_for_gate_until(handle.finished_gate(), &Withdrawals::new(), deadline_ns);
            }
        }
        Ok(self.join())
    }

    /// Returns `true` if the fiber has finished, so that [`join`](Self::join) returns at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(|handle| handle.finished_gate().is_set())
    }

    /// Returns the fiber's identification number, which is unique in its runtime.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.handle.as_ref().map_or(0, ResultHandle::id)
    }

    /// Returns the fiber's name; `None` if it has none.
    #[must_use]
    pub fn name(&self) -> Option<Arc<str>> {
        self.handle.as_ref().and_then(ResultHandle::name)
    }
}

/// Puts a free stack into the cache of this thread's worker, or into the stack pool. The cache
/// takes it if the worker uses stacks of this size.
#[inline]
fn release(stack: Stack) {
    match this_worker() {
        Some(worker) if stack.belongs_to(worker.runtime_state().stacks) => {
            worker.release_stack(stack)
        }
        _ => stack.release(),
    }
}

impl<T> Drop for JoinHandle<T> {
    #[inline]
    fn drop(&mut self) {
        self.cancel_wait();
        if let Some(handle) = self.handle.take() {
            Self::detach(handle);
        }
    }
}

impl<T> JoinHandle<T> {
    /// Detaches the fiber; drops its result if it has finished.
    #[cold]
    fn detach(handle: ResultHandle<T>) {
        if let Err(handle) = handle.abandon()
            && let Ok((result, stack)) = handle.take_result()
        {
            release(stack);
            drop(result);
        }
    }
}

handover_base::debug_struct!(JoinHandle<T> as it { id: it.id() });
