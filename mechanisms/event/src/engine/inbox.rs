//! Queue of messages from other threads, in two kinds.

use handover_base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use handover_base::sync::{Arc, CachePadded, Mutex, MutexGuard};
use handover_ring::{CapacityError, PushError, mpsc};
use std::collections::VecDeque;
use std::sync::PoisonError;

/// Sending end of an inbox, shared by all senders.
pub enum InboxSender<M> {
    /// Ring that refuses messages when it is full.
    Ring(mpsc::Producer<M>),
    /// Queue that drops its oldest message when it is full.
    DropOldest(Arc<DropOldestQueue<M>>),
}

/// Receiving end of an inbox, owned by the machine. Dropping it closes the queue.
pub enum Inbox<M> {
    Ring(mpsc::Consumer<M>),
    DropOldest {
        queue: Arc<DropOldestQueue<M>>,
        /// Messages removed from the queue in one batch, so that a pop seldom takes the lock. They
        /// count in addition to `messages_max`: at most `BATCH_MAX - 1` stay here after a pop.
        batch: VecDeque<M>,
    },
}

/// Queue, protected by a lock, that drops its oldest message when a push finds it full.
pub struct DropOldestQueue<M> {
    messages: CachePadded<Mutex<VecDeque<M>>>,
    messages_max: usize,
    /// Copy of the queue's length, to be read without the lock.
    len: AtomicUsize,
    /// Number of messages dropped because newer ones arrived.
    dropped: AtomicU64,
    /// `true` once the inbox is closed.
    closed: AtomicBool,
}

/// Maximum number of messages removed from the queue in one batch.
const BATCH_MAX: usize = 64;

/// Creates an inbox that refuses messages when it is full; returns its two ends.
pub fn ring_inbox<M>(messages_max: u32) -> Result<(InboxSender<M>, Inbox<M>), CapacityError> {
    let (producer, consumer) = mpsc::ring(messages_max)?;
    Ok((InboxSender::Ring(producer), Inbox::Ring(consumer)))
}

/// Creates an inbox that drops its oldest message when it is full; returns its two ends.
pub fn drop_oldest_inbox<M>(
    messages_max: u32,
) -> Result<(InboxSender<M>, Inbox<M>), CapacityError> {
    let allocate = |slots_count: usize| {
        let mut slots = VecDeque::new();
        let slot_bytes = size_of::<M>();
        match slots.try_reserve_exact(slots_count) {
            Ok(()) => Ok(slots),
            Err(_) => Err(CapacityError::OutOfMemory { slots_count: messages_max, slot_bytes }),
        }
    };
    let slots_count = messages_max as usize;
    let (messages, batch) = (allocate(slots_count)?, allocate(slots_count.min(BATCH_MAX))?);
    let queue = Arc::new(DropOldestQueue {
        messages: CachePadded::new(Mutex::new(messages)),
        messages_max: slots_count,
        len: AtomicUsize::new(0),
        dropped: AtomicU64::new(0),
        closed: AtomicBool::new(false),
    });
    Ok((InboxSender::DropOldest(Arc::clone(&queue)), Inbox::DropOldest { queue, batch }))
}

impl<M> InboxSender<M> {
    /// Pushes a message; `Err` with the message if the inbox is closed, or is a full ring.
    #[inline]
    pub fn push(&self, message: M) -> Result<(), PushError<M>> {
        match self {
            InboxSender::Ring(producer) => producer.push(message),
            InboxSender::DropOldest(queue) => queue.push(message),
        }
    }

