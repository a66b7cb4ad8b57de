//! Queue of the machines of a group that have messages in their inboxes: a flag on each machine,
//! and a queue of the machines whose flag is set.
//!
//! A sender that finds the flag set does nothing more: the machine is in the queue, or about to be.
//! The thread clears the flag *before* it reads the inbox, so that a message sent after the read
//! sets the flag again.
//!
//! The flag records whether the sender that enqueues the machine also wakes the thread; a quiet
//! sender does not. A waking sender that finds a quiet sender's flag may wake the thread in vain,
//! before the machine is in the queue; so the quiet sender reads the flag again after enqueueing,
//! and wakes the thread on the other's behalf.
//!
//! A quiet sender that has taken its slot in an inbox or in the queue, but has not filled it yet,
//! hides the senders behind it; a waking sender behind it also wakes the thread in vain. So the
//! thread does not sleep for long while a push has begun, into the queue or into the inbox of a
//! machine that was in the queue: see [`IncomingMessages`]. While the queue is blocked in this way,
//! the thread looks for messages in the inboxes of all machines when it is idle, and at intervals:
//! see [`ReadyQueue::is_blocked`].

use super::incoming::IncomingMessages;
use handover_base::sync::atomic::{AtomicU8, Ordering, fence};
use handover_base::sync::{CachePadded, hint};
use handover_ring::{CapacityError, PushError, mpsc};

/// Sending end of a group's queue of ready machines, shared by all senders. A machine is ready if
/// it has messages.
pub struct ReadySender {
    /// Sending end of the ring of machine indices.
    machines: mpsc::Producer<u32>,
}

/// Receiving end of a group's queue of ready machines, owned by the thread.
pub struct ReadyQueue {
    /// Indices of the machines that have messages.
    machines: mpsc::Consumer<u32>,
    /// Indices, without duplicates, of popped machines that may have messages or unfinished pushes
    /// in their inbox. Checked before a sleep.
    popped: Vec<u32>,
    /// Flag of each machine, by index: `true` if the machine is in `popped`.
    is_popped: Vec<bool>,
    /// Number of machines popped.
    pops_count: u64,
    /// Value of `pops_count` if the queue was blocked at the last call of
    /// [`is_blocked`](Self::is_blocked).
    blocked_at: Option<u64>,
}

/// Inboxes of all machines of a thread, for the check before the thread sleeps.
pub struct ThreadInboxes<'a, F> {
    ready_queue: &'a mut ReadyQueue,
    /// Function that returns, for a machine's index, the number of messages in its inbox.
    waiting_count: F,
}

/// State of one machine in the queue of ready machines: not queued, or queued with or without a
/// wake.
pub struct ReadyFlag {
    /// One of [`NOT_QUEUED`], [`QUIET`] and [`WAKING`].
    state: CachePadded<AtomicU8>,
}

/// Value of a [`ReadyFlag`]: the machine is not in the queue.
const NOT_QUEUED: u8 = 0;
/// Value of a [`ReadyFlag`]: a sender that does not wake the thread has queued the machine. It has
/// done so, or is about to.
const QUIET: u8 = 1;
/// Value of a [`ReadyFlag`]: the machine is queued, and a sender wakes the thread. Both have
/// happened, or are about to.
const WAKING: u8 = 2;

/// Creates the queue of ready machines with a slot for each of `machines_max` machines. Returns its
/// two ends.
pub fn ready_queue(machines_max: u32) -> Result<(ReadySender, ReadyQueue), CapacityError> {
    let (producer, consumer) = mpsc::ring(machines_max)?;
    let ready_queue = ReadyQueue {
        machines: consumer,
        popped: Vec::new(),
        is_popped: Vec::new(),
        pops_count: 0,
        blocked_at: None,
    };
    Ok((ReadySender { machines: producer }, ready_queue))
}

impl ReadyFlag {
    pub fn new() -> Self {
        Self { state: CachePadded::new(AtomicU8::new(NOT_QUEUED)) }
    }
}

