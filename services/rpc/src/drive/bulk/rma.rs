//! Transfers by remote memory access: the transport of the requester reads and writes the owner's
//! memory.
//!
//! ```text
//!  requester                                owner
//!  Attach           ────────────────────▶  looks up the handle, registers the memory with the transport
//!  unpacks the keys ◀────────────────────  AttachedRemote: an address and a key for each segment
//!  gets and puts, as often as it likes, until Detach
//! ```

use super::exchange::BulkExchange;
use super::grants::{PendingOperation, RemoteGrant, RemoteKeys, UnpackedSegment};
use super::memory::BulkMemory;
use super::part::BulkPath;
use super::remote::TransferDirection;
use super::tables::{Attachment, BulkTables, Transfer, TransferStage};
use crate::drive::link::RemoteAccess;
use crate::engine::{
    BULK_MESSAGE_BYTES_MAX, BulkHandle, BulkMessage, KeyedSegment, PeerKey, keyed_total_bytes,
};
use crate::{BulkError, CloseReason, FrameError};
use std::sync::Arc;

impl BulkExchange<'_> {
    /// Returns the remote memory access of that peer's link; `None` if the transport has none.
    fn remote_access(&mut self, peer: PeerKey) -> Option<&mut dyn RemoteAccess> {
        self.peers.link_mut(peer)?.remote_access()
    }

    /// Returns `true` if memories of that peer may be attached through the transport.
    pub(super) fn has_remote_access(&mut self, peer: PeerKey) -> bool {
        self.config.bulk.maps && self.remote_access(peer).is_some()
    }

    /// Returns `true` if memories of that peer can be accessed directly, once they are attached.
    pub(super) fn is_attachable(&mut self, peer: PeerKey) -> bool {
        self.peers.has_shared_memory(peer) && self.config.bulk.maps || self.has_remote_access(peer)
    }

    /// Returns the way in which transfers access a memory of the peer. Returns `None` if this is
    /// not known yet.
    pub(crate) fn transfer_path(&mut self, peer: PeerKey, handle: &BulkHandle) -> Option<BulkPath> {
        let is_attachable = self.is_attachable(peer);
        match self.tables.attachments.get(peer, handle.id) {
            Some(Attachment::Attached(remote)) if remote.is_mapped => Some(BulkPath::Mapped),
            Some(Attachment::Attached(_)) => Some(BulkPath::Process),
            Some(Attachment::Remote(_)) => Some(BulkPath::Remote),
            Some(Attachment::Denied) => Some(BulkPath::Messages),
            Some(Attachment::Requested(_)) => None,
            None if is_attachable => None,
            None => self.peers.is_connected(peer).then_some(BulkPath::Messages),
        }
    }

    /// Handles a peer's request to access a memory through the transport.
    pub(super) fn grant_remote_access(&mut self, peer: PeerKey, handle: &BulkHandle) {
        let id = handle.id;
        let registered = match self.tables.registered_memory(handle) {
            Ok(registered) => registered,
            Err(why) => {
                self.tables.stats.refused_count += 1;
                return self.send_bulk_message(peer, &BulkMessage::AttachRefused { id, why });
            }
        };
        let memory = registered.memory.clone();
        if registered.grant.is_none() {
            let access = self.peers.link_mut(peer).and_then(|link| link.remote_access());
            registered.grant = access.and_then(|it| register(it, &memory)).map(Arc::new);
        }
        let segments = registered.grant.as_ref().map_or_else(Vec::new, |it| it.segments.clone());
        let mut message = BulkMessage::AttachedRemote { id, segments };
        if message.encode(Vec::new()).len() > BULK_MESSAGE_BYTES_MAX as usize {
            message = BulkMessage::AttachedRemote { id, segments: Vec::new() };
        } else if registered.grant.is_some() && !registered.attached.contains(&peer) {
            registered.attached.push(peer);
        }
        self.send_bulk_message(peer, &message);
    }

    /// Handles an `AttachedRemote` message, by which the owner grants access to its memory.
    pub(super) fn handle_attached_remote(
        &mut self,
        peer: PeerKey,
        id: u64,
        segments: &[KeyedSegment],
    ) -> Result<(), FrameError> {
        let Some(&Attachment::Requested(handle)) = self.tables.attachments.get(peer, id) else {
            return Err(FrameError::Bulk);
        };
        // Without segments, the owner cannot grant the access.
        if !segments.is_empty() && keyed_total_bytes(segments) != Some(handle.bytes) {
            return Err(FrameError::Bulk);
        }
        let keys = self.remote_access(peer).and_then(|it| unpack_keys(it, handle, segments));
        let attachment = match keys {
            Some(keys) => Attachment::Remote(Arc::new(keys)),
            None => {
                self.tables.stats.denied_count += 1;
                self.send_bulk_message(peer, &BulkMessage::Detached { id });
                Attachment::Denied
            }
        };
        self.tables.attachments.insert(peer, id, attachment);
        self.advance_waiting_transfers(peer, id);
        Ok(())
    }

    /// Starts the remote memory operations of a transfer.
    pub(super) fn start_remote_transfer(&mut self, id: Transfer, keys: &RemoteKeys) {
        let Some(transfer) = self.tables.transfers.get_active(id) else { return };
        let (peer, direction) = (transfer.peer, transfer.direction);
        let (theirs, ours, bytes) = (transfer.theirs, transfer.ours, transfer.bytes);
        let memory = transfer.memory.clone();
        let tables = &mut *self.tables;
        let access = self.peers.link_mut(peer).and_then(|link| link.remote_access());
        let Some(access) = access else { return };
        let (mut done, mut pending_count) = (0, 0);
        let mut started = Ok(());
        while done < bytes {
            let Some(run) = memory.first_contiguous_piece(ours + done, bytes - done) else { break };
            let at = theirs + done;
            let index = keys.segments.partition_point(|it| it.start + it.bytes <= at);
            let Some(segment) = keys.segments.get(index) else { break };
            let within = at - segment.start;
            // At most run.bytes, which is a usize.
            let count = (segment.bytes - within).min(run.bytes as u64);
            let run = crate::raw::MemoryPiece { bytes: count as usize, ..run };
            let there = (segment.key, segment.address + within);
            let number = tables.remote.next_number;
            match access.start_copy(direction, there, run, number, Box::new(memory.clone())) {
                Ok(true) => {}
                Ok(false) => pending_count += add_operation(tables, id, peer, keys.handle.id),
                Err(why) => {
                    started = Err(why);
                    break;
                }
            }
            done += count;
        }
        if direction == TransferDirection::Push && started.is_ok() && done > 0 {
            // The data has arrived once the flush is complete.
            match access.start_flush(tables.remote.next_number) {
                Ok(true) => {}
                Ok(false) => pending_count += add_operation(tables, id, peer, keys.handle.id),
                Err(why) => started = Err(why),
            }
        }
        tables.stats.remote_bytes += done;
        match started {
            Ok(()) if pending_count > 0 => {
                self.set_transfer_stage(id, TransferStage::Remote(pending_count));
            }
            Ok(()) => self.finish_transfer(id, Ok(())),
            Err(why) => self.finish_transfer(id, Err(why.into())),
        }
    }

    /// Handles completed operations. Each comes with `true` if it has succeeded.
    pub(crate) fn handle_remote_completions(&mut self, completed: &[(u64, bool)]) {
        for &(number, has_succeeded) in completed {
            let Some(operation) = self.tables.remote.by_number.remove(&number) else { continue };
            let PendingOperation { transfer, peer, memory } = operation;
            let id = Transfer::from_word(transfer);
            let transfer = self.tables.transfers.get_active_mut(id);
            if let Some(TransferStage::Remote(pending_count)) = transfer.map(|it| &mut it.stage) {
                *pending_count -= 1;
                let is_last = *pending_count == 0;
                if !has_succeeded {
                    let why = CloseReason::Ucx("remote memory access failed".into());
                    self.finish_transfer(id, Err(BulkError::Disconnected(why)));
                } else if is_last {
                    self.finish_transfer(id, Ok(()));
                }
            }
            if let Some(keys) = self.tables.remote.take_detached(peer, memory) {
                self.finish_detaching(peer, memory, &keys);
            }
        }
    }

    /// Destroys the keys of a peer's withdrawn memory and confirms the withdrawal, once no
    /// operation uses the memory any more. `attachment` is that of the memory, which was removed
    /// from the table.
    pub(super) fn detach(&mut self, peer: PeerKey, id: u64, attachment: Option<Attachment>) {
        let keys = match attachment {
            Some(Attachment::Remote(keys)) => keys.numbers(),
            _ => Vec::new(),
        };
        if let Some(keys) = self.tables.remote.start_detaching(peer, id, keys) {
            self.finish_detaching(peer, id, &keys);
        }
    }

    /// Destroys the keys of a peer's withdrawn memory, and confirms the withdrawal.
    fn finish_detaching(&mut self, peer: PeerKey, id: u64, keys: &[usize]) {
        if let Some(access) = self.remote_access(peer) {
            access.destroy_keys(keys);
        }
        self.send_bulk_message(peer, &BulkMessage::Detached { id });
    }
}

