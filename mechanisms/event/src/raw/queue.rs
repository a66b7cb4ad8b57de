//! Queue of messages whose type is erased.

use std::any::TypeId;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};

/// Memory for the first message of a queue.
type FirstMessage = MaybeUninit<[u64; 2]>;

/// Returns `true` if a message of type `M` fits into [`FirstMessage`].
const fn fits<M>() -> bool {
    size_of::<M>() <= size_of::<FirstMessage>() && align_of::<M>() <= align_of::<FirstMessage>()
}

/// Bounded queue of messages whose type is erased, or no queue.
///
/// As a rule a queue contains no more than one message. The first message is stored in the queue
/// itself if it fits, so that no other cache line is accessed for it.
pub(crate) struct AnyQueue {
    /// First message of a queue whose messages fit; initialised if `len` is not 0.
    first: FirstMessage,
    /// Boxed `VecDeque` of the message type, with the messages that are not in `first`, or `()` if
    /// there is no queue.
    others: Box<dyn OtherMessages>,
    /// Type id of the value in `others`, to be compared without a call.
    type_id: TypeId,
    /// Number of messages, including the one in `first`.
    len: u32,
    /// Maximum of `len`, at least one.
    pub(crate) messages_max: u32,
}

/// Value of [`AnyQueue::others`].
trait OtherMessages: Send {
    /// Drops the message in `first` if the messages of the queue fit.
    ///
    /// # Safety
    /// `first` belongs to the same queue as `self`. The queue is not empty, and `first` is not read
    /// afterwards.
    unsafe fn drop_first(&self, first: &mut FirstMessage);
}

impl<M: Send> OtherMessages for VecDeque<M> {
    unsafe fn drop_first(&self, first: &mut FirstMessage) {
        if fits::<M>() {
            // SAFETY: by the contract `first` belongs to a queue of messages of type `M` that is
            // not empty; if they fit, it then contains a message. The caller does not read it
            // again.
            unsafe { first.as_mut_ptr().cast::<M>().drop_in_place() };
        }
    }
}

impl OtherMessages for () {
    unsafe fn drop_first(&self, _first: &mut FirstMessage) {}
}

impl AnyQueue {
    /// Creates an empty queue of at most `messages_max` messages of type `M` (at least one).
    pub(crate) fn for_messages<M: Send + 'static>(messages_max: u32) -> Self {
        Self::new(VecDeque::<M>::new(), messages_max)
    }

    /// Creates a value that contains no queue, in place of the queue of a removed machine.
    pub(crate) fn without_queue() -> Self {
        Self::new((), 0)
    }

    fn new<Q: OtherMessages + 'static>(others: Q, messages_max: u32) -> Self {
        Self {
            first: MaybeUninit::uninit(),
            others: Box::new(others),
            type_id: TypeId::of::<Q>(),
            len: 0,
            messages_max,
        }
    }

    /// Returns the number of messages.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the queue's messages; `None` if there is no queue, or its messages are not of type
    /// `M`.
    #[inline(always)]
    pub(crate) fn get_mut<M: Send + 'static>(&mut self) -> Option<Messages<'_, M>> {
        let is_of_type = self.type_id == TypeId::of::<VecDeque<M>>();
        is_of_type.then_some(Messages { queue: self, message_type: PhantomData })
    }
}

impl Drop for AnyQueue {
    fn drop(&mut self) {
        if self.len != 0 {
            // SAFETY: both are fields of this queue, whose `len` was compared with 0 above. The
            // queue is being dropped, so that `first` is not read afterwards.
            unsafe { self.others.drop_first(&mut self.first) };
        }
    }
}

/// Messages of an [`AnyQueue`], whose type is `M`. The methods take it by value, so that it is
/// passed in a register.
pub(crate) struct Messages<'a, M> {
    queue: &'a mut AnyQueue,
    message_type: PhantomData<M>,
}

impl<M: Send + 'static> Messages<'_, M> {
    /// Returns the messages that are not in `first`.
    #[inline(always)]
    fn others(&mut self) -> &mut VecDeque<M> {
        let others: *mut dyn OtherMessages = &raw mut *self.queue.others;
        // SAFETY: `AnyQueue::new` alone makes the fields, and sets `type_id` to the type of the
        // value in the box; neither is written afterwards. `get_mut`, which alone makes a
        // `Messages`, has compared that type with `VecDeque<M>`. The box is borrowed mutably for as
        // long as the result.
        unsafe { &mut *others.cast::<VecDeque<M>>() }
    }

    /// Reads the message in `first`.
    ///
    /// # Safety
    /// Messages of type `M` fit, the queue contained a message, and `first` is not read again
    /// before it is written.
    #[inline(always)]
    unsafe fn read_first(&self) -> M {
        // SAFETY: by the contract a message is in `first`; `get_mut` has checked that its type is
        // `M`. It is moved out once, since `first` is not read again.
        unsafe { self.queue.first.as_ptr().cast::<M>().read() }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.len == 0
    }

