//! Queue of the wakers of tasks that wait for a condition.
//!
//! A thread changes the condition and then wakes; a task registers its waker and then checks the
//! condition again. **No wake-up is lost**, because both put a sequentially consistent fence
//! between their write and their read: one of the two fences comes first, and the side with the
//! second fence sees the other side's write. The task sees the condition, or the thread sees the
//! registration.

use crate::sync::atomic::{AtomicBool, Ordering, fence};
use crate::sync::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::PoisonError;
use std::task::Waker;
#[cfg(not(handover_loom))]
use std::{
    sync::Arc,
    task::{Context, Poll, Wake},
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// Wakers of tasks that wait for a condition, in the order of their registration.
///
/// ```
/// use handover_base::wakers::{Registration, WakerQueue};
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::task::{Context, Poll, Waker};
///
/// struct Flag {
///     is_set: AtomicBool,
///     tasks: WakerQueue,
/// }
///
/// impl Flag {
///     fn set(&self) {
///         self.is_set.store(true, Ordering::Release); // pairs with the Acquire in poll_set()
///         self.tasks.wake_all(); // after the condition has changed
///     }
///
///     fn poll_set(&self, registration: &mut Registration, context: &mut Context<'_>) -> Poll<()> {
///         let is_set = || self.is_set.load(Ordering::Acquire); // pairs with the Release in set()
///         if !is_set() {
///             self.tasks.register(registration, context.waker());
///             if !is_set() {
///                 return Poll::Pending; // checked after the registration: set() will wake
///             }
///         }
///         self.tasks.unregister(registration);
///         Poll::Ready(())
///     }
/// }
///
/// let flag = Flag { is_set: AtomicBool::new(false), tasks: WakerQueue::new() };
/// let (mut registration, mut context) = (Registration::default(), Context::from_waker(Waker::noop()));
/// assert!(flag.poll_set(&mut registration, &mut context).is_pending());
/// flag.set();
/// assert!(flag.poll_set(&mut registration, &mut context).is_ready());
/// ```
#[derive(Debug, Default)]
pub struct WakerQueue {
    /// `true` while a task is registered; written with the lock held.
    is_awaited: AtomicBool,
    registered: Mutex<Registered>,
}

/// Registered wakers.
#[derive(Debug, Default)]
struct Registered {
    /// Numbers of the registrations, each with its waker, in ascending order.
    wakers: VecDeque<(u64, Waker)>,
    /// Number of registrations since the queue was created.
    registrations_count: u64,
}

/// Registration of one task in a [`WakerQueue`]; empty by default. Use it with one queue only.
#[derive(Debug, Default)]
pub struct Registration(Option<u64>);

impl WakerQueue {
    /// Creates a queue without wakers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a task, or replaces the waker of a registered task. *Afterwards* the task must
    /// check its condition once more, and wait only if the condition is not met.
    ///
    /// # Blocking
    /// For the lock of the queue, which other threads hold for some instructions.
    ///
    /// # Cost
    /// A lock and a fence; another lock and a clone of the waker unless the same waker is
    /// registered already. Allocates memory if more tasks wait than ever before.
    pub fn register(&self, registration: &mut Registration, waker: &Waker) {
        if !self.is_registered(registration, waker) {
            // Cloned, and the replaced waker dropped, without the lock: both call foreign code.
            let replaced = self.insert(registration, waker.clone());
            drop(replaced);
        }
        // SeqCst: pairs with the fence in is_awaited(); see the module's description.
        fence(Ordering::SeqCst);
    }

    /// Returns `true` if the registration has a waker that wakes the same task.
    fn is_registered(&self, registration: &Registration, waker: &Waker) -> bool {
        let registered = self.lock();
        registered.find(registration).is_some_and(|at| registered.wakers[at].1.will_wake(waker))
    }

    /// Adds a waker, or replaces and returns the registered one.
    fn insert(&self, registration: &mut Registration, waker: Waker) -> Option<Waker> {
        let mut registered = self.lock();
        if let Some(at) = registered.find(registration) {
            return Some(std::mem::replace(&mut registered.wakers[at].1, waker));
        }
        let number = registered.registrations_count;
        registered.registrations_count += 1;
        registered.wakers.push_back((number, waker));
        registration.0 = Some(number);
        // Relaxed: ordered by the fences.
        self.is_awaited.store(true, Ordering::Relaxed);
        None
    }

    /// Removes a task, because it does not wait any more. Returns `false` if the queue has woken
    /// this task since it registered. With [`wake_one`](Self::wake_one), such a task must wake the
    /// next one if it does not use what it was woken for, or if it took something while it was
    /// registered: the wake-up may have been for the next piece.
    ///
    /// # Cost
    /// A lock, unless the registration is empty.
    pub fn unregister(&self, registration: &mut Registration) -> bool {
        if registration.0.is_none() {
            return true;
        }
        let mut registered = self.lock();
        let removed = registered.find(registration).and_then(|at| registered.wakers.remove(at));
        self.update_is_awaited(&registered);
        drop(registered);
        registration.0 = None;
        removed.is_some()
    }

    /// Wakes the task that has waited longest; returns `false` if none waits. Called *after* the
    /// condition has changed.
    ///
    /// # Panics
    /// If the waker does.
    ///
    /// # Cost
    /// If no task waits, a fence and a load of a line that is written when a task registers or is
    /// woken.
    #[inline]
    pub fn wake_one(&self) -> bool {
        self.is_awaited() && self.take_and_wake()
    }

    /// Wakes all registered tasks. Called *after* the condition has changed.
    ///
    /// # Panics
    /// If a waker does; the tasks after it are then not woken.
    ///
    /// # Cost
    /// Like [`wake_one`](Self::wake_one) for each task.
    pub fn wake_all(&self) {
        if self.is_awaited() {
            let mut registered = self.lock();
            let wakers = std::mem::take(&mut registered.wakers);
            self.update_is_awaited(&registered);
            drop(registered);
            wakers.into_iter().for_each(|(_, waker)| waker.wake());
        }
    }

    /// Returns `true` if no task is registered. Without a sequentially consistent fence between the
    /// change of the condition and this call, a task may be missed; [`wake_one`](Self::wake_one)
    /// has that fence.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Relaxed: ordered by a fence of the caller, if it needs one.
        !self.is_awaited.load(Ordering::Relaxed)
    }

    /// Returns `true` if a task is registered, as seen after a fence.
    #[inline]
    fn is_awaited(&self) -> bool {
        // SeqCst: pairs with the fence in register(); see the module's description.
        fence(Ordering::SeqCst);
        !self.is_empty()
    }

    /// Removes the first registered waker and wakes its task; returns `false` if there is none.
    #[cold]
    fn take_and_wake(&self) -> bool {
        let mut registered = self.lock();
        let first = registered.wakers.pop_front();
        self.update_is_awaited(&registered);
        drop(registered);
        first.map(|(_, waker)| waker.wake()).is_some()
    }

    /// Sets `is_awaited` to `true` if a task is registered, and to `false` otherwise.
    fn update_is_awaited(&self, registered: &Registered) {
        // Relaxed: written with the lock held. A thread that reads `false` too early misses no
        // task: a task that registers later checks its condition after its fence.
        self.is_awaited.store(!registered.wakers.is_empty(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Registered> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    /// Returns the index of a registration; `None` if the task was woken, or never registered.
    fn find(&self, registration: &Registration) -> Option<usize> {
        let number = registration.0?;
        // Numbers grow from the front to the back.
        self.wakers.binary_search_by_key(&number, |(number, _)| *number).ok()
    }
}

/// Calls `poll` until it is ready or `deadline` has passed. Returns `None` if it was not ready at
/// the deadline; there is no limit if `deadline` is `None`. The thread sleeps in between, until the
/// waker of the context is called.
///
/// ```
/// use handover_base::wakers::block_until;
/// use std::task::Poll;
/// use std::time::Instant;
/// assert_eq!(block_until(None, |_| Poll::Ready(1)), Some(1));
/// assert_eq!(block_until(Some(Instant::now()), |_| Poll::<()>::Pending), None);
/// ```
///
/// # Blocking
/// Sleeps after each call that returns `Pending`, until the waker is called or the deadline passes.
///
/// # Cost
/// An allocation for the waker.
#[cfg(not(handover_loom))]
pub fn block_until<R>(
    deadline: Option<Instant>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>,
) -> Option<R> {
    let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = poll(&mut context) {
            return Some(result);
        }
        match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            None => thread::park(),
            Some(Duration::ZERO) => return None,
            Some(left) => thread::park_timeout(left),
        }
    }
}

/// Waker that unparks a thread.
#[cfg(not(handover_loom))]
struct ThreadWaker(Thread);

#[cfg(not(handover_loom))]
impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    /// Counts how often its task is woken.
    #[derive(Default)]
    struct Task(AtomicU32);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn tasks<const N: usize>() -> [(Arc<Task>, Waker, Registration); N] {
        std::array::from_fn(|_| {
            let task = Arc::new(Task::default());
            (Arc::clone(&task), Waker::from(task), Registration::default())
        })
    }

    fn wakes(task: &Task) -> u32 {
        task.0.load(Ordering::Relaxed)
    }

    #[test]
    fn tasks_are_woken_once_in_the_order_of_registration() {
        let queue = WakerQueue::new();
        assert!(!queue.wake_one(), "woke a task although none is registered");
        let [(a, a_waker, mut a_registered), (b, b_waker, mut b_registered)] = tasks();
        queue.register(&mut a_registered, &a_waker);
        queue.register(&mut b_registered, &b_waker);
        queue.register(&mut a_registered, &a_waker);
        assert!(queue.wake_one());
        assert_eq!((wakes(&a), wakes(&b)), (1, 0), "registering again moved the task back");
        assert!(queue.wake_one());
        assert!(!queue.wake_one());
        assert_eq!((wakes(&a), wakes(&b)), (1, 1));
        queue.register(&mut a_registered, &a_waker);
        queue.register(&mut b_registered, &b_waker);
        queue.wake_all();
        queue.wake_all();
        assert_eq!((wakes(&a), wakes(&b)), (2, 2));
    }

    #[test]
    fn replaced_waker_is_dropped_and_not_woken() {
        let queue = WakerQueue::new();
        let [(a, a_waker, mut registered), (b, b_waker, _)] = tasks();
        queue.register(&mut registered, &a_waker);
        drop(a_waker);
        assert_eq!(Arc::strong_count(&a), 2, "the queue has no waker of the task");
        queue.register(&mut registered, &b_waker);
        assert_eq!(Arc::strong_count(&a), 1, "the queue keeps a replaced waker");
        queue.wake_all();
        assert_eq!((wakes(&a), wakes(&b)), (0, 1));
    }

    #[test]
    fn unregistered_task_is_not_woken_and_learns_of_an_earlier_wake() {
        let queue = WakerQueue::new();
        let [(a, a_waker, mut a_registered), (b, b_waker, mut b_registered)] = tasks();
        assert!(queue.unregister(&mut a_registered), "woken without a registration");
        queue.register(&mut a_registered, &a_waker);
        queue.register(&mut b_registered, &b_waker);
        assert!(queue.unregister(&mut a_registered));
        assert!(queue.wake_one());
        assert_eq!((wakes(&a), wakes(&b)), (0, 1));
        assert!(!queue.unregister(&mut b_registered), "the queue has woken this task");
        assert!(queue.unregister(&mut b_registered), "the wake was reported twice");
        assert!(queue.is_empty());
    }
}