/// Adds the next operation to the table; returns 1, the number of operations added.
fn add_operation(tables: &mut BulkTables, transfer: Transfer, peer: PeerKey, memory: u64) -> u32 {
    let number = tables.remote.next_number;
    tables.remote.next_number += 1;
    let transfer = transfer.word();
    tables.remote.by_number.insert(number, PendingOperation { transfer, peer, memory });
    1
}

/// Registers the segments of a memory with the transport; returns `None` if it refuses one.
fn register(access: &mut dyn RemoteAccess, memory: &BulkMemory) -> Option<RemoteGrant> {
    let (mut segments, mut registrations) = (Vec::new(), Vec::new());
    for region in memory.regions().filter(|it| it.len_bytes() > 0) {
        let (registration, key) = access.register(region)?;
        registrations.push(registration);
        let (address, bytes) = (region.start_address(), region.len_bytes() as u64);
        segments.push(KeyedSegment { address, bytes, key });
    }
    Some(RemoteGrant { segments, _registrations: registrations })
}

/// Unpacks the keys of a peer's memory. Returns `None` if the transport refuses one, or there are
/// none.
fn unpack_keys(
    access: &mut dyn RemoteAccess,
    handle: BulkHandle,
    located: &[KeyedSegment],
) -> Option<RemoteKeys> {
    let mut keys = RemoteKeys { handle, segments: Vec::with_capacity(located.len()) };
    let mut start = 0;
    for &KeyedSegment { address, bytes, key: ref packed } in located {
        let Some(key) = access.unpack_key(packed) else {
            access.destroy_keys(&keys.numbers());
            return None;
        };
        keys.segments.push(UnpackedSegment { start, bytes, address, key });
        start += bytes; // Together handle.bytes, which was checked.
    }
    (!keys.segments.is_empty()).then_some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rights;
    use crate::raw::{MemoryPiece, Region};
    use std::any::Any;

    /// Transport that refuses empty keys.
    #[derive(Default)]
    struct FakeAccess {
        unpacked_count: usize,
        destroyed: Vec<usize>,
    }

    impl RemoteAccess for FakeAccess {
        fn register(&mut self, _: &Arc<Region>) -> Option<(Box<dyn Any + Send + Sync>, Vec<u8>)> {
            None
        }

        fn unpack_key(&mut self, packed: &[u8]) -> Option<usize> {
            self.unpacked_count += 1;
            (!packed.is_empty()).then_some(self.unpacked_count - 1)
        }

        fn destroy_keys(&mut self, keys: &[usize]) {
            self.destroyed.extend_from_slice(keys);
        }

        fn start_copy(
            &mut self,
            _: TransferDirection,
            _: (usize, u64),
            _: MemoryPiece<'_>,
            _: u64,
            _: Box<dyn Any + Send>,
        ) -> Result<bool, CloseReason> {
            Ok(true)
        }

        fn start_flush(&mut self, _: u64) -> Result<bool, CloseReason> {
            Ok(true)
        }
    }

    #[test]
    fn keys_before_a_refused_one_are_destroyed() {
        let handle = BulkHandle { id: 1, key: 2, bytes: 3, rights: Rights::Read };
        let segment = |key: &[u8]| KeyedSegment { address: 0, bytes: 1, key: key.to_vec() };
        let mut access = FakeAccess::default();
        let all = [segment(b"a"), segment(b"b"), segment(b"c")];
        let keys = unpack_keys(&mut access, handle, &all).expect("no key is empty");
        assert_eq!((keys.numbers(), &access.destroyed[..]), (vec![0, 1, 2], &[][..]));
        let refused = [segment(b"a"), segment(b"b"), segment(b"")];
        assert!(unpack_keys(&mut access, handle, &refused).is_none());
        assert_eq!(access.destroyed, [3, 4]);
    }
}
