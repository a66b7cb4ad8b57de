//! Transfers in halves: the endpoint that starts the transfer copies one half, and asks the owner
//! of the other memory to copy the other half.
//!
//! ```text
//!  asker                                    owner
//!  Help, for the second half ────────────▶  looks up its own memory, attaches the other's, once
//!  copies the first half                    copies the second half, as a transfer of its own
//!                            ◀──────────── Done
//! ```
//!
//! Each side copies its half through a mapping or by the kernel. A side that cannot access the
//! other's memory transfers its half in messages, and the other side copies too.

use super::exchange::{BulkExchange, TransferRequest};
use super::memory::BulkMemory;
use super::part::{BulkPart, HALVED_TRANSFER_BYTES_MIN};
use super::remote::TransferDirection::{Pull, Push};
use super::tables::{BulkTables, Transfer, TransferStage};
use crate::engine::{BulkMessage, HelpRequest, PeerKey};
use crate::{BulkError, BulkRefusal, FrameError};

/// Alignment of the start of the second half, in bytes.
const PAGE_BYTES: u64 = 4096;
/// Maximum number of transfers under way on behalf of a peer. It also limits the unanswered
/// requests for one peer's memories.
const TRANSFERS_FOR_PEER_MAX: usize = 16;

impl TransferRequest<'_> {
    /// Checks that the handle in `part.halved` refers to the local memory. Also checks that it
    /// gives the peer the right that its half needs.
    pub(super) fn check_halved_transfer(&self, tables: &BulkTables) -> Result<(), BulkError> {
        let Some(ours) = self.part.halved else { return Ok(()) };
        let known = tables.registered.get(&ours.id);
        let is_ours =
            known.is_some_and(|it| it.handle == ours && it.memory.is_same_memory(self.memory));
        if !is_ours {
            return Err(BulkError::ForeignHandle);
        }
        let allowed = match self.direction {
            Pull => ours.rights.may_write(),
            Push => ours.rights.may_read(),
        };
        if allowed { Ok(()) } else { Err(BulkRefusal::Rights.into()) }
    }
}

