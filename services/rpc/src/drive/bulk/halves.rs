//! Transfers in halves: the side that starts the transfer copies one half, and asks the owner of
//! the other memory to copy the other half.
//!
//! ```text
//!  asker                                    owner
//!  Help, for the second half ────────────▶  looks up its own memory, maps the other's, once
//!  copies the first half                    copies the second half, as a transfer of its own
//!                            ◀──────────── Done
//! ```

use super::exchange::Asked;
use super::remote::Direction;
use super::tables::{Progress, TransferId};
use super::{BulkMemory, BulkPart};
use crate::drive::state::State;
use crate::engine::{BulkHandle, BulkMessage, BulkRefusal, PeerKey};
use crate::{BulkError, FrameError};

/// Minimum length of a transfer that is halved, in bytes: asking for help costs as much as copying
/// less.
pub(super) const HALVED_BYTES_MIN: u64 = 1 << 15;
/// Alignment of the start of the second half.
const PAGE_BYTES: u64 = 4096;
/// Maximum number of transfers under way on behalf of a peer, and of unanswered requests for that
/// peer's memories.
const HELPED_MAX: usize = 16;

/// Request of a peer to copy a range.
pub(super) struct Help {
    /// The peer's number of the transfer.
    pub(super) transfer: u64,
    /// This side's memory, and the offset of the range in it.
    pub(super) ours: (BulkHandle, u64),
    /// The peer's memory, and the offset of the range in it.
    pub(super) theirs: (BulkHandle, u64),
    pub(super) bytes: u64,
    /// `true` if this side's memory is the source, `false` if it is the target.
    pub(super) is_read: bool,
}

impl Asked<'_> {
    /// Checks that the handle in the part is of this side's memory, and gives the peer the right
    /// that its half needs.
    pub(super) fn check_halves(&self, state: &State) -> Result<(), BulkError> {
        let Some(ours) = self.part.halved else { return Ok(()) };
        let known = state.bulk.registered.get(&ours.id);
        let is_ours = known.is_some_and(|it| it.handle == ours && it.memory.is(self.memory));
        if !is_ours {
            return Err(BulkError::NotOurs);
        }
        let allowed = match self.direction {
            Direction::Pull => ours.rights.may_write(),
            Direction::Push => ours.rights.may_read(),
        };
        if allowed { Ok(()) } else { Err(BulkRefusal::Rights.into()) }
    }
}

impl State {
    /// Asks the owner to copy the second half of a transfer, if that was requested. Both memories
    /// are mapped.
    pub(super) fn ask_for_help(&mut self, id: TransferId) {
        let Some(transfer) = self.bulk.transfers.get_mut(id) else { return };
        let Some(into) = transfer.halved else { return };
        let own_bytes = (transfer.bytes / 2).next_multiple_of(PAGE_BYTES).min(transfer.bytes);
        let bytes = transfer.bytes - own_bytes;
        if bytes == 0 || transfer.bytes < HALVED_BYTES_MIN {
            return;
        }
        (transfer.own_bytes, transfer.is_helped) = (own_bytes, true);
        let (peer, handle) = (transfer.peer, transfer.handle);
        let (offset, into_offset) = (transfer.theirs + own_bytes, transfer.ours + own_bytes);
        let (transfer, pulls) = (id.word(), transfer.direction == Direction::Pull);
        let help = BulkMessage::Help { transfer, handle, offset, into, into_offset, bytes, pulls };
        self.say(peer, &help);
    }

    /// Ends a transfer, or marks this side's half as copied if the peer's half is not.
    pub(super) fn own_half_done(&mut self, id: TransferId) {
        match self.bulk.transfers.get(id) {
            Some(transfer) if transfer.is_helped => self.set_progress(id, Progress::Helped),
            _ => self.finish(id, Ok(())),
        }
    }

    /// Marks the peer's half as copied, and ends the transfer if this side's half is.
    pub(super) fn other_half_done(&mut self, id: TransferId) {
        let Some(transfer) = self.bulk.transfers.get_mut(id) else { return };
        transfer.is_helped = false;
        if matches!(transfer.progress, Progress::Helped) {
            self.finish(id, Ok(()));
        }
    }

    /// Handles a peer's request to copy a range between the two memories.
    pub(super) fn help(&mut self, peer: PeerKey, help: &Help) -> Result<(), FrameError> {
        if !self.shares_memory(peer) {
            // Nothing can be mapped over a stream.
            return Err(FrameError::Bulk);
        }
        // The peer must have the right to do the copy itself.
        let its = if help.is_read { Direction::Pull } else { Direction::Push };
        let (handle, offset) = help.ours;
        let found = self.bulk_piece(peer, &handle, (offset, help.bytes), its);
        let is_full = self.bulk.helping.values().filter(|it| it.0 == peer).count() >= HELPED_MAX
            || self.bulk.attachments.asked_count(peer) >= HELPED_MAX;
        let memory = match found {
            Ok(_) if is_full => {
                self.refuse(peer, help.transfer, BulkRefusal::Full);
                return Ok(());
            }
            Ok(memory) => memory,
            Err(why) => {
                self.refuse(peer, help.transfer, why);
                return Ok(());
            }
        };
        let direction = if help.is_read { Direction::Push } else { Direction::Pull };
        let (into, into_offset) = help.theirs;
        let part = BulkPart::of(help.bytes).at(into_offset, offset);
        match self.bulk_start(&Asked { peer, direction, handle: &into, memory: &memory, part }) {
            Ok(id) => {
                self.bulk.helping.insert(id, (peer, help.transfer));
                self.tell_helped(id);
            }
            Err(BulkError::Refused(why)) => self.refuse(peer, help.transfer, why),
            Err(_) => self.refuse(peer, help.transfer, BulkRefusal::Full),
        }
        Ok(())
    }

    /// Tells the peer the result of a transfer that was done on its behalf, if it is over.
    pub(super) fn tell_helped(&mut self, id: TransferId) {
        if !self.bulk.helping.contains_key(&id) {
            return;
        }
        let Some(result) = self.bulk.transfers.take(id) else { return };
        let Some((peer, transfer)) = self.bulk.helping.remove(&id) else { return };
        match result {
            Ok(()) => self.say(peer, &BulkMessage::Done { transfer }),
            Err(BulkError::Refused(why)) => self.refuse(peer, transfer, why),
            Err(_) => self.refuse(peer, transfer, BulkRefusal::Full),
        }
    }

    /// Ends all transfers on behalf of peers that use this memory.
    pub(super) fn stop_helping_with(&mut self, memory: &BulkMemory) {
        let transfers = &self.bulk.transfers;
        let uses = |id: TransferId| transfers.get(id).is_some_and(|it| it.memory.is(memory));
        let helping = self.bulk.helping.iter().filter(|it| uses(*it.0));
        for (peer, transfer) in helping.map(|it| *it.1).collect::<Vec<_>>() {
            self.give_up_helping(peer, transfer);
            self.refuse(peer, transfer, BulkRefusal::Unknown);
        }
    }

    /// Cancels a transfer on behalf of a peer.
    pub(super) fn give_up_helping(&mut self, peer: PeerKey, transfer: u64) {
        let of_it = |it: &(&TransferId, &(PeerKey, u64))| *it.1 == (peer, transfer);
        let found = self.bulk.helping.iter().find(of_it).map(|it| *it.0);
        if let Some(id) = found {
            self.bulk.helping.remove(&id);
            self.bulk_give_up(id);
        }
    }
}
