//! State of a thread that other threads access.

use crate::engine::ready::ReadySender;
use crate::{WakeWhen, stage};
use handover_base::sync::CachePadded;
use handover_base::sync::atomic::{AtomicBool, Ordering, fence};
use handover_notify::Unparker;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, retry_on_intr};
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::{Arc, OnceLock};

/// State of a thread that runs machines, shared with the senders on other threads.
pub(crate) struct SharedThreadState {
    unparker: Unparker,
    flags: CachePadded<ThreadFlags>,
    /// Eventfd that interrupts a sleep in epoll; created before the first such sleep.
    eventfd: OnceLock<OwnedFd>,
    /// Sending end of the group's queue of ready machines; `None` if the thread runs one machine.
    ready_sender: Option<ReadySender>,
    wake_when: WakeWhen,
}

/// Flags that other threads set. Rarely written, so that every CPU keeps a copy of their cache
/// line.
struct ThreadFlags {
    /// `true` if a stop was requested.
    stop: AtomicBool,
    /// `true` once a task has waited for space in an inbox of this thread's machines.
    async_senders: AtomicBool,
}

impl SharedThreadState {
    pub(crate) fn new(ready_sender: Option<ReadySender>, wake_when: WakeWhen) -> Arc<Self> {
        Arc::new(Self {
            unparker: Unparker::new(),
            flags: CachePadded::new(ThreadFlags {
                stop: AtomicBool::new(false),
                async_senders: AtomicBool::new(false),
            }),
            eventfd: OnceLock::new(),
            ready_sender,
            wake_when,
        })
    }

    /// Wakes the thread if it sleeps; returns `true` if it slept. Under [`WakeWhen::EachMessage`],
    /// makes the system call even if the thread is awake. Called after the message was enqueued.
    #[inline]
    pub(crate) fn wake(&self) -> bool {
        let has_woken = self.unparker.unpark_with(|| self.wake_sleeper());
        if has_woken {
            stage::record_notified();
        } else if self.notifies_each_message() {
            self.wake_sleeper();
        }
        has_woken
    }

    /// Returns `true` if a sender makes a system call for each message. It does so even if the
    /// thread is awake.
    #[inline]
    pub(crate) fn notifies_each_message(&self) -> bool {
        self.wake_when == WakeWhen::EachMessage
    }

    /// Interrupts the thread's sleep in epoll by a write to its eventfd. Does nothing if it has
    /// none.
    #[cold]
    fn wake_sleeper(&self) {
        // Acquire: pairs with the fence in eventfd(), by the unparker's word: it says that the
        // thread sleeps in epoll, which it does only after that fence.
        fence(Ordering::Acquire);
        let Some(eventfd) = self.eventfd.get() else { return };
        match retry_on_intr(|| rustix::io::write(eventfd, &1u64.to_ne_bytes())) {
            // EAGAIN: its count is at the maximum, which also makes it readable.
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(errno) => panic!("write to an eventfd failed: {errno}"),
        }
    }

    pub(crate) fn unparker(&self) -> &Unparker {
        &self.unparker
    }

    pub(crate) fn ready_sender(&self) -> Option<&ReadySender> {
        self.ready_sender.as_ref()
    }

    /// Returns the eventfd that interrupts a sleep in epoll, created on first use.
    pub(crate) fn eventfd(&self) -> io::Result<&OwnedFd> {
        if let Some(eventfd) = self.eventfd.get() {
            return Ok(eventfd);
        }
        let created = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let eventfd = self.eventfd.get_or_init(|| created);
        // Release: pairs with the fence in wake_sleeper().
        fence(Ordering::Release);
        Ok(eventfd)
    }

    /// Requests the thread to stop.
    pub(crate) fn stop(&self) {
        // Release: pairs with the Acquire in take_stop_request().
        self.flags.stop.store(true, Ordering::Release);
        self.wake();
    }

    #[inline]
    pub(crate) fn is_stop_requested(&self) -> bool {
        // Relaxed: a hint; take_stop_request() acquires.
        self.flags.stop.load(Ordering::Relaxed)
    }

    /// Returns `true` if a stop was requested, and clears the request.
    pub(crate) fn take_stop_request(&self) -> bool {
        // Acquire: pairs with the Release in stop().
        self.is_stop_requested() && self.flags.stop.swap(false, Ordering::Acquire)
    }

    /// Records that a task waits for space in an inbox; called before the task wakes this thread.
    #[cfg(feature = "async")]
    pub(crate) fn set_async_senders(&self) {
        if !self.has_async_senders() {
            // Relaxed: ordered by the fences of the wake and of the thread's declaration that it
            // sleeps.
            self.flags.async_senders.store(true, Ordering::Relaxed);
        }
    }

    /// Returns `true` once a task has waited for space in an inbox of this thread's machines.
    #[inline]
    pub(crate) fn has_async_senders(&self) -> bool {
        // Relaxed: as in set_async_senders().
        cfg!(feature = "async") && self.flags.async_senders.load(Ordering::Relaxed)
    }

    /// Returns `true` if the thread must not sleep, because of a stop request or a new waiting
    /// task. The task is new if it began to wait for space after `had_async_senders` was read as
    /// `false`.
    #[inline]
    pub(crate) fn is_interrupted(&self, had_async_senders: bool) -> bool {
        self.is_stop_requested() || (!had_async_senders && self.has_async_senders())
    }

    /// Registers the calling thread as the thread that runs these machines, until the returned
    /// guard is dropped.
    pub(crate) fn enter_run(&self) -> RunGuard {
        let state = ptr::from_ref(self);
        // Fails while the thread's locals are dropped; then is_running_here() returns `false`.
        let _ = RUNNING_HERE.try_with(|running| running.borrow_mut().push(state));
        RunGuard { state }
    }

    /// Returns `true` if the calling thread currently runs these machines.
    pub(crate) fn is_running_here(&self) -> bool {
        let is_here =
            RUNNING_HERE.try_with(|running| running.borrow().contains(&ptr::from_ref(self)));
        is_here.unwrap_or(false)
    }
}

thread_local! {
    /// Shared states of the machines that the present thread runs. There is more than one if a
    /// handler runs other machines, or several fibers run machines. The pointers are compared,
    /// never dereferenced.
    static RUNNING_HERE: RefCell<Vec<*const SharedThreadState>> = const { RefCell::new(Vec::new()) };
}

/// Guard that ends the registration by [`SharedThreadState::enter_run`] when it is dropped.
pub(crate) struct RunGuard {
    /// Pointer to the state that was registered.
    state: *const SharedThreadState,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let _ = RUNNING_HERE.try_with(|running| {
            let mut running = running.borrow_mut();
            // Not always the last one: the runs of several fibers may overlap.
            if let Some(at) = running.iter().rposition(|it| *it == self.state) {
                running.swap_remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_runs_end_in_any_order() {
        let [one, other] = [(); 2].map(|()| SharedThreadState::new(None, WakeWhen::default()));
        let run = one.enter_run();
        let other_run = other.enter_run();
        drop(run);
        assert!(other.is_running_here() && !one.is_running_here());
        drop(other_run);
        assert!(!other.is_running_here());
    }
}
