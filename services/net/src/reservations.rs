//! Counters of an event-loop thread that other threads read and change: bytes of queued commands,
//! connections, and listeners that may still hand connections over.
//!
//! A listener of another thread reserves a slot before it accepts a connection for this thread. The
//! reservation ends when this thread has taken the connection over, and has published its number of
//! open connections before. A listener that found no slot asks to be told of the next one.

use handover_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const OPEN_COUNT_SHIFT: u32 = 32;
/// Bit in `connections` that is set while a listener waits for a free slot.
const SLOT_AWAITED_BIT: u64 = 1 << (OPEN_COUNT_SHIFT - 1);
const RESERVED_COUNT_MASK: u64 = SLOT_AWAITED_BIT - 1;

/// Counters and limits of an event-loop thread's connections and queued bytes.
#[derive(Debug)]
pub struct Reservations {
    /// Number of bytes in the write commands that are queued.
    queued_bytes: AtomicUsize,
    queued_bytes_max: usize,
    /// Number of open connections (upper half), number of reserved ones (lower half), and
    /// [`SLOT_AWAITED_BIT`]. They are in one word so that a reservation which becomes a connection
    /// is not missed between the two, nor a slot that becomes free while a listener begins to wait.
    connections: AtomicU64,
    /// Maximum number of open and reserved connections together.
    connections_max: u64,
    /// Number of listeners of other threads that may still hand connections to this thread.
    remote_listeners_count: AtomicUsize,
}

impl Reservations {
    /// Creates counters of zero, with limits for queued bytes and connections.
    pub fn new(queued_bytes_max: usize, connections_max: usize) -> Self {
        Self {
            queued_bytes: AtomicUsize::new(0),
            queued_bytes_max,
            connections: AtomicU64::new(0),
            connections_max: connections_max as u64,
            remote_listeners_count: AtomicUsize::new(0),
        }
    }

    /// Reserves queue space for a write command; returns `false` if the limit would be exceeded. A
    /// single command may exceed the limit.
    pub fn try_reserve_bytes(&self, bytes_count: usize) -> bool {
        // Relaxed all: a count that bounds memory; no other access depends on it. Changed only if
        // the bytes fit: a large command that is refused does not cause the refusal of a small one.
        let reserved =
            self.queued_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
                let after = before.saturating_add(bytes_count);
                (before == 0 || after <= self.queued_bytes_max).then_some(after)
            });
        reserved.is_ok()
    }

    /// Releases the bytes of a command that the thread has executed, or that could not be queued.
    pub fn release_bytes(&self, bytes_count: usize) {
        // Relaxed: as in try_reserve_bytes().
        self.queued_bytes.fetch_sub(bytes_count, Ordering::Relaxed);
    }

    /// Publishes the thread's number of open connections. Returns `true` if a listener waits for a
    /// slot and one is free now. The caller then wakes the listener.
    #[must_use]
    pub fn publish_open_count(&self, count: u64) -> bool {
        // Relaxed, here and below: the counts are one word, and no other access depends on them. If
        // the thread opens a connection of its own at the same moment, it may use the last slot:
        // then the connection that is handed to it is closed.
        self.update_counts(|before| {
            count << OPEN_COUNT_SHIFT | before & (SLOT_AWAITED_BIT | RESERVED_COUNT_MASK)
        })
    }

    /// Replaces the counts of connections by the result of `change`. Returns `true` if this ends a
    /// listener's wait for a free slot.
    fn update_counts(&self, change: impl Fn(u64) -> u64) -> bool {
        let mut ends_wait = false;
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.connections.fetch_update(set, fetch, |before| {
            let after = change(before);
            ends_wait = after & SLOT_AWAITED_BIT != 0 && self.has_slot(after);
            Some(if ends_wait { after & !SLOT_AWAITED_BIT } else { after })
        });
        ends_wait
    }

    /// Returns `true` if `counts` holds fewer open and reserved connections than the maximum.
    fn has_slot(&self, counts: u64) -> bool {
        (counts >> OPEN_COUNT_SHIFT) + (counts & RESERVED_COUNT_MASK) < self.connections_max
    }

    /// Reserves a slot for one more connection; returns `false` if none is free. The reservation
    /// lasts until [`release_slot`](Self::release_slot).
    pub fn try_reserve_slot(&self) -> bool {
        // Changed only if there is a slot: an attempt that fails does not cause the failure of
        // another one.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let reserved = self
            .connections
            .fetch_update(set, fetch, |before| self.has_slot(before).then_some(before + 1));
        reserved.is_ok()
    }

    /// Begins to wait for a free slot; returns `false`, without waiting, if a slot is free.
    ///
    /// The next [`publish_open_count`](Self::publish_open_count) or
    /// [`release_slot`](Self::release_slot) that leaves a slot returns `true` and ends the wait.
    #[must_use]
    pub fn start_awaiting_slot(&self) -> bool {
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let waits = self.connections.fetch_update(set, fetch, |before| {
            (!self.has_slot(before)).then_some(before | SLOT_AWAITED_BIT)
        });
        waits.is_ok()
    }

    /// Releases a reserved slot. Returns `true` if a listener waits for a slot and one is free now.
    /// The caller then wakes the listener. To be called after the thread has published the
    /// connection as open, or if no connection is handed over.
    #[must_use]
    pub fn release_slot(&self) -> bool {
        self.update_counts(|before| before - 1)
    }

    /// Adds 1 to the number of other threads' listeners that hand connections to this thread.
    pub fn add_remote_listener(&self) {
        // Relaxed: the threads are started later.
        self.remote_listeners_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts 1 from the number of other threads' listeners that hand connections to this
    /// thread. The caller then wakes this thread.
    pub fn remove_remote_listener(&self) {
        // Release: pairs with the Acquire in has_remote_listeners(): the connections it pushed are
        // in the ring.
        self.remote_listeners_count.fetch_sub(1, Ordering::Release);
    }

    /// Returns `true` while listeners of other threads may still hand connections to this thread.
    pub fn has_remote_listeners(&self) -> bool {
        // Acquire: pairs with the Release in remove_remote_listener().
        self.remote_listeners_count.load(Ordering::Acquire) > 0
    }
}