impl ReadySender {
    /// Enqueues a machine after a push into its inbox, unless it is queued already. Returns `true`
    /// if the caller must wake the thread if it sleeps.
    #[inline]
    pub fn announce(&self, ready_flag: &ReadyFlag, machine: u32) -> bool {
        // SeqCst: pairs with the fence in ReadyQueue::pop(): either this thread sees that the flag
        // was cleared, or the popping thread sees the message in the inbox.
        fence(Ordering::SeqCst);
        // Relaxed both: ordered by the fences here, in announce_quietly() and at the wake; the
        // exchange decides which sender enqueues the machine.
        if ready_flag.state.load(Ordering::Relaxed) == WAKING {
            return false;
        }
        match ready_flag.state.swap(WAKING, Ordering::Relaxed) {
            WAKING => return false,
            QUIET => {}
            _ => self.enqueue(machine),
        }
        true
    }

    /// Enqueues a machine like [`announce`](Self::announce), but without a wake. Returns `true`,
    /// rarely, if the caller must wake the thread on behalf of a concurrent sender.
    #[inline]
    pub fn announce_quietly(&self, ready_flag: &ReadyFlag, machine: u32) -> bool {
        // SeqCst: as in announce().
        fence(Ordering::SeqCst);
        // Relaxed all: as in announce().
        let state = &ready_flag.state;
        if state.load(Ordering::Relaxed) != NOT_QUEUED
            || state
                .compare_exchange(NOT_QUEUED, QUIET, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return false;
        }
        self.enqueue(machine);
        // SeqCst: pairs with the fence between a waking sender's exchange and its check whether the
        // thread sleeps: either this thread sees that sender's flag, or the woken thread sees the
        // machine in the queue.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        state.load(Ordering::Relaxed) == WAKING
    }

    /// Pushes a machine into the queue.
    #[inline]
    fn enqueue(&self, machine: u32) {
        // The ring has space for all machines, and each is in it at most once. If it reports Full,
        // this thread does not yet see that the group has popped some of them, which it has already
        // done.
        while let Err(PushError::Full(_)) = self.machines.push(machine) {
            hint::spin_loop();
        }
    }
}

impl ReadyQueue {
    /// Removes and returns the next machine to serve, and clears its flag. Returns `None` if no
    /// machine is ready. The caller must serve the machine until its inbox is empty, or remember
    /// it.
    #[inline]
    pub fn pop<'a>(&mut self, flag_of: impl FnOnce(u32) -> Option<&'a ReadyFlag>) -> Option<u32> {
        let machine = self.machines.pop()?;
        if let Some(ready_flag) = flag_of(machine) {
            // Relaxed: ordered by the fence.
            ready_flag.state.store(NOT_QUEUED, Ordering::Relaxed);
        }
        // SeqCst: pairs with the fences in ReadySender::announce() and announce_quietly().
        fence(Ordering::SeqCst);
        self.pops_count += 1;
        self.remember(machine);
        Some(machine)
    }

    /// Adds a machine to `popped`, unless it is there.
    #[inline]
    fn remember(&mut self, machine: u32) {
        let place = machine as usize;
        if place >= self.is_popped.len() {
            self.is_popped.resize(place + 1, false);
        }
        if !std::mem::replace(&mut self.is_popped[place], true) {
            self.popped.push(machine);
        }
    }

    /// Returns the inboxes of all machines, for the check before a sleep. `waiting_count` returns
    /// the number of messages in the inbox of the machine with a given index.
    pub fn incoming<F: FnMut(u32) -> usize>(&mut self, waiting_count: F) -> ThreadInboxes<'_, F> {
        ThreadInboxes { ready_queue: self, waiting_count }
    }

    /// Returns `true` if the next slot is reserved but not filled, so that nothing can be popped.
    /// The sender may have filled it since. If `since_last_call` is `true`, the slot must have
    /// blocked the queue at the last call too.
    pub fn is_blocked(&mut self, since_last_call: bool) -> bool {
        let begun_count = self.machines.len();
        let slot = (self.machines.is_empty() && begun_count != 0).then_some(self.pops_count);
        let last = std::mem::replace(&mut self.blocked_at, slot);
        slot.is_some() && (!since_last_call || slot == last)
    }

    /// Returns `true` if no machine can be popped; senders may have enqueued one since.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.machines.is_empty()
    }
}

