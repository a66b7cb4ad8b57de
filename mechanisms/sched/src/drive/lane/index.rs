//! Lanes whose two indices tell which slots are full: the classic ring, and the ring with cached
//! indices.

use super::slots::Slots;
use super::{Collect, Lane, LaneError, Post, validate};
use handover_base::sync::atomic::{AtomicU64, Ordering};
use handover_base::sync::{Arc, CachePadded};

/// Lamport's ring: each side reads the other's index every time, and publishes its own every time.
#[derive(Debug)]
pub enum Plain {}

/// Ring whose sides keep a copy of the other's index, and publish their own index on request.
#[derive(Debug)]
pub enum Cached {}

struct Shared<const W: usize> {
    slots: Slots<W>,
    /// Slots before this position are full, or have been.
    tail: CachePadded<AtomicU64>,
    /// Slots before this position have been taken.
    head: CachePadded<AtomicU64>,
    slots_count: u64,
}

/// End that pushes; it caches the other's index if `REMEMBERS`.
pub struct Sender<const W: usize, const REMEMBERS: bool> {
    tail: u64,
    limit: u64,
    shared: Arc<Shared<W>>,
}

/// End that pops; it caches the other's index if `REMEMBERS`.
pub struct Receiver<const W: usize, const REMEMBERS: bool> {
    head: u64,
    ready: u64,
    shared: Arc<Shared<W>>,
}

#[allow(clippy::type_complexity)]
fn pair<const W: usize, const REMEMBERS: bool>(
    slots_count: u32,
) -> Result<(Sender<W, REMEMBERS>, Receiver<W, REMEMBERS>), LaneError> {
    validate(slots_count)?;
    let index = || CachePadded::new(AtomicU64::new(0));
    let slots = Slots::new(slots_count as usize);
    let slots_count = u64::from(slots_count);
    let shared = Arc::new(Shared { slots, tail: index(), head: index(), slots_count });
    let sender = Sender { tail: 0, limit: slots_count, shared: Arc::clone(&shared) };
    Ok((sender, Receiver { head: 0, ready: 0, shared }))
}

impl Lane for Plain {
    const NAME: &'static str = "plain";
    type Sender<const W: usize> = Sender<W, false>;
    type Receiver<const W: usize> = Receiver<W, false>;

    fn pair<const W: usize>(
        slots_count: u32,
    ) -> Result<(Sender<W, false>, Receiver<W, false>), LaneError> {
        pair(slots_count)
    }
}

impl Lane for Cached {
    const NAME: &'static str = "cached";
    type Sender<const W: usize> = Sender<W, true>;
    type Receiver<const W: usize> = Receiver<W, true>;

    fn pair<const W: usize>(
        slots_count: u32,
    ) -> Result<(Sender<W, true>, Receiver<W, true>), LaneError> {
        pair(slots_count)
    }
}

impl<const W: usize, const REMEMBERS: bool> Post<W> for Sender<W, REMEMBERS> {
    #[inline(always)]
    fn push(&mut self, words: [u64; W]) -> bool {
        if !self.has_room() {
            return false;
        }
        let slots = &self.shared.slots;
        slots.claim_ahead(self.tail);
        slots.put_rest(self.tail, &words);
        // Relaxed: published by the index.
        slots.first(self.tail).store(words[0], Ordering::Relaxed);
        self.tail += 1;
        if !REMEMBERS {
            self.publish();
        }
        true
    }

    #[inline(always)]
    fn has_room(&mut self) -> bool {
        if !REMEMBERS || self.tail == self.limit {
            // Acquire: pairs with the Release in Receiver::release(): the old contents were taken.
            self.limit = self.shared.head.load(Ordering::Acquire) + self.shared.slots_count;
        }
        self.tail < self.limit
    }

    #[inline(always)]
    fn publish(&mut self) {
        // Release: publishes the slots before `tail` to the Acquire in Receiver::pop().
        self.shared.tail.store(self.tail, Ordering::Release);
    }
}

impl<const W: usize, const REMEMBERS: bool> Collect<W> for Receiver<W, REMEMBERS> {
    #[inline(always)]
    fn pop(&mut self) -> Option<[u64; W]> {
        if !REMEMBERS || self.head == self.ready {
            // Acquire: pairs with the Release in Sender::publish().
            self.ready = self.shared.tail.load(Ordering::Acquire);
            if self.head == self.ready {
                return None;
            }
        }
        // Relaxed: slots that the index reports as full were published by it.
        let first = self.shared.slots.first(self.head).load(Ordering::Relaxed);
        let words = self.shared.slots.take(self.head, first);
        self.head += 1;
        if !REMEMBERS {
            self.release();
        }
        Some(words)
    }

    #[inline(always)]
    fn release(&mut self) {
        // Release: the slots before `head` were read; pairs with the Acquire in Sender::has_room().
        self.shared.head.store(self.head, Ordering::Release);
    }
}
