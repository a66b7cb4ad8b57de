//! Counters of an event-loop thread that other threads read and change: bytes of queued commands,
//! connections, and listeners that may still hand connections over.
//!
//! A listener of another thread reserves a slot before it accepts a connection for this thread. The
//! reservation ends when this thread has taken the connection over, and has published its number of
//! open connections before.

use handover_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const OPEN_SHIFT: u32 = 32;
const RESERVED: u64 = (1 << OPEN_SHIFT) - 1;

/// Counters of one event-loop thread, with their limits.
#[derive(Debug)]
pub struct Reservations {
    /// Number of bytes in queued write commands.
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Open connections in the upper half, and reserved ones in the lower: in one word, so that a
    /// reservation which becomes a connection is not missed between the two.
    connections: AtomicU64,
    /// Maximum number of connections, open and reserved.
    connections_max: u64,
    /// Number of listeners of other threads that may still hand connections to this thread.
    remote_listeners_count: AtomicUsize,
}

impl Reservations {
    /// Makes the counters of a thread without connections.
    pub fn new(bytes_max: usize, connections_max: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            bytes_max,
            connections: AtomicU64::new(0),
            connections_max: connections_max as u64,
            remote_listeners_count: AtomicUsize::new(0),
        }
    }

    /// Reserves queue space for a write command. Returns `false` if the limit would be exceeded; a
    /// single command may exceed it.
    pub fn try_reserve_bytes(&self, bytes_count: usize) -> bool {
        // Relaxed all: a count that bounds memory; no other access depends on it. Changed only if
        // the bytes fit: a large command that is refused does not cause the refusal of a small one.
        let reserved = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
            let after = before.saturating_add(bytes_count);
            (before == 0 || after <= self.bytes_max).then_some(after)
        });
        reserved.is_ok()
    }

    /// Releases the bytes of a command that the thread has executed, or that could not be queued.
    pub fn release_bytes(&self, bytes_count: usize) {
        // Relaxed: as in try_reserve_bytes().
        self.bytes.fetch_sub(bytes_count, Ordering::Relaxed);
    }

    /// Publishes the thread's number of connections.
    pub fn publish_open_count(&self, count: u64) {
        // Relaxed, here and below: the counts are one word, and no other access depends on them. If
        // the thread opens a connection of its own at the same moment, it may use the last slot:
        // then the connection that is handed to it is closed.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self
            .connections
            .fetch_update(set, fetch, |before| Some(count << OPEN_SHIFT | before & RESERVED));
    }

    /// Reserves a slot for one more connection; returns `false` if none is free. The reservation
    /// lasts until [`release`](Self::release).
    pub fn try_reserve(&self) -> bool {
        // Changed only if there is a slot: an attempt that fails does not cause the failure of
        // another one.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let reserved = self.connections.fetch_update(set, fetch, |before| {
            let count = (before >> OPEN_SHIFT) + (before & RESERVED);
            (count < self.connections_max).then_some(before + 1)
        });
        reserved.is_ok()
    }

    /// Releases a reservation: its connection has arrived and is counted as open, or is not handed over after all.
    pub fn release(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a listener of another thread that will hand connections to this one.
    pub fn add_remote_listener(&self) {
        // Relaxed: the threads are started later.
        self.remote_listeners_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a listener that will hand over no more connections. The caller then wakes the thread.
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
