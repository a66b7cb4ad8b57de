//! Reading a message word by word.
//!
//! A message is usually written in words of 8 bytes, each from a register. A CPU forwards a store to a later load only
//! if the store contains all bytes of the load: a load of two words that were just written waits until both have
//! reached the cache, 3 to 6 ns. (Agner Fog, *The microarchitecture of Intel, AMD and VIA CPUs*, store forwarding.)

use std::collections::VecDeque;
use std::mem::{self, MaybeUninit};

/// Word of a message, of which any byte may be padding or a part of a pointer.
type Word = MaybeUninit<u64>;
/// Greatest number of words that are read one by one. More are copied faster at once.
const WORDS_MAX: usize = 4;

/// Reads a value like [`ptr::read`](std::ptr::read), but word by word if it consists of 2 to [`WORDS_MAX`] words.
///
/// # Safety
/// As for `ptr::read`.
#[inline(always)]
pub(crate) unsafe fn read_by_words<M>(from: *const M) -> M {
    let count = size_of::<M>() / size_of::<Word>();
    let is_words =
        align_of::<M>() >= align_of::<Word>() && count * size_of::<Word>() == size_of::<M>();
    if !is_words || !(2..=WORDS_MAX).contains(&count) {
        // SAFETY: the contract is that of this call.
        return unsafe { from.read() };
    }
    let mut value = MaybeUninit::<M>::uninit();
    for index in 0..count {
        // SAFETY: `M` consists of `count` words, and is aligned as they are. By the contract `from` may be read.
        // Volatile, so that words are not read together.
        let word = unsafe { from.cast::<Word>().add(index).read_volatile() };
        // SAFETY: as above; `value` is a local variable of type `M`.
        unsafe { value.as_mut_ptr().cast::<Word>().add(index).write(word) };
    }
    // SAFETY: all words of `value` were copied from a value of type `M`.
    unsafe { value.assume_init() }
}

/// Removes and returns the first message of a queue, which it reads word by word.
#[inline(always)]
pub(crate) fn pop_front_by_words<M>(queue: &mut VecDeque<M>) -> Option<M> {
    let first = queue.front()?;
    // SAFETY: a reference may be read. The message in the queue is forgotten below, with no panic in between.
    let message = unsafe { read_by_words(first) };
    mem::forget(queue.pop_front());
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn check_order<M: PartialEq + std::fmt::Debug>(message: fn(u8) -> M) {
        let mut queue: VecDeque<M> = (0..3).map(message).collect();
        for number in 0..3 {
            assert_eq!(pop_front_by_words(&mut queue), Some(message(number)));
        }
        assert_eq!(pop_front_by_words(&mut queue), None);
    }

    #[test]
    fn messages_of_all_sizes_leave_the_queue_in_order() {
        check_order(|_| ());
        check_order(|number| number);
        check_order(u64::from);
        check_order(|number| (number, u64::from(number)));
        check_order(|number| [number; 16]);
        check_order(|number| [u64::from(number); 3]);
        check_order(|number| [u64::from(number); 4]);
        check_order(|number| [u64::from(number); 5]);
        check_order(|number| [u128::from(number); 2]);
        check_order(|number| (number % 2 == 0).then(|| vec![number]));
    }

    #[test]
    fn message_has_one_owner() {
        let shared = Arc::new(());
        let mut queue: VecDeque<(Arc<()>, u64)> =
            (0..2).map(|n| (Arc::clone(&shared), n)).collect();
        let message = pop_front_by_words(&mut queue);
        assert_eq!(Arc::strong_count(&shared), 3);
        drop(message);
        drop(queue);
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