impl<F: FnMut(u32) -> usize> IncomingMessages for ThreadInboxes<'_, F> {
    #[inline]
    fn has_any(&self) -> bool {
        !self.ready_queue.is_empty()
    }

    fn has_begun_push(&mut self) -> bool {
        let ReadyQueue { machines, popped, is_popped, .. } = &mut *self.ready_queue;
        popped.retain(|&machine| {
            let has_push = (self.waiting_count)(machine) != 0;
            is_popped[machine as usize] = has_push;
            has_push
        });
        // Not is_empty(), which checks only whether the next slot is filled.
        let begun_count = machines.len();
        !popped.is_empty() || begun_count != 0
    }
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use crate::{Config, Context, EndReason, Group, ThreadConfig, handler};
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn machine_behind_a_preempted_sender_to_another_machine_is_served() {
        // Miri takes too long for the hundreds of messages of a busy group.
        let cases: &[bool] = if cfg!(miri) { &[false] } else { &[false, true] };
        for &is_busy in cases {
            serve_a_machine_behind_a_preempted_sender(is_busy, |group| group.run().ok());
        }
    }

    #[test]
    fn machine_behind_a_preempted_sender_is_served_by_polls() {
        serve_a_machine_behind_a_preempted_sender(false, |group| {
            (0..POLLS_MAX).find_map(|_| group.poll().expect("poll the group").end_reason)
        });
    }

    const LATEST: Duration = Duration::from_secs(10);

    /// Number of polls after which a machine that was not served never will be.
    const POLLS_MAX: u32 = 10_000;

    /// Serves a machine behind a sender to another machine, which keeps the group busy if
    /// `is_busy`.
    fn serve_a_machine_behind_a_preempted_sender(
        is_busy: bool,
        run: impl FnOnce(&mut Group) -> Option<EndReason>,
    ) {
        const WAKING: u32 = 1;
        const TIMED_OUT: u32 = 2;
        let mut group = Group::new(ThreadConfig::default()).expect("create a group");
        let other = handler(|_: u32, cx: &mut Context<'_, u32>| {
            cx.send_quiet(0).expect("send a message");
        });
        let other = group.add(other, Config::default()).expect("add a machine");
        if is_busy {
            let mut cx = group.context(&other).expect("find the machine");
            cx.send_quiet(0).expect("send a message");
        }
        let (finish, is_to_finish) = mpsc::channel();
        let finish_here = finish.clone();
        let served = handler(move |_: u32, cx: &mut Context<'_, u32>| {
            finish.send(()).expect("the sender waits");
            cx.stop();
        });
        let served = group.add(served, Config::default()).expect("add a machine");
        let mut cx = group.context(&served).expect("find the machine");
        cx.after(LATEST, TIMED_OUT).expect("start a timer");
        std::thread::scope(|scope| {
            let (has_slot, slot) = mpsc::channel();
            let to_other = other.address().clone();
            scope.spawn(move || {
                let ready_sender =
                    to_other.shared().shared_thread.ready_sender().expect("of a group");
                // A sender to `other` that loses its CPU until the machine behind it is served.
                let mut preempted = std::iter::once(to_other.shared().machine).inspect(|_| {
                    has_slot.send(()).expect("the sender thread has exited");
                    is_to_finish.recv().expect("it is served");
                });
                assert_eq!(ready_sender.machines.push_batch(&mut preempted), 1);
            });
            slot.recv().expect("it has a slot");
            served.address().send(WAKING).expect("send a message");
            let end_reason = run(&mut group);
            // If the machine was not served, the sender still waits. Otherwise it may have exited.
            let _ = finish_here.send(());
            assert_eq!(end_reason, Some(EndReason::Stopped));
        });
        let stats = group.stats(&served).expect("find the machine");
        assert_eq!(
            (stats.handled, stats.timers),
            (1, 0),
            "woken by the timer only, busy: {is_busy}"
        );
    }
}
