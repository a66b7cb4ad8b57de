//! Queues of 8-byte items.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// C functions of one kind of C++ queue.
///
/// # Safety
/// All belong to one queue type of `c/peers.cpp`.
pub(crate) unsafe trait QueueFunctions: 'static {
    const NEW: unsafe extern "C" fn(usize) -> *mut c_void;
    const DELETE: unsafe extern "C" fn(*mut c_void);
    const SENDER: unsafe extern "C" fn(*mut c_void) -> *mut c_void;
    const SENDER_DELETE: unsafe extern "C" fn(*mut c_void);
    const RECEIVER: unsafe extern "C" fn(*mut c_void) -> *mut c_void;
    const RECEIVER_DELETE: unsafe extern "C" fn(*mut c_void);
    const PUSH: unsafe extern "C" fn(*mut c_void, *const u64, usize) -> usize;
    const POP: unsafe extern "C" fn(*mut c_void, *mut u64, usize) -> usize;
}

macro_rules! queues {
    ($($(#[$attribute:meta])* $name:ident $module:ident $c:literal;)*) => {$(
        $(#[$attribute])*
        pub(crate) enum $name {}

        $(#[$attribute])*
        mod $module {
            use super::{QueueFunctions, c_void};

            // SAFETY: the macro QUEUE in `c/peers.cpp` defines these functions with these
            // signatures.
            unsafe extern "C" {
                #[link_name = concat!("handover_", $c, "_new")]
                fn new(slots_count: usize) -> *mut c_void;
                #[link_name = concat!("handover_", $c, "_delete")]
                fn delete(queue: *mut c_void);
                #[link_name = concat!("handover_", $c, "_sender")]
                fn sender(queue: *mut c_void) -> *mut c_void;
                #[link_name = concat!("handover_", $c, "_sender_delete")]
                fn sender_delete(sender: *mut c_void);
                #[link_name = concat!("handover_", $c, "_receiver")]
                fn receiver(queue: *mut c_void) -> *mut c_void;
                #[link_name = concat!("handover_", $c, "_receiver_delete")]
                fn receiver_delete(receiver: *mut c_void);
                #[link_name = concat!("handover_", $c, "_push")]
                fn push(sender: *mut c_void, items: *const u64, count: usize) -> usize;
                #[link_name = concat!("handover_", $c, "_pop")]
                fn pop(receiver: *mut c_void, items: *mut u64, count: usize) -> usize;
            }

            // SAFETY: one use of the macro QUEUE in `c/peers.cpp` defines all of these functions.
            unsafe impl QueueFunctions for super::$name {
                const NEW: unsafe extern "C" fn(usize) -> *mut c_void = new;
                const DELETE: unsafe extern "C" fn(*mut c_void) = delete;
                const SENDER: unsafe extern "C" fn(*mut c_void) -> *mut c_void = sender;
                const SENDER_DELETE: unsafe extern "C" fn(*mut c_void) = sender_delete;
                const RECEIVER: unsafe extern "C" fn(*mut c_void) -> *mut c_void = receiver;
                const RECEIVER_DELETE: unsafe extern "C" fn(*mut c_void) = receiver_delete;
                const PUSH: unsafe extern "C" fn(*mut c_void, *const u64, usize) -> usize = push;
                const POP: unsafe extern "C" fn(*mut c_void, *mut u64, usize) -> usize = pop;
            }
        }
    )*};
}

queues! {
    /// moodycamel's `ReaderWriterQueue`, for one producer and one consumer.
    #[cfg(handover_moodycamel)]
    ReaderWriter reader_writer "reader_writer";
    /// moodycamel's `ConcurrentQueue`, for many producers and consumers, each with a token.
    #[cfg(handover_moodycamel)]
    Concurrent concurrent "concurrent";
    /// Boost's lock-free queue for one producer and one consumer.
    #[cfg(handover_boost_lockfree)]
    BoostSpsc boost_spsc "boost_spsc";
    /// Boost's lock-free queue for many producers and consumers.
    #[cfg(handover_boost_lockfree)]
    BoostMpmc boost_mpmc "boost_mpmc";
}

/// A C++ queue, deleted when its last sender or receiver is dropped.
struct Queue<F: QueueFunctions>(NonNull<c_void>, PhantomData<F>);

// SAFETY: the queue's memory does not belong to a thread, and its only method through a shared
// reference is Sender::new(), for which both the library's tokens and the constructors that keep a
// reference may run on any thread.
unsafe impl<F: QueueFunctions> Send for Queue<F> {}
// SAFETY: as for `Send`.
unsafe impl<F: QueueFunctions> Sync for Queue<F> {}

impl<F: QueueFunctions> Drop for Queue<F> {
    fn drop(&mut self) {
        // SAFETY: NEW made the queue; every end holds an `Arc` of it, so none is left.
        unsafe { F::DELETE(self.0.as_ptr()) };
    }
}

/// Sender of a C++ queue.
pub(crate) struct Sender<F: QueueFunctions>(NonNull<c_void>, Arc<Queue<F>>);

// SAFETY: the end's memory does not belong to a thread, and all its methods but clone(), which does
// not access the end, take `&mut self`.
unsafe impl<F: QueueFunctions> Send for Sender<F> {}

impl<F: QueueFunctions> Sender<F> {
    fn new(queue: &Arc<Queue<F>>) -> Option<Self> {
        // SAFETY: NEW made the queue, and the end holds it.
        let end = unsafe { F::SENDER(queue.0.as_ptr()) };
        NonNull::new(end).map(|end| Self(end, Arc::clone(queue)))
    }

    /// Pushes the first of the items, as many as fit; returns their number.
    #[inline(always)]
    pub(crate) fn push(&mut self, items: &[u64]) -> usize {
        // SAFETY: SENDER made the end, of which this is the only use; the items are readable.
        unsafe { F::PUSH(self.0.as_ptr(), items.as_ptr(), items.len()) }
    }
}

impl<F: QueueFunctions> Clone for Sender<F> {
    fn clone(&self) -> Self {
        Self::new(&self.1).expect("cannot allocate another sender of the queue")
    }
}

impl<F: QueueFunctions> Drop for Sender<F> {
    fn drop(&mut self) {
        // SAFETY: SENDER made the end, and its queue is dropped after it.
        unsafe { F::SENDER_DELETE(self.0.as_ptr()) };
    }
}

/// Receiver of a C++ queue.
pub(crate) struct Receiver<F: QueueFunctions> {
    end: NonNull<c_void>,
    _queue: Arc<Queue<F>>,
}

// SAFETY: the end's memory does not belong to a thread, and its methods take `&mut self`.
unsafe impl<F: QueueFunctions> Send for Receiver<F> {}

impl<F: QueueFunctions> Receiver<F> {
    fn new(queue: &Arc<Queue<F>>) -> Option<Self> {
        // SAFETY: NEW made the queue, and the end holds it.
        let end = unsafe { F::RECEIVER(queue.0.as_ptr()) };
        NonNull::new(end).map(|end| Self { end, _queue: Arc::clone(queue) })
    }

    /// Pops items into `items` until the queue is empty or `items` is full; returns their number.
    #[inline(always)]
    pub(crate) fn pop(&mut self, items: &mut [u64]) -> usize {
        // SAFETY: RECEIVER made the end, of which this is the only use; the items are writable.
        unsafe { F::POP(self.end.as_ptr(), items.as_mut_ptr(), items.len()) }
    }
}

impl<F: QueueFunctions> Drop for Receiver<F> {
    fn drop(&mut self) {
        // SAFETY: RECEIVER made the end, and its queue is dropped after it.
        unsafe { F::RECEIVER_DELETE(self.end.as_ptr()) };
    }
}

/// Creates a queue with a sender and a receiver; `None` if memory is exhausted.
pub(crate) fn pair<F: QueueFunctions>(slots_count: usize) -> Option<(Sender<F>, Receiver<F>)> {
    // SAFETY: the constructor takes any number.
    let queue = NonNull::new(unsafe { F::NEW(slots_count) })?;
    let queue = Arc::new(Queue(queue, PhantomData));
    Some((Sender::new(&queue)?, Receiver::new(&queue)?))
}
