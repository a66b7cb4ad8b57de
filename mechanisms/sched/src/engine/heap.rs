//! Heap of virtual times with four children per node: as many comparisons as a binary heap and half
//! the levels, and the four keys are adjacent in memory.

use super::virtual_time::is_later;

/// Number of children of a node of the heap.
const CHILDREN: usize = 4;

/// Virtual time of a flow, and the flow's number.
pub(crate) type HeapEntry = (u64, u32);

/// Min-heap of entries, ordered by virtual time; times may wrap around.
#[derive(Debug, Default)]
pub(crate) struct FlowHeap {
    entries: Vec<HeapEntry>,
}

impl FlowHeap {
    /// Reserves memory for a total of `count` entries.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.entries.reserve(count.saturating_sub(self.entries.len()));
    }

    /// Returns the earliest entry.
    #[inline(always)]
    pub(crate) fn first(&self) -> Option<HeapEntry> {
        self.entries.first().copied()
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, entry: HeapEntry) {
        let end = self.entries.len();
        self.entries.push(entry);
        let at = self.sift_up(end, entry);
        self.entries[at] = entry;
    }

    /// Removes the earliest entry, if any.
    #[inline(always)]
    pub(crate) fn pop(&mut self) {
        if let Some(last) = self.entries.pop()
            && !self.entries.is_empty()
        {
            self.sift_down(0, last);
        }
    }

    /// Replaces the earliest entry by `entry`.
    #[inline(always)]
    pub(crate) fn replace_first(&mut self, entry: HeapEntry) {
        self.sift_down(0, entry);
    }

    /// Removes the entry of a flow, if there is one.
    #[cold]
    pub(crate) fn remove(&mut self, id: u32) {
        if let Some(at) = self.entries.iter().position(|&(_, other)| other == id)
            && let Some(last) = self.entries.pop()
            && at < self.entries.len()
        {
            let at = self.sift_up(at, last);
            self.sift_down(at, last);
        }
    }

    /// Moves each ancestor of node `at` that is later than `entry` down by one node. Returns the
    /// node that is then free.
    #[inline(always)]
    fn sift_up(&mut self, mut at: usize, entry: HeapEntry) -> usize {
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            let above = self.entries[parent];
            if !is_later(above.0, entry.0) {
                break;
            }
            self.entries[at] = above;
            at = parent;
        }
        at
    }

    /// Moves `entry` down from node `at` until no child is earlier.
    #[inline(always)]
    fn sift_down(&mut self, mut at: usize, entry: HeapEntry) {
        let entries = &mut self.entries[..];
        loop {
            let child = at * CHILDREN + 1;
            let least = if let Some(four) = entries.get(child..child + CHILDREN) {
                let left = usize::from(is_later(four[0].0, four[1].0));
                let right = 2 + usize::from(is_later(four[2].0, four[3].0));
                child + if is_later(four[left].0, four[right & 3].0) { right } else { left }
            } else {
                let Some(rest) = entries.get(child..).filter(|rest| !rest.is_empty()) else {
                    break;
                };
                let mut least = 0;
                for (i, other) in rest.iter().enumerate() {
                    if is_later(rest[least].0, other.0) {
                        least = i;
                    }
                }
                child + least
            };
            if !is_later(entry.0, entries[least].0) {
                break;
            }
            entries[at] = entries[least];
            at = least;
        }
        entries[at] = entry;
    }
}
