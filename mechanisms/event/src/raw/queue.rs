//! Queue of messages whose type is erased.

use std::any::{Any, TypeId};
use std::collections::VecDeque;

/// Queue of messages whose type is erased, or no queue.
pub(crate) struct AnyQueue {
    /// Boxed `VecDeque` of the message type, or `()` if there is no queue.
    queue: Box<dyn Any + Send>,
    /// Type id of the value in `queue`, copied to be compared without a call. `Any` returns the id through a call, in
    /// two registers, and comparing it at once reads it before both halves have reached the cache (5 ns).
    type_id: TypeId,
}

impl AnyQueue {
    /// Creates an empty queue of messages of type `M`.
    pub(crate) fn for_messages<M: Send + 'static>() -> Self {
        Self::new(VecDeque::<M>::new())
    }

    /// Creates a value that contains no queue, in place of the queue of a removed machine.
    pub(crate) fn without_queue() -> Self {
        Self::new(())
    }

    fn new<Q: Send + 'static>(queue: Q) -> Self {
        Self { queue: Box::new(queue), type_id: TypeId::of::<Q>() }
    }

    /// Returns the queue; `None` if there is none, or its messages are not of type `M`.
    pub(crate) fn get<M: 'static>(&self) -> Option<&VecDeque<M>> {
        self.queue.downcast_ref()
    }

    /// Returns the queue, mutably; `None` if there is none, or its messages are not of type `M`.
    #[inline(always)]
    pub(crate) fn get_mut<M: 'static>(&mut self) -> Option<&mut VecDeque<M>> {
        if self.type_id != TypeId::of::<VecDeque<M>>() {
            return None;
        }
        let queue: *mut (dyn Any + Send) = &raw mut *self.queue;
        // SAFETY: `new` alone makes the fields, and sets `type_id` to the type of the value in the
        // box; neither is written afterwards. That type was compared with `VecDeque<M>` above. The
        // box is borrowed mutably for as long as the result.
        Some(unsafe { &mut *queue.cast::<VecDeque<M>>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_found_by_the_type_of_its_messages_alone() {
        let mut queue = AnyQueue::for_messages::<u32>();
        queue.get_mut::<u32>().expect("its type").extend([1, 2]);
        assert_eq!(queue.get::<u32>().map(VecDeque::len), Some(2));
        assert_eq!(queue.get_mut::<u32>().and_then(VecDeque::pop_front), Some(1));
        assert!(queue.get::<i32>().is_none() && queue.get_mut::<i32>().is_none());
        let mut none = AnyQueue::without_queue();
        assert!(none.get::<()>().is_none() && none.get_mut::<()>().is_none());
    }
}