    /// Pushes a message like [`push`](Self::push), but returns it if the inbox is full, of either
    /// kind.
    pub(crate) fn push_unless_full(&self, message: M) -> Result<(), PushError<M>> {
        match self {
            InboxSender::Ring(producer) => producer.push(message),
            InboxSender::DropOldest(queue) => queue.push_unless_full(message),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        match self {
            InboxSender::Ring(producer) => producer.is_closed(),
            // Relaxed: a hint; push() checks again under the lock.
            InboxSender::DropOldest(queue) => queue.closed.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of queued messages; it may have changed since.
    pub(crate) fn len(&self) -> usize {
        match self {
            InboxSender::Ring(producer) => producer.len(),
            // Relaxed: a figure.
            InboxSender::DropOldest(queue) => queue.len.load(Ordering::Relaxed),
        }
    }
}

impl<M> DropOldestQueue<M> {
    fn lock(&self) -> MutexGuard<'_, VecDeque<M>> {
        // No code under the lock panics but the allocator; the queue is consistent in any case.
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, message: M) -> Result<(), PushError<M>> {
        let oldest = {
            let mut messages = self.lock();
            // Relaxed: written under the lock.
            if self.closed.load(Ordering::Relaxed) {
                return Err(PushError::Closed(message));
            }
            let full = messages.len() >= self.messages_max;
            let oldest = if full { messages.pop_front() } else { None };
            if oldest.is_some() {
                // Relaxed: a count. Changed under the lock, so that the count is final once the
                // queue is closed.
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            messages.push_back(message);
            // Release: pairs with the Acquire in Inbox::is_empty().
            self.len.store(messages.len(), Ordering::Release);
            oldest
        };
        drop(oldest); // after the lock is released
        Ok(())
    }

    fn push_unless_full(&self, message: M) -> Result<(), PushError<M>> {
        let mut messages = self.lock();
        // Relaxed: written under the lock.
        if self.closed.load(Ordering::Relaxed) {
            return Err(PushError::Closed(message));
        }
        if messages.len() >= self.messages_max {
            return Err(PushError::Full(message));
        }
        messages.push_back(message);
        // Release: pairs with the Acquire in Inbox::is_empty().
        self.len.store(messages.len(), Ordering::Release);
        Ok(())
    }
}

impl<M> Inbox<M> {
    /// Removes and returns the next message; `None` if the inbox is empty. Always inlined: an
    /// out-of-line call would return the message through memory, and so would the dispatch of local
    /// messages, which shares the code (9.5 instead of 3.8 ns for a message to oneself).
    #[inline(always)]
    pub fn pop(&mut self) -> Option<M> {
        match self {
            Inbox::Ring(consumer) => consumer.pop(),
            Inbox::DropOldest { queue, batch } => {
                if batch.is_empty() {
                    // Relaxed: a hint; the lock orders the accesses.
                    if queue.len.load(Ordering::Relaxed) == 0 {
                        return None;
                    }
                    let mut messages = queue.lock();
                    let count = messages.len().min(BATCH_MAX);
                    batch.extend(messages.drain(..count));
                    // Release: pairs with the Acquire in is_empty().
                    queue.len.store(messages.len(), Ordering::Release);
                }
                batch.pop_front()
            }
        }
    }

    /// Returns `true` if no message can be popped; senders may have pushed one since.
    #[inline]
    pub fn is_empty(&self) -> bool {
        match self {
            Inbox::Ring(consumer) => consumer.is_empty(),
            Inbox::DropOldest { queue, batch } => {
                // Acquire: pairs with the Release in push().
                batch.is_empty() && queue.len.load(Ordering::Acquire) == 0
            }
        }
    }

    /// Returns the number of queued messages, including those whose push has started and is not
    /// finished.
    pub fn len(&self) -> usize {
        match self {
            Inbox::Ring(consumer) => consumer.len(),
            // Relaxed: a figure.
            Inbox::DropOldest { queue, batch } => batch.len() + queue.len.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of messages that were dropped because newer ones arrived.
    pub fn dropped_count(&self) -> u64 {
        match self {
            Inbox::Ring(_) => 0,
            // Relaxed: a count.
            Inbox::DropOldest { queue, .. } => queue.dropped.load(Ordering::Relaxed),
        }
    }

    /// Closes the inbox, so that every later push is refused.
    pub fn close(&mut self) {
        match self {
            Inbox::Ring(consumer) => consumer.close(),
            Inbox::DropOldest { queue, .. } => {
                let _messages = queue.lock();
                // Relaxed: written and read under the lock.
                queue.closed.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns `true` if the queue is empty and no push is in progress; called after
    /// [`close`](Self::close).
    pub fn is_finished(&self) -> bool {
        match self {
            Inbox::Ring(consumer) => consumer.is_finished(),
            // A push that began before close() has ended, since both hold the lock.
            Inbox::DropOldest { .. } => self.is_empty(),
        }
    }
}

impl<M> Drop for Inbox<M> {
    fn drop(&mut self) {
        self.close();
        if let Inbox::DropOldest { queue, .. } = self {
            let left = std::mem::take(&mut *queue.lock());
            // Relaxed: a mere statistic from now on.
            queue.len.store(0, Ordering::Relaxed);
            drop(left);
        }
    }
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;

    #[test]
    fn full_queue_drops_and_counts_the_oldest_messages() {
        let (inbox_sender, mut inbox) = drop_oldest_inbox(3).expect("create a queue");
        for number in 0..10 {
            assert!(inbox_sender.push(number).is_ok());
        }
        assert_eq!((inbox.dropped_count(), inbox.len()), (7, 3));
        assert_eq!(std::iter::from_fn(|| inbox.pop()).collect::<Vec<_>>(), [7, 8, 9]);
        assert!(inbox.is_empty());
    }

    #[test]
    fn queue_that_drops_the_oldest_holds_messages_max_and_the_rest_of_one_batch() {
        for messages_max in [1, 3, BATCH_MAX, 1000] {
            let (inbox_sender, mut inbox) =
                drop_oldest_inbox(messages_max as u32).expect("create a queue");
            let fill = || (0..2 * messages_max).for_each(|it| inbox_sender.push(it).expect("open"));
            fill();
            assert!(inbox.pop().is_some());
            fill();
            assert_eq!(inbox.len(), messages_max + messages_max.min(BATCH_MAX) - 1);
        }
    }

    #[test]
    fn closed_inbox_refuses_new_messages_and_returns_earlier_ones() {
        for ends in [ring_inbox(4), drop_oldest_inbox(4)] {
            let (inbox_sender, mut inbox) = ends.expect("create an inbox");
            assert!(inbox_sender.push(1).is_ok());
            inbox.close();
            assert!(inbox_sender.is_closed());
            assert_eq!(inbox_sender.push(2), Err(PushError::Closed(2)));
            assert!(!inbox.is_finished());
            assert_eq!((inbox.pop(), inbox.pop()), (Some(1), None));
            assert!(inbox.is_finished());
        }
    }

    #[test]
    fn dropped_inbox_drops_its_messages() {
        for ends in [ring_inbox(4), drop_oldest_inbox(4)] {
            let (inbox_sender, inbox) = ends.expect("create an inbox");
            let message = std::sync::Arc::new(());
            assert!(inbox_sender.push(std::sync::Arc::clone(&message)).is_ok());
            drop(inbox);
            assert_eq!(std::sync::Arc::strong_count(&message), 1);
            assert!(matches!(inbox_sender.push(message), Err(PushError::Closed(_))));
        }
    }
}
