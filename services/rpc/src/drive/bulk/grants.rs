//! Tables of remote memory access: memories registered with the transport, keys of peers' memories, and operations.

use crate::engine::{BulkHandle, KeyedSegment, PeerKey};
use std::any::Any;
use std::collections::{HashMap, HashSet};

/// Local memory that is registered with the transport, for peers.
pub(crate) struct RemoteGrant {
    pub(super) segments: Vec<KeyedSegment>,
    /// Registrations of the segments, which end when they are dropped.
    pub(super) _registrations: Vec<Box<dyn Any + Send + Sync>>,
}

handover_base::debug_struct!(RemoteGrant as it { segments: it.segments.len() });

/// Memory of a peer that the transport accesses.
#[derive(Debug)]
pub(crate) struct RemoteKeys {
    pub(super) handle: BulkHandle,
    pub(super) segments: Vec<UnpackedSegment>,
}

#[derive(Debug)]
pub(super) struct UnpackedSegment {
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) address: u64,
    /// Number of the transport's key.
    pub(super) key: usize,
}

/// Operation of the transport that is under way.
#[derive(Debug)]
pub(super) struct PendingOperation {
    /// Number of the transfer.
    pub(super) transfer: u64,
    pub(super) peer: PeerKey,
    /// Id of the peer's memory.
    pub(super) memory: u64,
}

/// Operations of the transport that are under way, by number.
#[derive(Debug, Default)]
pub(crate) struct RemoteOperations {
    pub(super) by_number: HashMap<u64, PendingOperation>,
    pub(super) next_number: u64,
    /// Memories that their owners have withdrawn, and that operations still use.
    pub(super) detaching: HashSet<(PeerKey, u64)>,
}

impl RemoteOperations {
    pub(super) fn uses(&self, peer: PeerKey, memory: u64) -> bool {
        self.by_number.values().any(|it| (it.peer, it.memory) == (peer, memory))
    }

    pub(super) fn remove_peer(&mut self, peer: PeerKey) {
        self.by_number.retain(|_, it| it.peer != peer);
        self.detaching.retain(|it| it.0 != peer);
    }
}
