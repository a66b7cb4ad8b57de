//! The floor of the timers: a table with a slot for each timer, of which as many are accessed as
//! timers would be, in equally random order. It has no deadlines, and no timer is ever early.

use super::{HORIZON_NS, Timers};
use crate::common::ensure;
use handover_harness::Fault;

/// Slot of a timer: half a cache line. It has room for a deadline, a part of a handle, and a value.
#[derive(Clone, Copy)]
struct Slot {
    key: u32,
    is_used: bool,
    _rest: [u64; 3],
}

/// Floor: a table with a slot for each timer, accessed in random order.
pub(super) struct SlotWalk {
    slots: Vec<Slot>,
    /// Indices of free slots.
    vacant: Vec<u32>,
    /// Indices of all slots in random order, which is the order of expiry.
    order: Vec<u32>,
    /// Index in `order` of the next timer that expires.
    next: usize,
    now_ns: u64,
}

impl SlotWalk {
    /// Frees a slot; returns the key of its timer, or `None` if the slot was free.
    #[inline]
    fn free(&mut self, index: u32) -> Option<u32> {
        let slot = &mut self.slots[index as usize];
        let key = slot.is_used.then_some(slot.key)?;
        slot.is_used = false;
        self.vacant.push(index);
        Some(key)
    }
}

impl Timers for SlotWalk {
    type Id = u32;

    fn new(timers_max: u32) -> Result<Self, Fault> {
        let count = timers_max + 1; // one more, for the pair
        let mut order: Vec<u32> = (0..count).collect();
        let mut random = 0x2545_F491_4F6C_DD1D_u64;
        for at in (1..order.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            order.swap(at, (random >> 33) as usize % (at + 1));
        }
        Ok(Self {
            slots: vec![Slot { key: 0, is_used: false, _rest: [0; 3] }; count as usize],
            vacant: (0..count).rev().collect(),
            order,
            next: 0,
            now_ns: 0,
        })
    }

    #[inline(always)]
    fn start(&mut self, _: u64, key: u32) -> u32 {
        let index = self.vacant.pop().expect("more than timers_max timers were started");
        let slot = &mut self.slots[index as usize];
        (slot.key, slot.is_used) = (key, true);
        index
    }

    #[inline(always)]
    fn cancel(&mut self, index: u32) -> bool {
        self.free(index).is_some()
    }

    #[inline]
    fn expire(&mut self, now_ns: u64, keys: &mut Vec<u32>) {
        let each_ns = HORIZON_NS / (self.slots.len() as u64 - 1);
        let count = (now_ns - self.now_ns) / each_ns;
        self.now_ns = now_ns;
        for _ in 0..count {
            let index = self.order[self.next];
            self.next = if self.next + 1 == self.order.len() { 0 } else { self.next + 1 };
            keys.extend(self.free(index));
        }
    }

    /// Fails unless each slot is freed exactly once.
    fn check_expiry() -> Result<(), Fault> {
        const COUNT: u32 = 1000;
        let mut walk = Self::new(COUNT)?;
        let ids: Vec<u32> = (0..COUNT).map(|key| walk.start(0, key)).collect();
        let cancelled = ids.iter().step_by(3).filter(|&&id| walk.cancel(id)).count();
        let mut keys = Vec::new();
        walk.expire(HORIZON_NS, &mut keys);
        // The slot for the pair is in the walk.
        walk.expire(HORIZON_NS + HORIZON_NS / 100, &mut keys);
        keys.sort_unstable();
        keys.dedup();
        let is_right =
            cancelled + keys.len() == COUNT as usize && keys.iter().all(|key| key % 3 != 0);
        ensure(is_right, || "a slot was freed twice or not at all")
    }
}
