//! Tables of remote memory access: memories registered with the transport, keys of peers' memories,
//! and operations.

use crate::engine::{BulkHandle, KeyedSegment, PeerKey};
use std::any::Any;
use std::collections::HashMap;

/// Registration of a local memory with the transport, for access by peers.
pub(crate) struct RemoteGrant {
    /// Segments of the memory, with the keys that are sent to peers.
    pub(super) segments: Vec<KeyedSegment>,
    /// Registrations of the segments, which end when they are dropped.
    pub(super) _registrations: Vec<Box<dyn Any + Send + Sync>>,
}

handover_base::debug_struct!(RemoteGrant as it { segments: it.segments.len() });

/// Keys with which the transport accesses a peer's memory.
#[derive(Debug)]
pub(crate) struct RemoteKeys {
    /// Handle of the peer's memory.
    pub(super) handle: BulkHandle,
    pub(super) segments: Vec<UnpackedSegment>,
}

impl RemoteKeys {
    /// Returns the numbers of the keys.
    pub(super) fn numbers(&self) -> Vec<usize> {
        self.segments.iter().map(|it| it.key).collect()
    }
}

/// Segment of a peer's memory, with the key to access it.
#[derive(Debug)]
pub(super) struct UnpackedSegment {
    /// Offset of the segment in the memory, in bytes.
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// Start address of the segment in the peer's address space.
    pub(super) address: u64,
    /// Number that the transport has assigned to the key.
    pub(super) key: usize,
}

/// Remote memory operation that is under way.
#[derive(Debug)]
pub(super) struct PendingOperation {
    /// Number of the transfer.
    pub(super) transfer: u64,
    pub(super) peer: PeerKey,
    /// Id of the peer's memory.
    pub(super) memory: u64,
}

/// Remote memory operations that are under way, by number.
#[derive(Debug, Default)]
pub(crate) struct RemoteOperations {
    pub(super) by_number: HashMap<u64, PendingOperation>,
    pub(super) next_number: u64,
    /// Withdrawn memories of peers that operations still use, each with the numbers of its keys.
    detaching: HashMap<(PeerKey, u64), Vec<usize>>,
}

impl RemoteOperations {
    /// Returns `true` if an operation under way uses the peer's memory.
    fn uses(&self, peer: PeerKey, memory: u64) -> bool {
        self.by_number.values().any(|it| (it.peer, it.memory) == (peer, memory))
    }

    /// Starts to detach a memory whose keys have these numbers. Returns them if no operation uses
    /// the memory; otherwise [`take_detached`](Self::take_detached) returns them later.
    pub(super) fn start_detaching(
        &mut self,
        peer: PeerKey,
        memory: u64,
        keys: Vec<usize>,
    ) -> Option<Vec<usize>> {
        if !self.uses(peer, memory) {
            return Some(keys);
        }
        self.detaching.entry((peer, memory)).or_default().extend(keys);
        None
    }

    /// Removes a memory that is being detached once no operation uses it. Returns the numbers of
    /// its keys.
    pub(super) fn take_detached(&mut self, peer: PeerKey, memory: u64) -> Option<Vec<usize>> {
        if !self.detaching.contains_key(&(peer, memory)) || self.uses(peer, memory) {
            return None;
        }
        self.detaching.remove(&(peer, memory))
    }

    pub(super) fn remove_peer(&mut self, peer: PeerKey) {
        self.by_number.retain(|_, it| it.peer != peer);
        self.detaching.retain(|it, _| it.0 != peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_withdrawn_memory_are_returned_after_its_last_operation() {
        let (peer, other) =
            (PeerKey { slot: 1, generation: 0 }, PeerKey { slot: 2, generation: 0 });
        let mut operations = RemoteOperations::default();
        assert_eq!(operations.start_detaching(peer, 7, vec![0]), Some(vec![0]));
        for number in 0..2 {
            let operation = PendingOperation { transfer: 0, peer, memory: 7 };
            operations.by_number.insert(number, operation);
        }
        assert_eq!(operations.start_detaching(other, 7, vec![1]), Some(vec![1]));
        assert_eq!(operations.start_detaching(peer, 7, vec![2, 3]), None);
        // An owner that withdraws its memory twice.
        assert_eq!(operations.start_detaching(peer, 7, Vec::new()), None);
        operations.by_number.remove(&0);
        assert_eq!(operations.take_detached(peer, 7), None);
        operations.by_number.remove(&1);
        assert_eq!(operations.take_detached(other, 7), None);
        assert_eq!(operations.take_detached(peer, 7), Some(vec![2, 3]));
        assert_eq!(operations.take_detached(peer, 7), None);
    }
}
