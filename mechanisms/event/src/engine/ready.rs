//! Which machines of a group have something in their inboxes: a mark at each, and a queue of those
//! that were marked.
//!
//! A sender that finds the mark set leaves it at that: the machine stands in the queue, or is about
//! to. The thread takes the mark away *before* it looks into the inbox, so that what comes after the
//! look sets it again.
//!
//! The mark says whether whoever put the machine into the queue wakes the thread. A caller does not.
//! But a passer that finds the caller's mark may wake the thread before the machine stands in the
//! queue, and in vain; so the caller looks again afterwards, and wakes on its behalf.
//!
//! A caller that has its place in an inbox or in the queue, but has not filled it yet, hides whoever
//! comes behind it. A passer behind it wakes the thread in vain, too. So the thread does not sleep for
//! long while a push has begun, into the queue or into the inbox of a machine that stood in it: see
//! [`Incoming`].

use super::incoming::Incoming;
use handover_base::sync::atomic::{AtomicU8, Ordering, fence};
use handover_base::sync::{CachePadded, hint};
use handover_ring::{CapacityError, PushError, mpsc};

/// The senders' end, one for all machines of a thread.
pub struct Marking {
    marked: mpsc::Producer<u32>,
}

/// The thread's end.
pub struct Marked {
    marked: mpsc::Consumer<u32>,
    /// The machines that were popped, each once, until their inboxes were seen without a push that
    /// has begun.
    popped: Vec<u32>,
    /// Whether a machine is among them.
    is_popped: Vec<bool>,
}

/// The inboxes of a thread's machines.
pub struct MarkedInboxes<'a, F> {
    marked: &'a mut Marked,
    waiting_count: F,
}

/// The mark of one machine.
pub struct Mark {
    state: CachePadded<AtomicU8>,
}

const NONE: u8 = 0;
/// It stands in the queue, or is about to, by somebody who does not wake the thread.
const CALLED: u8 = 1;
/// The same, and somebody wakes the thread, or is about to.
const PASSED: u8 = 2;

/// Room for all: each machine stands in the queue once at most.
pub fn marks(machines_max: u32) -> Result<(Marking, Marked), CapacityError> {
    let (producer, consumer) = mpsc::ring(machines_max)?;
    let marked = Marked { marked: consumer, popped: Vec::new(), is_popped: Vec::new() };
    Ok((Marking { marked: producer }, marked))
}

impl Mark {
    pub fn new() -> Self {
        Self { state: CachePadded::new(AtomicU8::new(NONE)) }
    }
}

impl Marking {
    /// Sender, *after* it has put something into the inbox of `machine`: puts the machine into the
    /// queue, unless it stands there. True: the thread must be woken if it sleeps.
    #[inline]
    pub fn pass(&self, mark: &Mark, machine: u32) -> bool {
        // SeqCst: pairs with the fence in Marked::pop(): either we see that the mark was taken away,
        // or the thread sees what we put into the inbox.
        fence(Ordering::SeqCst);
        // Relaxed both: ordered by the fences here, in call() and where the thread is woken; the
        // exchange decides who puts it into the queue.
        if mark.state.load(Ordering::Relaxed) == PASSED {
            return false;
        }
        match mark.state.swap(PASSED, Ordering::Relaxed) {
            PASSED => return false,
            CALLED => {}
            _ => self.enqueue(machine),
        }
        true
    }

    /// As [`pass`](Self::pass), by a sender who does not want to wake the thread. True, which is
    /// rare: it must be woken all the same, for somebody else.
    #[inline]
    pub fn call(&self, mark: &Mark, machine: u32) -> bool {
        // SeqCst: as in pass().
        fence(Ordering::SeqCst);
        // Relaxed all: as in pass().
        let state = &mark.state;
        if state.load(Ordering::Relaxed) != NONE
            || state.compare_exchange(NONE, CALLED, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return false;
        }
        self.enqueue(machine);
        // SeqCst: pairs with the fence between a passer's exchange and its look at whether the
        // thread sleeps: either we see its mark, or who it wakes sees the machine in the queue.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        state.load(Ordering::Relaxed) == PASSED
    }

    #[inline]
    fn enqueue(&self, machine: u32) {
        // It has room for all machines, and each stands in it once at most. If it says that it is full,
        // this thread does not see yet that the group has popped some of them; which it has done.
        while let Err(PushError::Full(_)) = self.marked.push(machine) {
            hint::spin_loop();
        }
    }
}

impl Marked {
    /// The next machine to look at. Its mark, if it has one still, has been taken away, so look until
    /// its inbox is empty, or remember it.
    #[inline]
    pub fn pop<'a>(&mut self, mark_of: impl FnOnce(u32) -> Option<&'a Mark>) -> Option<u32> {
        let machine = self.marked.pop()?;
        if let Some(mark) = mark_of(machine) {
            // Relaxed: ordered by the fence.
            mark.state.store(NONE, Ordering::Relaxed);
        }
        // SeqCst: pairs with the fences in Marking::pass() and call().
        fence(Ordering::SeqCst);
        self.remember(machine);
        Some(machine)
    }

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

    /// The messages of other threads for all machines; `waiting_count` is the length of a machine's
    /// inbox.
    pub fn incoming<F: FnMut(u32) -> usize>(&mut self, waiting_count: F) -> MarkedInboxes<'_, F> {
        MarkedInboxes { marked: self, waiting_count }
    }

    /// Whether nothing is there to pop; true may be stale.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.marked.is_empty()
    }
}

impl<F: FnMut(u32) -> usize> Incoming for MarkedInboxes<'_, F> {
    #[inline]
    fn has_any(&self) -> bool {
        !self.marked.is_empty()
    }

    fn has_begun_push(&mut self) -> bool {
        let Marked { marked, popped, is_popped } = &mut *self.marked;
        popped.retain(|&machine| {
            let is_kept = (self.waiting_count)(machine) != 0;
            is_popped[machine as usize] = is_kept;
            is_kept
        });
        // Not is_empty(), which asks only whether the next machine is filled in.
        let begun_count = marked.len();
        !popped.is_empty() || begun_count != 0
    }
}
