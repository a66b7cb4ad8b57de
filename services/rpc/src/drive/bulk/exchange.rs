//! Bulk transfers of an endpoint: starting them, handling bulk messages, and copying and sending
//! data.

use super::memory::BulkMemory;
use super::part::BulkPart;
use super::remote::TransferDirection::{Pull, Push};
use super::remote::{RemoteMemory, TransferDirection};
use super::tables::{
    ActiveTransfer, Attachment, BulkTables, IncomingData, OutgoingData, PUSH_NUMBER_BIT, Transfer,
    TransferStage, check_memory_access,
};
use crate::clock::{self, after};
use crate::drive::peers::Peers;
use crate::engine::{
    ArrivalCheck, Backlog, BulkHandle, BulkMessage, CheckWord, FileId, FrameHeader, FrameKind,
    PeerKey, SegmentLocation,
};
use crate::error::failed_call;
use crate::raw::StoreKind;
use crate::{BulkError, BulkRefusal, CloseReason, Config, FrameError, WithdrawError};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Maximum number of bytes of bulk data copied or sent before the event loop does other work.
const CHUNK_BYTES: u64 = 1 << 20;
/// Maximum number of bytes of bulk messages queued for a peer in one iteration. They are sent
/// before more are queued.
const QUEUED_PER_ITERATION_BYTES_MAX: usize = 1 << 16;
/// Maximum number of peers' memories that are attached for direct access. Beyond it, idle ones are
/// released and must be requested again.
const ATTACHMENTS_MAX: usize = 4096;

/// File id that no file has. The receiver finds the file missing, and uses messages.
const NO_FILE: FileId = FileId { device: u64::MAX, inode: u64::MAX };

/// Parameters of a transfer that this endpoint is to start.
#[derive(Clone, Copy)]
pub(crate) struct TransferRequest<'a> {
    pub(crate) peer: PeerKey,
    pub(crate) direction: TransferDirection,
    /// Handle of the peer's memory.
    pub(crate) handle: &'a BulkHandle,
    /// Local memory.
    pub(crate) memory: &'a BulkMemory,
    pub(crate) part: BulkPart,
}

impl TransferRequest<'_> {
    /// Checks the range in both memories, and the rights of the handle.
    fn check(&self) -> Result<(), BulkError> {
        let BulkPart { theirs, ours, bytes, .. } = self.part;
        let memory_bytes = self.memory.len_bytes();
        if !crate::engine::is_range_within(ours, bytes, memory_bytes) {
            return Err(BulkError::Outside { offset: ours, bytes, memory_bytes });
        }
        Ok(check_memory_access(self.handle, (theirs, bytes), self.direction)?)
    }
}

/// Encodes a bulk message as the header and the body of a frame.
fn encode_frame(message: &BulkMessage) -> (FrameHeader, Vec<u8>) {
    let body = message.encode(Vec::new());
    let body_bytes = body.len() as u32; // Bounded by BULK_SEGMENTS_MAX.
    (FrameHeader { body_bytes, kind: FrameKind::Bulk, method: 0, call: 0 }, body)
}

/// Methods of bulk transfers, with the parts of the endpoint that they use.
pub(crate) struct BulkExchange<'a> {
    pub(crate) tables: &'a mut BulkTables,
    pub(crate) peers: &'a mut Peers,
    pub(crate) config: &'a Config,
}

