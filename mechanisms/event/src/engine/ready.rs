//! Which machines of a group have something in their inboxes: a mark at each, and a queue of those
//! that were marked.
//!
//! A sender that finds the mark set leaves it at that: the machine stands in the queue, or is about
//! to be looked at. The thread takes the mark away *before* it looks into the inbox, so that what
//! comes after the look sets it again.

use handover_base::sync::CachePadded;
use handover_base::sync::atomic::{AtomicBool, Ordering, fence};
use handover_ring::{CapacityError, mpsc};

/// The senders' end, one for all machines of a thread.
pub(crate) struct Marking {
    marked: mpsc::Producer<u32>,
}

/// The thread's end.
pub(crate) struct Marked {
    marked: mpsc::Consumer<u32>,
}

/// The mark of one machine.
pub(crate) struct Mark {
    is_set: CachePadded<AtomicBool>,
}

/// Room for all: each machine stands in the queue once at most.
pub(crate) fn marks(machines_max: u32) -> Result<(Marking, Marked), CapacityError> {
    let (producer, consumer) = mpsc::ring(machines_max)?;
    Ok((Marking { marked: producer }, Marked { marked: consumer }))
}

impl Mark {
    pub(crate) fn new() -> Self {
        Self { is_set: CachePadded::new(AtomicBool::new(false)) }
    }
}

impl Marking {
    /// Sender, *after* it has put something into the inbox of `machine`: puts the machine into the
    /// queue, unless it stands there. Whether the thread sleeps is another question.
    #[inline]
    pub(crate) fn set(&self, mark: &Mark, machine: u32) {
        // SeqCst: pairs with the fence in Marked::pop(): either we see that the mark was taken away,
        // or the thread sees what we put into the inbox.
        fence(Ordering::SeqCst);
        // Relaxed both: ordered by the fence; the exchange decides who puts it into the queue.
        if mark.is_set.load(Ordering::Relaxed) || mark.is_set.swap(true, Ordering::Relaxed) {
            return;
        }
        // Refused only when the group is gone.
        let _ = self.marked.push(machine);
    }
}

impl Marked {
    /// The next machine to look at. Its mark, if it has one still, has been taken away, so look until
    /// its inbox is empty, or remember it.
    #[inline]
    pub(crate) fn pop<'a>(&mut self, mark_of: impl FnOnce(u32) -> Option<&'a Mark>) -> Option<u32> {
        let machine = self.marked.pop()?;
        if let Some(mark) = mark_of(machine) {
            // Relaxed: ordered by the fence.
            mark.is_set.store(false, Ordering::Relaxed);
        }
        // SeqCst: pairs with the fence in Marking::set().
        fence(Ordering::SeqCst);
        Some(machine)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.marked.is_empty()
    }
}