    /// Appends a message; returns it if the queue is full.
    #[inline(always)]
    pub(crate) fn push(mut self, message: M) -> Result<(), M> {
        if self.is_empty() {
            self.push_first(message);
        } else if self.queue.len >= self.queue.messages_max {
            return Err(message);
        } else {
            self.others().push_back(message);
            self.queue.len += 1;
        }
        Ok(())
    }

    /// Appends a message to an empty queue.
    #[inline(always)]
    pub(crate) fn push_first(mut self, message: M) {
        debug_assert!(self.is_empty() && self.queue.messages_max > 0);
        if fits::<M>() {
            // SAFETY: `fits` has compared the size and the alignment of `M` with those of `first`,
            // which is borrowed mutably.
            unsafe { self.queue.first.as_mut_ptr().cast::<M>().write(message) };
        } else {
            self.others().push_back(message);
        }
        self.queue.len = 1;
    }

    /// Removes and returns the only message; `None` if there is none, or there are several.
    #[inline(always)]
    pub(crate) fn take_only(mut self) -> Option<M> {
        if self.queue.len != 1 {
            return None;
        }
        self.queue.len = 0;
        if !fits::<M>() {
            return self.others().pop_front();
        }
        // SAFETY: messages fit, and `len`, which was 1, is 0 now, so that `first` is written before
        // it is read again.
        Some(unsafe { self.read_first() })
    }

    /// Moves all messages to the end of `to`.
    pub(crate) fn move_to(mut self, to: &mut VecDeque<M>) {
        let has_first = fits::<M>() && !self.is_empty();
        self.queue.len = 0;
        // SAFETY: messages fit, and `len`, which was not 0, is 0 now, so that `first` is written
        // before it is read again.
        let first = has_first.then(|| unsafe { self.read_first() });
        let others = self.others();
        if to.is_empty() && !others.is_empty() {
            mem::swap(to, others);
            if let Some(first) = first {
                to.push_front(first);
            }
        } else {
            to.extend(first);
            to.append(others);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;
    use std::sync::Arc;

    /// Pushes `count` messages into a queue of at most 3, and returns the queue.
    fn queue_of<M: Send + Debug + 'static>(count: u32, message: fn(u32) -> M) -> AnyQueue {
        let mut queue = AnyQueue::for_messages::<M>(3);
        for number in 0..count {
            let pushed = queue.get_mut::<M>().expect("its type").push(message(number));
            assert_eq!(pushed.is_err(), number >= 3, "message {number}: {pushed:?}");
        }
        assert_eq!(queue.len(), count.min(3));
        queue
    }

    fn check_order<M: Send + Debug + PartialEq + 'static>(message: fn(u32) -> M) {
        for count in 0..5 {
            let mut queue = queue_of(count, message);
            let only = queue.get_mut::<M>().expect("its type").take_only();
            assert_eq!(only, (count == 1).then(|| message(0)));
            for earlier in [None, Some(message(9))] {
                let mut queue = queue_of(count, message);
                let mut all: VecDeque<M> = earlier.into_iter().collect();
                let expected: Vec<M> =
                    all.iter().map(|_| message(9)).chain((0..count.min(3)).map(message)).collect();
                queue.get_mut::<M>().expect("its type").move_to(&mut all);
                assert_eq!(all, expected);
                assert_eq!(queue.len(), 0);
                queue.get_mut::<M>().expect("its type").push_first(message(7));
                assert_eq!(queue.get_mut::<M>().and_then(Messages::take_only), Some(message(7)));
            }
        }
    }

    #[test]
    fn messages_that_fit_and_others_leave_the_queue_in_order() {
        check_order(|number| number);
        check_order(Box::new);
        check_order(|number| [u64::from(number); 2]);
        check_order(|number| [u64::from(number); 3]);
        check_order(u128::from);
        check_order(|number| vec![number]);
    }

    #[test]
    fn dropped_queue_drops_each_message_once() {
        type Small = Arc<()>;
        type Large = (Arc<()>, [u64; 2]);
        for count in 0..4 {
            let held = Arc::new(());
            let mut small = AnyQueue::for_messages::<Small>(4);
            let mut large = AnyQueue::for_messages::<Large>(4);
            for _ in 0..count {
                let pushed = small.get_mut::<Small>().expect("its type").push(Arc::clone(&held));
                pushed.expect("space");
                let message = (Arc::clone(&held), [0; 2]);
                large.get_mut::<Large>().expect("its type").push(message).expect("space");
            }
            assert_eq!(Arc::strong_count(&held), 1 + 2 * count);
            drop(small);
            assert_eq!(Arc::strong_count(&held), 1 + count);
            drop(large);
            assert_eq!(Arc::strong_count(&held), 1);
        }
    }

    #[test]
    fn queue_is_found_by_the_type_of_its_messages_alone() {
        let mut queue = AnyQueue::for_messages::<u32>(1);
        queue.get_mut::<u32>().expect("its type").push(1).expect("space");
        assert!(queue.get_mut::<i32>().is_none());
        assert_eq!(queue.get_mut::<u32>().and_then(Messages::take_only), Some(1));
        let mut none = AnyQueue::without_queue();
        assert!(none.get_mut::<()>().is_none());
    }
}
