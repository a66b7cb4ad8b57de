//! Binary heap of entries, earliest first. Its last element can be read and removed: an entry that
//! was pushed and did not rise is there, so that cancelling its timer at once is cheap.

use super::entry::TimerEntry;

/// Min-heap of entries, ordered by deadline.
#[derive(Debug, Default)]
pub(super) struct EntryHeap(Vec<TimerEntry>);

impl EntryHeap {
    pub(super) fn with_capacity(entries_count: usize) -> Self {
        Self(Vec::with_capacity(entries_count))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the earliest entry; `None` if the heap is empty.
    pub(super) fn first(&self) -> Option<&TimerEntry> {
        self.0.first()
    }

    pub(super) fn push(&mut self, entry: TimerEntry) {
        let mut at = self.0.len();
        self.0.push(entry);
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.0[parent].deadline_ns <= entry.deadline_ns {
                break;
            }
            self.0[at] = self.0[parent];
            at = parent;
        }
        self.0[at] = entry;
    }

    /// Removes and returns the earliest entry; `None` if the heap is empty.
    pub(super) fn pop(&mut self) -> Option<TimerEntry> {
        let last = self.0.pop()?;
        let Some(&first) = self.0.first() else { return Some(last) };
        self.sift_down(0, last);
        Some(first)
    }

    /// Removes the last element if `predicate` returns `true` for it; returns `true` if it was
    /// removed.
    pub(super) fn pop_last_if(&mut self, predicate: impl FnOnce(TimerEntry) -> bool) -> bool {
        self.0.pop_if(|entry| predicate(*entry)).is_some()
    }

    /// Removes the entries for which `keep` returns `false`; returns the number removed.
    pub(super) fn retain(&mut self, keep: impl FnMut(&TimerEntry) -> bool) -> usize {
        let before = self.0.len();
        self.0.retain(keep);
        for at in (0..self.0.len() / 2).rev() {
            self.sift_down(at, self.0[at]);
        }
        before - self.0.len()
    }

    /// Moves `entry` down the heap from index `at` until no child is earlier.
    fn sift_down(&mut self, mut at: usize, entry: TimerEntry) {
        loop {
            let mut child = 2 * at + 1;
            if child >= self.0.len() {
                break;
            }
            if child + 1 < self.0.len() && self.0[child + 1].deadline_ns < self.0[child].deadline_ns
            {
                child += 1;
            }
            if entry.deadline_ns <= self.0[child].deadline_ns {
                break;
            }
            self.0[at] = self.0[child];
            at = child;
        }
        self.0[at] = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(deadline_ns: u64) -> TimerEntry {
        TimerEntry::new(deadline_ns, deadline_ns)
    }

    fn drained(mut heap: EntryHeap) -> Vec<u64> {
        std::iter::from_fn(|| heap.pop()).map(|entry| entry.deadline_ns).collect()
    }

    #[test]
    fn pop_returns_entries_in_order_of_deadline() {
        let mut heap = EntryHeap::default();
        let mut sorted: Vec<u64> = (0..500).map(|i| i * 7919 % 263).collect();
        sorted.iter().for_each(|&deadline_ns| heap.push(entry(deadline_ns)));
        sorted.sort_unstable();
        assert_eq!(drained(heap), sorted);
    }

    #[test]
    fn retain_returns_removed_count_and_keeps_order() {
        let mut heap = EntryHeap::default();
        (0..100).rev().for_each(|deadline_ns| heap.push(entry(deadline_ns)));
        assert_eq!(heap.retain(|entry| entry.deadline_ns % 3 == 0), 66);
        assert_eq!(drained(heap), (0..100).step_by(3).collect::<Vec<_>>());
    }

    #[test]
    fn pop_last_if_removes_only_the_last_element() {
        let mut heap = EntryHeap::default();
        heap.push(entry(1));
        heap.push(entry(2));
        assert!(!heap.pop_last_if(|it| it == entry(1)));
        assert!(heap.pop_last_if(|it| it == entry(2)));
        assert_eq!(drained(heap), [1]);
    }
}
