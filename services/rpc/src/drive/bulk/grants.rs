//! Tables of remote memory access: memories registered with the transport, keys of peers' memories, and operations.

use crate::engine::{BulkHandle, KeyedSegment, PeerKey};
use std::any::Any;
use std::collections::{HashMap, HashSet};

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
    /// Withdrawn memories of peers that operations still use.
    pub(super) detaching: HashSet<(PeerKey, u64)>,
}

impl RemoteOperations {
    /// Returns `true` if an operation under way uses the peer's memory.
    pub(super) fn uses(&self, peer: PeerKey, memory: u64) -> bool {
        self.by_number.values().any(|it| (it.peer, it.memory) == (peer, memory))
    }

    pub(super) fn remove_peer(&mut self, peer: PeerKey) {
        self.by_number.retain(|_, it| it.peer != peer);
        self.detaching.retain(|it| it.0 != peer);
    }
}
