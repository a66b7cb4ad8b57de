//! Lanes whose two indices tell which slots are full: the classic ring, and the ring with cached
//! indices.

use super::slots::LaneSlots;
use super::traits::validate;
use super::{Lane, LaneError, LaneReceiver, LaneSender};
use handover_base::sync::atomic::{AtomicU64, Ordering};
use handover_base::sync::{Arc, CachePadded};

/// Lamport's ring: each side reads the other's index every time, and publishes its own every time.
#[derive(Debug)]
pub enum Plain {}

/// Ring whose sides keep a copy of the other's index, and publish their own index on request.
#[derive(Debug)]
pub enum Cached {}

struct SharedRing<const W: usize> {
    slots: LaneSlots<W>,
    /// Slots before this position are full, or have been.
    tail: CachePadded<AtomicU64>,
    /// Slots before this position have been taken.
    head: CachePadded<AtomicU64>,
    slots_count: u64,
}

/// End that pushes; it caches the other's index if `CACHES`.
pub struct IndexSender<const W: usize, const CACHES: bool> {
    tail: u64,
    limit: u64,
    shared: Arc<SharedRing<W>>,
}

/// End that pops; it caches the other's index if `CACHES`.
pub struct IndexReceiver<const W: usize, const CACHES: bool> {
    head: u64,
    ready: u64,
    shared: Arc<SharedRing<W>>,
}

#[allow(clippy::type_complexity)]
fn pair<const W: usize, const CACHES: bool>(
    slots_count: u32,
) -> Result<(IndexSender<W, CACHES>, IndexReceiver<W, CACHES>), LaneError> {
    validate(slots_count)?;
    let index = || CachePadded::new(AtomicU64::new(0));
    let slots = LaneSlots::new(slots_count as usize);
    let slots_count = u64::from(slots_count);
    let shared = Arc::new(SharedRing { slots, tail: index(), head: index(), slots_count });
    let sender = IndexSender { tail: 0, limit: slots_count, shared: Arc::clone(&shared) };
    Ok((sender, IndexReceiver { head: 0, ready: 0, shared }))
}

impl Lane for Plain {
    const NAME: &'static str = "plain";
    type Sender<const W: usize> = IndexSender<W, false>;
    type Receiver<const W: usize> = IndexReceiver<W, false>;

    fn pair<const W: usize>(
        slots_count: u32,
    ) -> Result<(IndexSender<W, false>, IndexReceiver<W, false>), LaneError> {
        pair(slots_count)
    }
}

impl Lane for Cached {
    const NAME: &'static str = "cached";
    type Sender<const W: usize> = IndexSender<W, true>;
    type Receiver<const W: usize> = IndexReceiver<W, true>;

    fn pair<const W: usize>(
        slots_count: u32,
    ) -> Result<(IndexSender<W, true>, IndexReceiver<W, true>), LaneError> {
        pair(slots_count)
    }
}

impl<const W: usize, const CACHES: bool> LaneSender<W> for IndexSender<W, CACHES> {
    #[inline(always)]
    fn push(&mut self, words: [u64; W]) -> bool {
        if !self.has_free_slot() {
            return false;
        }
        let slots = &self.shared.slots;
        slots.prefetch_ahead(self.tail);
        slots.write_rest(self.tail, &words);
        // Relaxed: published by the index.
        slots.first(self.tail).store(words[0], Ordering::Relaxed);
        self.tail += 1;
        if !CACHES {
            self.publish();
        }
        true
    }

    #[inline(always)]
    fn has_free_slot(&mut self) -> bool {
        if !CACHES || self.tail == self.limit {
            // Acquire: pairs with the Release in IndexReceiver::release(): the old contents were
            // taken.
            self.limit = self.shared.head.load(Ordering::Acquire) + self.shared.slots_count;
        }
        self.tail < self.limit
    }

    #[inline(always)]
    fn publish(&mut self) {
        // Release: publishes the slots before `tail` to the Acquire in IndexReceiver::pop().
        self.shared.tail.store(self.tail, Ordering::Release);
    }
}

impl<const W: usize, const CACHES: bool> LaneReceiver<W> for IndexReceiver<W, CACHES> {
    #[inline(always)]
    fn pop(&mut self) -> Option<[u64; W]> {
        if !CACHES || self.head == self.ready {
            // Acquire: pairs with the Release in IndexSender::publish().
            self.ready = self.shared.tail.load(Ordering::Acquire);
            if self.head == self.ready {
                return None;
            }
        }
        // Relaxed: slots that the index reports as full were published by it.
        let first = self.shared.slots.first(self.head).load(Ordering::Relaxed);
        let words = self.shared.slots.read(self.head, first);
        self.head += 1;
        if !CACHES {
            self.release();
        }
        Some(words)
    }

    #[inline(always)]
    fn release(&mut self) {
        // Release: the slots before `head` were read; pairs with the Acquire in
        // IndexSender::has_free_slot().
        self.shared.head.store(self.head, Ordering::Release);
    }
}