impl BulkExchange<'_> {
    /// Asks the owner to copy the second half of a transfer, if that was requested. The owner's
    /// memory is attached.
    pub(super) fn request_peer_half(&mut self, id: Transfer) {
        let Some(transfer) = self.tables.transfers.get_active_mut(id) else { return };
        let Some(into) = transfer.halved else { return };
        let own_bytes = (transfer.bytes / 2).next_multiple_of(PAGE_BYTES).min(transfer.bytes);
        let bytes = transfer.bytes - own_bytes;
        if bytes == 0 || transfer.bytes < HALVED_TRANSFER_BYTES_MIN {
            return;
        }
        (transfer.own_bytes, transfer.is_peer_copying) = (own_bytes, true);
        let (peer, handle) = (transfer.peer, transfer.handle);
        let (offset, into_offset) = (transfer.theirs + own_bytes, transfer.ours + own_bytes);
        let (transfer, pulls) = (id.word(), transfer.direction == Pull);
        let help = HelpRequest { transfer, handle, offset, into, into_offset, bytes, pulls };
        self.send_bulk_message(peer, &BulkMessage::Help(help));
    }

    /// Records that the local half is copied. Completes the transfer if the peer's half is copied
    /// too.
    pub(super) fn finish_own_half(&mut self, id: Transfer) {
        match self.tables.transfers.get_active(id) {
            Some(transfer) if transfer.is_peer_copying => {
                self.set_transfer_stage(id, TransferStage::AwaitingPeerHalf)
            }
            _ => self.finish_transfer(id, Ok(())),
        }
    }

    /// Records that the peer's half is copied. Completes the transfer if the local half is copied
    /// too.
    pub(super) fn finish_peer_half(&mut self, id: Transfer) {
        let Some(transfer) = self.tables.transfers.get_active_mut(id) else { return };
        transfer.is_peer_copying = false;
        if matches!(transfer.stage, TransferStage::AwaitingPeerHalf) {
            self.finish_transfer(id, Ok(()));
        }
    }

    /// Takes over the peer's half, which the peer has refused because it has no space for it.
    /// Returns `false` if no half of the peer was refused, or if the refusal may be that of the
    /// local half, which goes in messages.
    pub(super) fn take_over_peer_half(&mut self, peer: PeerKey, id: Transfer) -> bool {
        let Some(transfer) = self.tables.transfers.get_active_mut(id) else { return false };
        let is_copied = matches!(transfer.stage, TransferStage::Copying(_));
        let is_awaited = matches!(transfer.stage, TransferStage::AwaitingPeerHalf);
        if transfer.peer != peer || !transfer.is_peer_copying || !(is_copied || is_awaited) {
            return false;
        }
        if is_awaited {
            transfer.stage = TransferStage::Copying(transfer.own_bytes);
            self.tables.copying.push_back(id);
        }
        (transfer.own_bytes, transfer.is_peer_copying) = (transfer.bytes, false);
        true
    }

    /// Handles a peer's request to copy one half of its transfer here, and starts the copy.
    pub(super) fn start_helping_peer(
        &mut self,
        peer: PeerKey,
        help: &HelpRequest,
    ) -> Result<(), FrameError> {
        if !self.peers.has_shared_memory(peer) {
            // Memory cannot be accessed directly over a stream.
            return Err(FrameError::Bulk);
        }
        // The peer must have the right to do the copy itself.
        let (its, direction) = if help.pulls { (Pull, Push) } else { (Push, Pull) };
        let range = (help.offset, help.bytes);
        let found = self.find_permitted_memory(peer, &help.handle, range, its);
        let is_full = self.tables.transfers_for_peers.values().filter(|it| it.0 == peer).count()
            >= TRANSFERS_FOR_PEER_MAX
            || self.tables.attachments.requested_count(peer) >= TRANSFERS_FOR_PEER_MAX;
        let memory = match found {
            Ok(memory) if !is_full => memory,
            refused => {
                let why = refused.err().unwrap_or(BulkRefusal::Full);
                self.send_refusal(peer, help.transfer, why);
                return Ok(());
            }
        };
        let part = BulkPart::new(help.bytes).offsets(help.into_offset, help.offset);
        let handle = &help.into;
        let request = TransferRequest { peer, direction, handle, memory: &memory, part };
        match self.start_transfer(&request) {
            Ok(id) => {
                self.tables.transfers_for_peers.insert(id, (peer, help.transfer));
                self.send_help_result(id);
            }
            Err(error) => self.refuse_help(peer, help.transfer, &error),
        }
        Ok(())
    }

    /// Sends a peer the result of a transfer that it has asked for. Has no effect while the
    /// transfer is under way.
    pub(super) fn send_help_result(&mut self, id: Transfer) {
        if !self.tables.transfers_for_peers.contains_key(&id) {
            return;
        }
        let Some(result) = self.tables.transfers.take_result(id) else { return };
        let Some((peer, transfer)) = self.tables.transfers_for_peers.remove(&id) else { return };
        match result {
            Ok(()) => self.send_bulk_message(peer, &BulkMessage::Done { transfer }),
            Err(error) => self.refuse_help(peer, transfer, &error),
        }
    }

    /// Sends a peer a refusal, because the copy that it has asked for has failed.
    fn refuse_help(&mut self, peer: PeerKey, transfer: u64, error: &BulkError) {
        let why = if let BulkError::Refused(why) = error { *why } else { BulkRefusal::Full };
        self.send_refusal(peer, transfer, why);
    }

    /// Aborts the transfers that peers have asked for and that use this memory.
    pub(super) fn cancel_help_with_memory(&mut self, memory: &BulkMemory) {
        let transfers = &self.tables.transfers;
        let uses = |id: Transfer| {
            transfers.get_active(id).is_some_and(|it| it.memory.is_same_memory(memory))
        };
        let helping = self.tables.transfers_for_peers.iter().filter(|it| uses(*it.0));
        for (peer, transfer) in helping.map(|it| *it.1).collect::<Vec<_>>() {
            self.cancel_help(peer, transfer);
            self.send_refusal(peer, transfer, BulkRefusal::Unknown);
        }
    }

    /// Cancels a transfer that a peer has asked for, if it is under way.
    pub(super) fn cancel_help(&mut self, peer: PeerKey, transfer: u64) {
        let of_it = |it: &(&Transfer, &(PeerKey, u64))| *it.1 == (peer, transfer);
        let found = self.tables.transfers_for_peers.iter().find(of_it).map(|it| *it.0);
        if let Some(id) = found {
            self.tables.transfers_for_peers.remove(&id);
            self.cancel_transfer(id);
        }
    }
}