impl BulkExchange<'_> {
    // Starting transfers.

    /// Copies a small range at once, and returns the result. Returns `None` if the peer's memory is
    /// not attached, or the range is not small.
    #[inline]
    pub(crate) fn try_copy_immediately(
        &mut self,
        request: &TransferRequest<'_>,
    ) -> Option<Result<(), BulkError>> {
        let BulkPart { theirs, ours, bytes, .. } = request.part;
        if bytes > CHUNK_BYTES || request.part.is_halved() {
            return None;
        }
        let store_kind = self.store_kind(request.direction, request.memory, request.handle);
        let remote = self.tables.attachments.attached_memory(request.peer, request.handle.id)?;
        if remote.handle != *request.handle {
            return Some(Err(BulkRefusal::Unknown.into()));
        }
        if let Err(error) = request.check() {
            return Some(Err(error));
        }
        let copied = remote.copy_between_memories(
            request.direction,
            theirs,
            (request.memory, ours),
            bytes,
            store_kind,
        );
        if copied != Ok(bytes) {
            return None; // start_transfer() retries the transfer and reports the error.
        }
        self.tables.stats.transfers_count += 1;
        *self.tables.stats.copied_bytes_mut(remote.is_mapped) += bytes;
        Some(Ok(()))
    }

    /// Returns the kind of stores for a copy. They are non-temporal if the target memory has at
    /// least `streamed_bytes_min` bytes.
    #[inline]
    fn store_kind(
        &self,
        direction: TransferDirection,
        ours: &BulkMemory,
        theirs: &BulkHandle,
    ) -> StoreKind {
        let to_bytes = match direction {
            Pull => ours.len_bytes(),
            Push => theirs.bytes,
        };
        match to_bytes >= self.config.bulk.streamed_bytes_min {
            true => StoreKind::Streaming,
            false => StoreKind::Cached,
        }
    }

    /// Copies a small range at once, or adds the transfer to the table.
    #[inline]
    pub(crate) fn start_transfer(
        &mut self,
        request: &TransferRequest<'_>,
    ) -> Result<Transfer, BulkError> {
        match self.try_copy_immediately(request) {
            Some(done) => done.map(|()| Transfer::COMPLETED),
            None => self.insert_transfer(request),
        }
    }

    /// Adds a transfer to the table, for later iterations of the event loop to complete.
    fn insert_transfer(&mut self, request: &TransferRequest<'_>) -> Result<Transfer, BulkError> {
        let max = self.config.bulk.transfers_max;
        request.check()?;
        request.check_halved_transfer(self.tables)?;
        if !self.peers.is_connected(request.peer) {
            return Err(BulkError::Stale);
        }
        let BulkPart { theirs, ours, bytes, timeout, halved } = request.part;
        let deadline_ns = timeout.map_or(u64::MAX, after);
        let transfer = ActiveTransfer {
            peer: request.peer,
            direction: request.direction,
            handle: *request.handle,
            memory: request.memory.clone(),
            theirs,
            ours,
            bytes,
            deadline_ns,
            stage: TransferStage::Waiting,
            halved,
            own_bytes: bytes,
            is_peer_copying: false,
        };
        let id = self.tables.transfers.insert(transfer, max).ok_or(BulkError::Full)?;
        self.tables.stats.transfers_count += 1;
        self.advance_transfer(id);
        Ok(id)
    }

    /// Continues a transfer that waits for the peer's memory. If the memory is attached, starts to
    /// copy. Otherwise requests the attachment, or starts to send messages if the memory cannot be
    /// attached.
    fn advance_transfer(&mut self, id: Transfer) {
        let Some(transfer) = self.tables.transfers.get_active_mut(id) else { return };
        let (peer, handle) = (transfer.peer, transfer.handle);
        let is_attachable = self.is_attachable(peer);
        match self.tables.attachments.get(peer, handle.id) {
            Some(Attachment::Attached(remote)) if remote.handle != handle => {
                self.finish_transfer(id, Err(BulkRefusal::Unknown.into()));
            }
            Some(Attachment::Attached(_)) => {
                self.set_transfer_stage(id, TransferStage::Copying(0));
                self.request_peer_half(id);
                self.tables.copying.push_back(id);
            }
            Some(Attachment::Remote(keys)) if keys.handle == handle => {
                let keys = Arc::clone(keys);
                self.start_remote_transfer(id, &keys);
            }
            Some(Attachment::Requested(request)) if *request == handle => {}
            Some(Attachment::Requested(_) | Attachment::Remote(_)) => {
                self.finish_transfer(id, Err(BulkRefusal::Unknown.into()))
            }
            Some(Attachment::Denied) => self.restart_with_messages(id),
            None if is_attachable => {
                self.free_slot_for_attachment();
                self.tables.attachments.insert(peer, handle.id, Attachment::Requested(handle));
                self.send_bulk_message(peer, &BulkMessage::Attach(handle));
            }
            None => self.restart_with_messages(id),
        }
    }

    /// Releases idle attachments if ATTACHMENTS_MAX are in the table.
    fn free_slot_for_attachment(&mut self) {
        if self.tables.attachments.count() < ATTACHMENTS_MAX {
            return;
        }
        // Memories that were found to need messages are requested again at their next use.
        self.tables.attachments.remove_denied();
        let copying: Vec<_> = self
            .tables
            .copying
            .iter()
            .filter_map(|id| {
                self.tables.transfers.get_active(*id).map(|it| (it.peer, it.handle.id))
            })
            .collect();
        let here = self.tables.attachments.attached_keys();
        let idle: Vec<_> = here.filter(|key| !copying.contains(key)).collect();
        for (peer, id) in idle {
            self.tables.attachments.remove(peer, id);
            self.send_bulk_message(peer, &BulkMessage::Detached { id });
        }
    }

    /// Restarts a transfer from its beginning with messages, even if a part of it was copied. The
    /// peer's half is not restarted.
    fn restart_with_messages(&mut self, id: Transfer) {
        let Some(transfer) = self.tables.transfers.get_active_mut(id) else { return };
        transfer.stage = TransferStage::Messages;
        let ActiveTransfer { peer, direction, handle, theirs: offset, ours, .. } = *transfer;
        let bytes = transfer.own_bytes;
        let (memory, transfer) = (transfer.memory.clone(), id.word());
        match direction {
            Pull => {
                let arrival = ArrivalCheck::new(bytes);
                let incoming = IncomingData { memory, offset: ours, arrival, registered: None };
                self.tables.start_receiving(peer, transfer, incoming);
                let read = BulkMessage::Read { transfer, handle, offset, bytes };
                self.queue_message(peer, &read);
            }
            Push => {
                let opening = BulkMessage::Write { transfer, handle, offset, bytes };
                if bytes == 0 {
                    return self.send_bulk_message(peer, &opening);
                }
                // The message goes with the first of the data.
                let (call, opening) = (transfer | PUSH_NUMBER_BIT, Some(opening));
                let (offset, sent, registered) = (ours, 0, None);
                let it =
                    OutgoingData { peer, call, memory, offset, sent, bytes, registered, opening };
                self.tables.start_sending(it);
            }
        }
    }

    pub(super) fn set_transfer_stage(&mut self, id: Transfer, stage: TransferStage) {
        if let Some(transfer) = self.tables.transfers.get_active_mut(id) {
            transfer.stage = stage;
        }
    }

    /// Stores the result of a transfer. If a peer has asked for the transfer, also sends it the
    /// result. If the transfer has failed while the peer copies its half, cancels that half.
    pub(super) fn finish_transfer(&mut self, id: Transfer, result: Result<(), BulkError>) {
        let halved = self.tables.transfers.get_active(id).filter(|it| it.is_peer_copying);
        let copying_peer = halved.map(|it| it.peer);
        if let (Some(peer), Err(_)) = (copying_peer, &result) {
            self.send_bulk_message(peer, &BulkMessage::Cancel { transfer: id.word() });
        }
        self.tables.transfers.finish(id, result);
        self.send_help_result(id);
    }

    /// Cancels a transfer. From now on, this endpoint neither reads nor writes memory for it.
    /// Remote memory operations that have begun continue; they hold the local memory until they are
    /// complete.
    pub(crate) fn cancel_transfer(&mut self, id: Transfer) {
        let Some(transfer) = self.tables.transfers.remove_active(id) else { return };
        self.tables.copying.retain(|&it| it != id);
        if matches!(transfer.stage, TransferStage::Messages) {
            let (peer, word) = (transfer.peer, id.word());
            self.stop_data(peer, word, word | PUSH_NUMBER_BIT);
            if let Some(link) = self.peers.link_mut(peer) {
                link.release_memory(&transfer.memory);
            }
            self.send_bulk_message(peer, &BulkMessage::Cancel { transfer: word });
        } else if transfer.is_peer_copying {
            self.send_bulk_message(transfer.peer, &BulkMessage::Cancel { transfer: id.word() });
        }
    }

    /// Stops receiving data with the transfer number `received`, and sending data with the number
    /// `sent`.
    fn stop_data(&mut self, peer: PeerKey, received: u64, sent: u64) {
        if self.tables.stop_receiving(peer, received)
            && let Some(link) = self.peers.link_mut(peer)
        {
            link.drop_data(received);
        }
        self.tables.stop_sending(peer, sent);
    }

    // Withdrawing memory.

    /// Starts to withdraw a memory: refuses new uses, and notifies the peers that have it attached.
    /// Also aborts the transfers that send it in messages.
    pub(crate) fn withdraw_memory(&mut self, handle: &BulkHandle) -> Result<(), WithdrawError> {
        let known = self.tables.registered.get_mut(&handle.id);
        let registered = known.filter(|it| it.handle == *handle).ok_or(WithdrawError::Unknown)?;
        registered.is_withdrawn = true;
        let (id, memory) = (handle.id, registered.memory.clone());
        for peer in registered.attached.clone() {
            self.send_bulk_message(peer, &BulkMessage::Detach { id });
        }
        for peer in self.peers.keys().collect::<Vec<_>>() {
            if let Some(link) = self.peers.link_mut(peer) {
                link.release_memory(&memory);
            }
        }
        self.cancel_help_with_memory(&memory);
        // Ends transfers of this memory by messages.
        let outgoing = self.tables.outgoing.values().flat_map(|its| its.iter());
        let outgoing = outgoing.filter(|it| it.registered == Some(id));
        let mut ended: Vec<_> = outgoing.map(|it| (it.peer, it.call)).collect();
        for (&peer, its) in &self.tables.incoming {
            let incoming = its.iter().filter(|(_, it)| it.registered == Some(id));
            ended.extend(incoming.map(|(call, _)| (peer, call & !PUSH_NUMBER_BIT)));
        }
        for (peer, transfer) in ended {
            self.stop_data(peer, transfer | PUSH_NUMBER_BIT, transfer);
            self.send_refusal(peer, transfer, BulkRefusal::Unknown);
        }
        Ok(())
    }

    // Messages of peers.

    pub(super) fn send_bulk_message(&mut self, peer: PeerKey, message: &BulkMessage) {
        let (header, body) = encode_frame(message);
        // An error is ignored: a disconnected peer need not be notified.
        let _ = self.peers.send(peer, header, &body);
    }

    /// Queues a bulk message for `peer`. It is sent at the end of this iteration, with the others
    /// in one system call.
    fn queue_message(&mut self, peer: PeerKey, message: &BulkMessage) {
        let (header, body) = encode_frame(message);
        if !self.has_space_to_queue(peer) {
            // An error is ignored: a disconnected peer need not be notified.
            let _ = self.peers.send(peer, header, &body);
            return;
        }
        let Some(link) = self.peers.link_mut(peer) else { return };
        let sent = link.queue(header, &body);
        let is_queued = link.queued_bytes() > 0;
        match sent {
            Ok(()) if is_queued => self.peers.request_flush(),
            Ok(()) => {}
            Err(gone) => self.peers.close(peer, gone),
        }
    }

    /// Returns `true` if a bulk message for a peer can be queued: few bytes are queued for it.
    ///
    /// It does not flush them: the event loop does, and then lets the peer's requests continue that
    /// wait for this.
    fn has_space_to_queue(&mut self, peer: PeerKey) -> bool {
        // Calls to a peer are refused above a quarter of the limit.
        let max = QUEUED_PER_ITERATION_BYTES_MAX
            .min(self.config.connections.queued_bytes_max as usize / 4);
        self.peers.link_mut(peer).is_some_and(|link| link.queued_bytes() <= max)
    }

    /// Sends a peer the refusal of its transfer, and counts it.
    pub(super) fn send_refusal(&mut self, peer: PeerKey, transfer: u64, why: BulkRefusal) {
        self.tables.stats.refused_count += 1;
        self.send_bulk_message(peer, &BulkMessage::Refused { transfer, why });
    }

    /// Decodes and handles a message of a peer about a bulk transfer.
    pub(crate) fn handle_bulk_message(
        &mut self,
        peer: PeerKey,
        body: &[u8],
    ) -> Result<(), FrameError> {
        match BulkMessage::decode(body)? {
            BulkMessage::Attach(handle) => return self.handle_attach(peer, handle),
            BulkMessage::Attached { id, segments, check_word } => {
                return self.handle_attached(peer, id, &segments, check_word);
            }
            BulkMessage::AttachedRemote { id, segments } => {
                return self.handle_attached_remote(peer, id, &segments);
            }
            BulkMessage::AttachRefused { id, why } => {
                let request = self.tables.attachments.remove(peer, id);
                if !matches!(request, Some(Attachment::Requested(_))) {
                    return Err(FrameError::Bulk);
                }
                for waiting in self.transfers_waiting_for(peer, id) {
                    self.finish_transfer(waiting, Err(why.into()));
                }
            }
            BulkMessage::Detach { id } => self.handle_detach(peer, id),
            BulkMessage::Detached { id } => {
                if let Some(registered) = self.tables.registered.get_mut(&id) {
                    registered.attached.retain(|&it| it != peer);
                }
            }
            BulkMessage::Read { transfer, handle, offset, bytes } => {
                if self.tables.is_sending(peer, transfer) {
                    return Err(FrameError::Bulk);
                }
                match self.find_permitted_memory(peer, &handle, (offset, bytes), Pull) {
                    Err(why) => self.send_refusal(peer, transfer, why),
                    Ok(_) if bytes == 0 => {
                        self.send_bulk_message(peer, &BulkMessage::Done { transfer })
                    }
                    Ok(memory) => self.tables.start_sending(OutgoingData {
                        peer,
                        call: transfer,
                        memory,
                        offset,
                        sent: 0,
                        bytes,
                        registered: Some(handle.id),
                        opening: None,
                    }),
                }
            }
            BulkMessage::Write { transfer, handle, offset, bytes } => {
                let call = transfer | PUSH_NUMBER_BIT;
                if self.tables.incoming_mut(peer, call).is_some() {
                    return Err(FrameError::Bulk);
                }
                match self.find_permitted_memory(peer, &handle, (offset, bytes), Push) {
                    Err(why) => self.send_refusal(peer, transfer, why),
                    Ok(_) if bytes == 0 => {
                        self.send_bulk_message(peer, &BulkMessage::Done { transfer })
                    }
                    Ok(memory) => {
                        let (arrival, registered) = (ArrivalCheck::new(bytes), Some(handle.id));
                        let incoming = IncomingData { memory, offset, arrival, registered };
                        self.tables.start_receiving(peer, call, incoming);
                    }
                }
            }
            BulkMessage::Done { transfer } => return self.handle_done(peer, transfer),
            BulkMessage::Refused { transfer, why } => {
                let id = Transfer::from_word(transfer);
                if why == BulkRefusal::Full && self.take_over_peer_half(peer, id) {
                    return Ok(());
                }
                self.stop_data(peer, transfer, transfer | PUSH_NUMBER_BIT);
                if self.tables.transfers.get_active(id).is_some_and(|it| it.peer == peer) {
                    self.finish_transfer(id, Err(why.into()));
                }
            }
            BulkMessage::Cancel { transfer } => {
                self.stop_data(peer, transfer | PUSH_NUMBER_BIT, transfer);
                self.cancel_help(peer, transfer);
            }
            BulkMessage::Help(help) => return self.start_helping_peer(peer, &help),
        }
        Ok(())
    }

    /// Returns the local memory of a handle. Fails if the peer may not transfer this range of it
    /// now in this direction.
    pub(super) fn find_permitted_memory(
        &mut self,
        peer: PeerKey,
        handle: &BulkHandle,
        range: (u64, u64),
        direction: TransferDirection,
    ) -> Result<BulkMemory, BulkRefusal> {
        if self.tables.data_transfers_count(peer) >= self.config.bulk.transfers_max as usize {
            return Err(BulkRefusal::Full);
        }
        let registered = self.tables.registered_memory(handle)?;
        check_memory_access(handle, range, direction)?;
        Ok(registered.memory.clone())
    }

    /// Handles a peer's request to access a local memory directly.
    fn handle_attach(&mut self, peer: PeerKey, handle: BulkHandle) -> Result<(), FrameError> {
        if self.has_remote_access(peer) {
            self.grant_remote_access(peer, &handle);
            return Ok(());
        }
        if !self.peers.has_shared_memory(peer) {
            // Addresses and the check word must not be sent over a stream.
            return Err(FrameError::Bulk);
        }
        let id = handle.id;
        let check_word = self.tables.create_or_get_check_word();
        let found = self.tables.registered_memory(&handle).and_then(|registered| {
            let check_word = check_word.map_err(|_| BulkRefusal::Full)?;
            if !registered.attached.contains(&peer) {
                registered.attached.push(peer);
            }
            Ok((registered.memory.clone(), check_word))
        });
        let (memory, check_word) = match found {
            Ok(found) => found,
            Err(why) => {
                self.tables.stats.refused_count += 1;
                self.send_bulk_message(peer, &BulkMessage::AttachRefused { id, why });
                return Ok(());
            }
        };
        let mut segments = Vec::with_capacity(memory.segments_count());
        for region in memory.regions() {
            let for_reading = match handle.rights.may_write() {
                true => None,
                false => region.file_for_reading(),
            };
            let file = match &for_reading {
                Some(file) => Some(file.as_fd()),
                None => region.file().filter(|_| handle.rights.may_write()),
            };
            if let (Some(file), Some(link)) = (file, self.peers.link_mut(peer)) {
                // If there is no space for the file, the peer finds it missing and transfers by
                // messages. It must not write to this memory through the kernel, as file-backed
                // memory does not count as lent (RegisteredMemory::is_accessible_via_address).
                let _ = link.send_file(file);
            }
            let (bytes, address) = (region.len_bytes() as u64, region.start_address());
            segments.push(match region.file() {
                Some(_) => {
                    SegmentLocation::File { bytes, file: region.file_id().unwrap_or(NO_FILE) }
                }
                None => SegmentLocation::Process { address, bytes },
            });
        }
        self.send_bulk_message(peer, &BulkMessage::Attached { id, segments, check_word });
        Ok(())
    }

    /// Handles an `Attached` message, by which the owner grants access to its memory.
    fn handle_attached(
        &mut self,
        peer: PeerKey,
        id: u64,
        segments: &[SegmentLocation],
        check_word: CheckWord,
    ) -> Result<(), FrameError> {
        let Some(&Attachment::Requested(handle)) = self.tables.attachments.get(peer, id) else {
            return Err(FrameError::Bulk);
        };
        if crate::engine::segments_total_bytes(segments) != Some(handle.bytes) {
            return Err(FrameError::Bulk);
        }
        let may_access = self.config.bulk.uses_process_vm;
        let pid = self.peers.process_id(peer).filter(|_| may_access);
        let take_file = |file| self.peers.link_mut(peer).and_then(|link| link.take_file(file));
        let attachment = match RemoteMemory::attach(handle, segments, check_word, pid, take_file) {
            Some(remote) => Attachment::Attached(Arc::new(remote)),
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

    /// Continues the transfers that wait until memory `id` of `peer` is attached.
    pub(super) fn advance_waiting_transfers(&mut self, peer: PeerKey, id: u64) {
        for waiting in self.transfers_waiting_for(peer, id) {
            self.advance_transfer(waiting);
        }
    }

    /// Returns the transfers that wait until memory `id` of `peer` is attached.
    fn transfers_waiting_for(&self, peer: PeerKey, id: u64) -> Vec<Transfer> {
        self.tables.transfers.find_all(|it| {
            it.peer == peer && it.handle.id == id && matches!(it.stage, TransferStage::Waiting)
        })
    }

    /// Handles the withdrawal of a memory by its owner.
    fn handle_detach(&mut self, peer: PeerKey, id: u64) {
        let attachment = match self.tables.attachments.get(peer, id) {
            // The owner will refuse the pending request.
            Some(Attachment::Requested(_)) => return,
            Some(_) => self.tables.attachments.remove(peer, id),
            None => None,
        };
        let copying = self.tables.transfers.find_all(|it| {
            let is_copied = matches!(
                it.stage,
                TransferStage::Copying(_)
                    | TransferStage::AwaitingPeerHalf
                    | TransferStage::Remote(_)
            );
            it.peer == peer && it.handle.id == id && is_copied
        });
        for transfer in copying {
            self.tables.copying.retain(|&it| it != transfer);
            self.finish_transfer(transfer, Err(BulkRefusal::Unknown.into()));
        }
        self.detach(peer, id, attachment);
    }

    /// Handles a `Done` message. Pushed data has arrived, an empty pull is done, or the peer has
    /// copied its half.
    fn handle_done(&mut self, peer: PeerKey, word: u64) -> Result<(), FrameError> {
        let id = Transfer::from_word(word);
        let transfer = self.tables.transfers.get_active(id);
        let Some(transfer) = transfer.filter(|it| it.peer == peer) else {
            return Ok(()); // Cancelled meanwhile.
        };
        if transfer.is_peer_copying {
            // If the local half is pushed in messages, there is a second `Done`, and either may be
            // that of the peer's half. The transfer is complete after both.
            self.finish_peer_half(id);
            return Ok(());
        }
        let all = match transfer.direction {
            Pull => transfer.bytes == 0,
            Push => !self.tables.is_sending(peer, word | PUSH_NUMBER_BIT),
        };
        if !all || !matches!(transfer.stage, TransferStage::Messages) {
            return Err(FrameError::Bulk);
        }
        self.stop_data(peer, word, word | PUSH_NUMBER_BIT);
        self.finish_transfer(id, Ok(()));
        Ok(())
    }

    /// Handles a data frame: a piece of a transfer that this endpoint receives. Shared memory and
    /// UCX pass its header and body together; a stream passes the header first, and once more with
    /// an empty body when all data has arrived.
    pub(crate) fn handle_data_frame(
        &mut self,
        peer: PeerKey,
        header: FrameHeader,
        body: &[u8],
    ) -> Result<(), FrameError> {
        let (offset, bytes) = (header.method, u64::from(header.body_bytes));
        let streams = !self.peers.is_polled(peer);
        if bytes == 0 && !streams {
            return Err(FrameError::Bulk);
        }
        let Some(incoming) = self.tables.incoming_mut(peer, header.call) else { return Ok(()) };
        if bytes > 0 {
            if !incoming.arrival.accept_if_next(offset, bytes) {
                return Err(FrameError::Bulk);
            }
            let (memory, at) = (incoming.memory.clone(), incoming.offset + offset);
            self.tables.stats.message_bytes += bytes;
            if streams {
                if let Some(link) = self.peers.link_mut(peer) {
                    link.set_data_target(Some((memory, at)));
                }
                return Ok(());
            }
            memory.write(at, body);
        }
        if self.tables.incoming_mut(peer, header.call).is_some_and(|it| it.arrival.is_complete()) {
            self.tables.stop_receiving(peer, header.call);
            match header.call & PUSH_NUMBER_BIT {
                0 => self.finish_own_half(Transfer::from_word(header.call)),
                _ => self.queue_message(
                    peer,
                    &BulkMessage::Done { transfer: header.call & !PUSH_NUMBER_BIT },
                ),
            }
        }
        Ok(())
    }

    // Copying and sending.

    /// Copies one piece of one transfer, and sends pieces of each peer's transfers. Returns `true`
    /// if there was any work.
    pub(crate) fn run_bulk_iteration(&mut self) -> bool {
        let copied = self.copy_piece();
        self.send_pieces() || copied
    }

    /// Copies the next piece of a transfer, through a mapping or by the kernel. Returns `false` if
    /// there is no such transfer.
    fn copy_piece(&mut self) -> bool {
        let Some(id) = self.tables.copying.pop_front() else { return false };
        let Some(transfer) = self.tables.transfers.get_active(id) else { return true };
        let (peer, handle) = (transfer.peer, transfer.handle);
        let TransferStage::Copying(done) = transfer.stage else { return true };
        let direction = transfer.direction;
        if transfer.deadline_ns != u64::MAX && clock::now_ns() >= transfer.deadline_ns {
            self.finish_transfer(id, Err(BulkError::Deadline));
            return true;
        }
        let here = self.tables.attachments.get(peer, handle.id);
        let Some(Attachment::Attached(remote)) = here.cloned() else {
            // Another transfer was denied the access, or the memory was released while only the
            // peer was copying.
            self.restart_with_messages(id);
            return true;
        };
        let own_bytes = transfer.own_bytes;
        let bytes = (own_bytes - done).min(CHUNK_BYTES);
        let (theirs, ours) = (transfer.theirs + done, transfer.ours + done);
        let store_kind = self.store_kind(direction, &transfer.memory, &handle);
        let memory = (&transfer.memory, ours);
        match remote.copy_between_memories(direction, theirs, memory, bytes, store_kind) {
            Ok(count) => {
                *self.tables.stats.copied_bytes_mut(remote.is_mapped) += count;
                if done + count == own_bytes {
                    self.finish_own_half(id);
                } else {
                    self.set_transfer_stage(id, TransferStage::Copying(done + count));
                    self.tables.copying.push_back(id);
                }
            }
            Err(Errno::PERM | Errno::NOSYS) => {
                self.tables.stats.denied_count += 1;
                self.tables.attachments.insert(peer, handle.id, Attachment::Denied);
                self.send_bulk_message(peer, &BulkMessage::Detached { id: handle.id });
                self.restart_with_messages(id);
            }
            Err(Errno::SRCH) => self.peers.close(peer, CloseReason::ClosedByPeer),
            Err(errno) => {
                let call = match direction {
                    Pull => "process_vm_readv",
                    Push => "process_vm_writev",
                };
                self.finish_transfer(id, Err(BulkError::Memory(failed_call(call)(errno))));
            }
        }
        true
    }

    /// Sends one piece of each transfer that uses messages, peer by peer, while there is space.
    /// Returns `true` if any was sent.
    fn send_pieces(&mut self) -> bool {
        let mut did = false;
        for peer in self.tables.outgoing.keys().copied().collect::<Vec<_>>() {
            let count = self.tables.outgoing.get(&peer).map_or(0, Backlog::len);
            // Ends when there is no space, or the peer is disconnected.
            did |= (0..count).take_while(|_| self.send_piece(peer)).count() > 0;
        }
        did
    }

    /// Sends the next piece to `peer`. Returns `false` if there is no piece, or no space for it
    /// now.
    fn send_piece(&mut self, peer: PeerKey) -> bool {
        let bytes_max = self.peers.message_bytes_max(peer) as u64;
        if !self.has_space_to_queue(peer) {
            return false;
        }
        let its = self.tables.outgoing.get_mut(&peer);
        let Some(mut it) = its.and_then(Backlog::pop) else { return false };
        // At most CHUNK_BYTES, which fits a u32.
        let body_bytes = (it.bytes - it.sent).min(CHUNK_BYTES).min(bytes_max) as u32;
        let header =
            FrameHeader { body_bytes, kind: FrameKind::Data, method: it.sent, call: it.call };
        if let Some(opening) = it.opening.take() {
            self.queue_message(peer, &opening);
        }
        let Some(link) = self.peers.link_mut(peer) else { return false };
        let sent = link.send_data(header, &it.memory, it.offset + it.sent);
        let is_queued = link.queued_bytes() > 0;
        if is_queued {
            self.peers.request_flush();
        }
        if sent == Ok(true) {
            self.tables.stats.message_bytes += u64::from(body_bytes);
            it.sent += u64::from(body_bytes);
        }
        match it.sent < it.bytes {
            true => self.tables.start_sending(it),
            false => self.tables.stop_sending(peer, it.call),
        }
        sent.unwrap_or_else(|gone| {
            self.peers.close(peer, gone);
            false
        })
    }

    // Disconnected peers, and the endpoint's end.

    /// Fails all transfers with a disconnected peer, and detaches it from the registered memories.
    pub(crate) fn abort_peer_transfers(
        &mut self,
        peer: PeerKey,
        why: &CloseReason,
        socket: Option<OwnedFd>,
    ) {
        for id in self.tables.transfers.find_all(|it| it.peer == peer) {
            self.finish_transfer(id, Err(why.clone().into()));
        }
        let transfers = &self.tables.transfers;
        self.tables.copying.retain(|&id| transfers.get_active(id).is_some());
        self.tables.outgoing.remove(&peer);
        self.tables.incoming.remove(&peer);
        self.tables.attachments.remove_peer(peer);
        self.tables.remote.remove_peer(peer);
        // This end no longer writes to the peer's memory. The shutdown tells the peer now, rather
        // than when the lingering socket is closed: the peer may itself be waiting for this end.
        if let Some(socket) = &socket {
            // An error means that the peer has already closed the connection.
            let _ = shutdown(socket, Shutdown::Write);
        }
        // A peer that closed the connection itself no longer writes; one that this end
        // disconnected may write until it notices.
        self.tables.detach_peer(peer, why != &CloseReason::ClosedByPeer, socket.as_ref());
    }
}
