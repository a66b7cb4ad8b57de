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

use handover_base::sync::CachePadded;
use handover_base::sync::atomic::{AtomicU8, Ordering, fence};
use handover_ring::{CapacityError, mpsc};

/// The senders' end, one for all machines of a thread.
pub struct Marking {
    marked: mpsc::Producer<u32>,
}

/// The thread's end.
pub struct Marked {
    marked: mpsc::Consumer<u32>,
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
    Ok((Marking { marked: producer }, Marked { marked: consumer }))
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
        // There is room for all machines; it is refused only when the group is gone.
        let _ = self.marked.push(machine);
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
        Some(machine)
    }

    /// Whether nothing is there to pop; true may be stale.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.marked.is_empty()
    }
}
