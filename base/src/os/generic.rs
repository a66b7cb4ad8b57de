//! Any system with a `std`: futexes by a mutex and a condition variable, no affinity, no usage.

use crate::sync::CachePadded;
use crate::sync::shared::{AtomicU32, Ordering};
use crate::usage::{Usage, UsageScope};
use core::ptr;
use std::io::{self, ErrorKind};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Number of wait queues. Threads that wait on different words seldom share a queue.
const QUEUES_COUNT: usize = 64;

/// Wait queue of sleeping threads. The hash of the address of their word selects the queue.
struct Queue {
    state: Mutex<QueueState>,
    /// Notified after a thread was removed from the queue.
    removed: Condvar,
}

/// Content of a wait queue.
struct QueueState {
    /// Address of the word, and ticket, of each sleeping thread. They are in the order in which
    /// they went to sleep.
    sleepers: Vec<(usize, u64)>,
    /// Ticket of the next thread that goes to sleep.
    next_ticket: u64,
}

impl Queue {
    const fn new() -> Queue {
        let state = QueueState { sleepers: Vec::new(), next_ticket: 0 };
        Queue { state: Mutex::new(state), removed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wait queues, indexed by the hash of a word's address.
static QUEUES: [CachePadded<Queue>; QUEUES_COUNT] =
    [const { CachePadded::new(Queue::new()) }; QUEUES_COUNT];

/// Returns the address of `word` and the queue of the threads that wait on it.
fn queue_of(word: &AtomicU32) -> (usize, &'static Queue) {
    let address = ptr::from_ref(word).addr();
    // Fibonacci hashing: words on cache lines of their own differ in the upper bits alone.
    let hash = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (address, &QUEUES[(hash >> (u64::BITS - QUEUES_COUNT.ilog2())) as usize])
}

/// Sleeps if `word` contains `expected`, until a thread of this process wakes the caller. Returns
/// an error of kind `WouldBlock` if the word contains another value, or `TimedOut`.
pub(crate) fn futex_wait(
    word: &AtomicU32,
    expected: u32,
    timeout: Option<Duration>,
    _is_shared: bool,
) -> io::Result<()> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let (address, queue) = queue_of(word);
    let mut state = queue.lock();
    // Relaxed: a waker that took the mutex before this thread had stored its value before that;
    // a later one finds the ticket.
    if word.load(Ordering::Relaxed) != expected {
        return Err(ErrorKind::WouldBlock.into());
    }
    let ticket = state.next_ticket;
    state.next_ticket += 1;
    state.sleepers.push((address, ticket));
    loop {
        state = match deadline {
            None => queue.removed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                let woken = queue.removed.wait_timeout(state, left);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let place = state.sleepers.iter().position(|sleeper| sleeper.1 == ticket);
        let Some(place) = place else { return Ok(()) };
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            state.sleepers.remove(place);
            return Err(ErrorKind::TimedOut.into());
        }
    }
}

/// Wakes at most `waiters_max` threads that sleep on `word`; returns the number of woken threads.
/// They are threads of this process.
pub(crate) fn futex_wake(word: &AtomicU32, waiters_max: u32, _is_shared: bool) -> io::Result<u32> {
    let (address, queue) = queue_of(word);
    let mut woken_count = 0;
    queue.lock().sleepers.retain(|sleeper| {
        let is_woken = sleeper.0 == address && woken_count < waiters_max;
        woken_count += u32::from(is_woken);
        !is_woken
    });
    if woken_count > 0 {
        queue.removed.notify_all();
    }
    Ok(woken_count)
}

/// Returns the CPU numbers from 0 up, as many as `std` reports CPUs.
pub(crate) fn thread_cpus() -> io::Result<Vec<u32>> {
    Ok((0..thread_cpus_count()? as u32).collect())
}

/// Returns the same CPUs as [`thread_cpus`].
pub(crate) fn main_thread_cpus() -> io::Result<Vec<u32>> {
    thread_cpus()
}

/// Returns the number of CPUs.
pub(crate) fn thread_cpus_count() -> io::Result<usize> {
    Ok(std::thread::available_parallelism()?.get())
}

/// Returns an error, because `std` cannot bind threads to CPUs.
pub(crate) fn set_thread_cpus(_: &[u32]) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Returns `None`, because `std` does not report the current CPU.
pub(crate) fn current_cpu() -> Option<u32> {
    None
}

/// Returns the time since the first call, in ns.
pub(crate) fn monotonic_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Does nothing, because `std` reports no resource usage.
pub(crate) fn update_thread_time() {}

/// Returns zeroes, because `std` reports no resource usage.
pub(crate) fn read_usage(_: UsageScope) -> Usage {
    Usage::default()
}

/// Returns 0, because there is no kernel tick to convert.
pub(crate) fn clock_ticks_per_second() -> u64 {
    0
}

/// Returns `false`, because there is no counter that a process could disable.
pub(crate) fn is_timestamp_counter_disabled() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_on_cache_lines_of_their_own_have_different_queues() {
        let words = [const { CachePadded::new(AtomicU32::new(0)) }; QUEUES_COUNT];
        let mut queues: Vec<_> = words.iter().map(|word| ptr::from_ref(queue_of(word).1)).collect();
        queues.sort_unstable();
        queues.dedup();
        assert!(queues.len() > QUEUES_COUNT / 2, "{} queues", queues.len());
    }
}
