//! Ring of flows that take turns.

/// Circular buffer of flow numbers. It has space for every flow of the scheduler, so that rotating
/// it never allocates.
///
/// `head` and `count` are not adjacent: otherwise the compiler lets `pop` read both with one
/// instruction, which, soon after `push` has written `count` alone, waits until that store and all
/// before have reached the cache.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct FlowRing {
    /// Memory of the buffer: a power of two of elements, or empty.
    slots: Vec<u32>,
    /// Index of the slot of the first flow.
    head: u32,
    /// Number of flows that the scheduler has; `slots` has at least this many elements.
    flows_count: u32,
    /// Number of flows in the ring.
    count: u32,
}

impl FlowRing {
    /// Makes space for one more flow, which the scheduler has just added.
    pub(crate) fn reserve(&mut self) {
        self.flows_count += 1;
        if self.flows_count as usize <= self.slots.len() {
            return;
        }
        let mut slots = vec![0; (self.flows_count as usize).next_power_of_two()];
        for (to, offset) in slots.iter_mut().zip(0..self.count) {
            *to = self.flow_at(offset);
        }
        self.slots = slots;
        self.head = 0;
    }

    /// Gives up the space for one flow, which must not be in the ring.
    pub(crate) fn release(&mut self) {
        debug_assert!(self.count < self.flows_count);
        self.flows_count -= 1;
    }

    /// Returns the index of the slot at this offset from the first.
    #[inline(always)]
    fn slot_index(&self, offset: u32) -> usize {
        self.head.wrapping_add(offset) as usize & self.slots.len().wrapping_sub(1)
    }

    #[inline(always)]
    fn flow_at(&self, offset: u32) -> u32 {
        self.slots[self.slot_index(offset)]
    }

    /// Returns the flow at this offset from the first; `None` beyond the last.
    #[inline(always)]
    pub(crate) fn get(&self, offset: u32) -> Option<u32> {
        (offset < self.count).then(|| self.flow_at(offset))
    }

    /// Appends a flow.
    #[inline(always)]
    pub(crate) fn push(&mut self, id: u32) {
        debug_assert!(self.count < self.flows_count);
        let index = self.slot_index(self.count);
        self.slots[index] = id;
        self.count += 1;
    }

    /// Removes the first flow.
    #[inline(always)]
    pub(crate) fn pop(&mut self) {
        debug_assert!(self.count > 0);
        self.head = self.head.wrapping_add(1);
        self.count -= 1;
    }

    /// Removes a flow at any position; the others keep their order.
    pub(crate) fn remove(&mut self, id: u32) {
        let found = (0..self.count).find(|&offset| self.flow_at(offset) == id);
        debug_assert!(found.is_some());
        let Some(at) = found else { return };
        for offset in at..self.count - 1 {
            let index = self.slot_index(offset);
            self.slots[index] = self.flow_at(offset + 1);
        }
        self.count -= 1;
    }

    /// Moves flow `id`, which must be the first, to the end.
    #[inline(always)]
    pub(crate) fn rotate(&mut self, id: u32) {
        debug_assert_eq!(self.get(0), Some(id));
        let index = self.slot_index(self.count);
        self.slots[index] = id;
        self.head = self.head.wrapping_add(1);
    }
}
