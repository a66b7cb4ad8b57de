//! Tables of an endpoint's bulk transfers: registered memories, attached memories of peers, and
//! transfers under way.

use super::grants::{RemoteGrant, RemoteKeys, RemoteOperations};
use super::memory::BulkMemory;
use super::remote::{RemoteMemory, TransferDirection};
use crate::engine::{
    ArrivalCheck, Backlog, BulkHandle, BulkMessage, CheckWord, PeerKey, Rights,
    TRANSFER_NUMBER_LIMIT, is_range_within,
};
use crate::{BulkError, BulkRefusal, MemoryError};
use handover_base::slab::{Key, Slab};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Handle of a bulk transfer that is under way.
///
/// It is only a number: dropping it does not end the transfer. A transfer that is neither waited
/// for nor cancelled still counts towards `transfers_max`, and its memory; one that was complete
/// when it was started counts at no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transfer(u64);

impl Transfer {
    /// Handle of every transfer that was complete when it was started. Such a transfer is not in
    /// the table.
    pub(crate) const COMPLETED: Self = Self(u64::MAX);

    /// Returns the handle of the transfer with this key of the slab. It lacks the highest bit of
    /// the key's generation.
    fn new(key: Key) -> Self {
        Self((u64::from(key.generation) << 32 | u64::from(key.index)) % TRANSFER_NUMBER_LIMIT)
    }

    /// Returns the transfer's identifier as encoded in a frame; it is below
    /// [`TRANSFER_NUMBER_LIMIT`].
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    pub(crate) fn from_word(word: u64) -> Self {
        Self(word)
    }
}

/// Bit in a data frame's transfer number: 1 for a push, 0 for a pull. The sender of the data has
/// assigned the number of a push, the receiver that of a pull.
pub(crate) const PUSH_NUMBER_BIT: u64 = TRANSFER_NUMBER_LIMIT;

/// Stage of a transfer that is under way.
#[derive(Debug)]
pub(crate) enum TransferStage {
    /// The transfer waits until the peer's memory is attached.
    Waiting,
    /// This endpoint copies the data, and has copied this number of bytes so far.
    Copying(u64),
    /// The peers send the data in messages.
    Messages,
    /// The transport copies the data, by this number of operations under way.
    Remote(u32),
    /// This endpoint has copied its half, and the peer is still copying the other half.
    AwaitingPeerHalf,
}

/// Transfer that is under way.
#[derive(Debug)]
pub(crate) struct ActiveTransfer {
    pub(crate) peer: PeerKey,
    pub(crate) direction: TransferDirection,
    /// Handle of the peer's memory.
    pub(crate) handle: BulkHandle,
    /// Local memory.
    pub(crate) memory: BulkMemory,
    /// Offset of the range in the peer's memory, in bytes.
    pub(crate) theirs: u64,
    /// Offset of the range in the local memory, in bytes.
    pub(crate) ours: u64,
    /// Length of the range, in bytes.
    pub(crate) bytes: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) stage: TransferStage,
    /// Handle of the local memory, if both peers copy a half.
    pub(crate) halved: Option<BulkHandle>,
    /// Number of bytes that this endpoint copies, or transfers in messages.
    pub(crate) own_bytes: u64,
    /// `true` while the peer copies the second half and has not reported the end.
    pub(crate) is_peer_copying: bool,
}

/// Entry of the transfer table: a transfer under way, or its result.
#[derive(Debug)]
enum TransferTableSlot {
    Active(Box<ActiveTransfer>),
    Done(Result<(), BulkError>),
}

/// Table of the transfers that this endpoint has started, by identifier.
#[derive(Debug)]
pub(crate) struct TransferTable(Slab<TransferTableSlot>);

impl Default for TransferTable {
    fn default() -> Self {
        Self(Slab::new(u32::MAX))
    }
}

impl TransferTable {
    /// Adds a transfer that is under way; returns `None` if the table has `max` transfers.
    pub(crate) fn insert(&mut self, transfer: ActiveTransfer, max: u32) -> Option<Transfer> {
        if self.0.len() >= max {
            return None;
        }
        self.0.insert(TransferTableSlot::Active(Box::new(transfer))).ok().map(Transfer::new)
    }

    /// Returns the key of a transfer; `None` if it was removed.
    #[inline]
    fn key(&self, id: Transfer) -> Option<Key> {
        // Truncates to the lower 32 bits, which hold the index.
        self.0.key_at(id.0 as u32).filter(|&key| Transfer::new(key) == id)
    }

    /// Returns a transfer; `None` if it is not under way.
    pub(crate) fn get_active(&self, id: Transfer) -> Option<&ActiveTransfer> {
        match self.0.get(self.key(id)?) {
            Some(TransferTableSlot::Active(transfer)) => Some(transfer),
            _ => None,
        }
    }

    /// Returns a transfer, mutably; `None` if it is not under way.
    pub(crate) fn get_active_mut(&mut self, id: Transfer) -> Option<&mut ActiveTransfer> {
        match self.0.get_mut(self.key(id)?) {
            Some(TransferTableSlot::Active(transfer)) => Some(transfer),
            _ => None,
        }
    }

    /// Stores the result of a transfer, if it was under way.
    pub(crate) fn finish(&mut self, id: Transfer, result: Result<(), BulkError>) {
        if let Some(key) = self.key(id)
            && let Some(slot @ TransferTableSlot::Active(_)) = self.0.get_mut(key)
        {
            *slot = TransferTableSlot::Done(result);
        }
    }

    /// Returns the deadline of a transfer in ns; `None` if it is not under way.
    #[inline]
    pub(crate) fn deadline_ns(&self, id: Transfer) -> Option<u64> {
        self.get_active(id).map(|it| it.deadline_ns)
    }

    /// Removes a transfer and returns its result; `None` while it is under way.
    #[inline]
    pub(crate) fn take_result(&mut self, id: Transfer) -> Option<Result<(), BulkError>> {
        if id == Transfer::COMPLETED {
            return Some(Ok(()));
        }
        let Some(key) = self.key(id) else { return Some(Err(BulkError::Stale)) };
        if let Some(TransferTableSlot::Active(_)) = self.0.get(key) {
            return None;
        }
        match self.0.remove(key) {
            Some(TransferTableSlot::Done(result)) => Some(result),
            _ => None,
        }
    }

    /// Removes a transfer in any state; returns it if it was under way.
    pub(crate) fn remove_active(&mut self, id: Transfer) -> Option<ActiveTransfer> {
        match self.0.remove(self.key(id)?) {
            Some(TransferTableSlot::Active(transfer)) => Some(*transfer),
            _ => None,
        }
    }

    /// Returns the transfers under way for which `matches` returns `true`.
    pub(crate) fn find_all(&self, matches: impl Fn(&ActiveTransfer) -> bool) -> Vec<Transfer> {
        self.0
            .keys()
            .map(Transfer::new)
            .filter(|&id| self.get_active(id).is_some_and(&matches))
            .collect()
    }
}

/// Local memory that is registered for transfers by peers.
#[derive(Debug)]
pub(crate) struct RegisteredMemory {
    /// Handle that a peer must have to access the memory.
    pub(crate) handle: BulkHandle,
    pub(crate) memory: BulkMemory,
    /// Peers that may access the memory directly.
    pub(crate) attached: Vec<PeerKey>,
    /// Registration with a transport that accesses the memory for peers.
    pub(crate) grant: Option<Arc<RemoteGrant>>,
    /// `true` if the memory is being withdrawn. New uses are then refused.
    pub(crate) is_withdrawn: bool,
}

impl RegisteredMemory {
    /// Returns `true` if peers may access the memory by its address, through the kernel or the
    /// transport. A withdrawal then waits until they have released it.
    pub(crate) fn is_accessible_via_address(&self) -> bool {
        self.grant.is_some() || self.memory.regions().any(|it| it.file().is_none())
    }

    /// Returns `true` if the memory must not be freed while a peer has it attached. The peer may
    /// write it by its address, or the transport accesses it.
    fn is_writable_via_address(&self) -> bool {
        self.grant.is_some() || self.handle.rights.may_write() && self.is_accessible_via_address()
    }
}

/// Direct access of this endpoint to a peer's memory: requested, attached, or denied.
#[derive(Debug, Clone)]
pub(crate) enum Attachment {
    /// Access was requested with this handle, and the owner has not answered.
    Requested(BulkHandle),
    /// This process accesses the memory, by mapping it or through the kernel.
    Attached(Arc<RemoteMemory>),
    /// The transport accesses the memory.
    Remote(Arc<RemoteKeys>),
    /// The memory cannot be accessed directly, so transfers use messages.
    Denied,
}

/// Attachments to peers' memories, by peer and by id of the memory.
#[derive(Debug, Default)]
pub(crate) struct AttachmentTable {
    by_peer_and_id: HashMap<(PeerKey, u64), Attachment>,
    /// Memory of the latest transfer, cached because most transfers use the same memory again.
    recent: Option<(PeerKey, u64, Arc<RemoteMemory>)>,
}

impl AttachmentTable {
    /// Returns the memory `id` of that peer; `None` if it is not attached.
    #[inline]
    pub(crate) fn attached_memory(&mut self, peer: PeerKey, id: u64) -> Option<&Arc<RemoteMemory>> {
        let is_recent = matches!(&self.recent, Some(it) if it.0 == peer && it.1 == id);
        if !is_recent {
            let Some(Attachment::Attached(remote)) = self.by_peer_and_id.get(&(peer, id)) else {
                return None;
            };
            self.recent = Some((peer, id, Arc::clone(remote)));
        }
        self.recent.as_ref().map(|it| &it.2)
    }

    pub(crate) fn get(&self, peer: PeerKey, id: u64) -> Option<&Attachment> {
        self.by_peer_and_id.get(&(peer, id))
    }

    pub(crate) fn insert(&mut self, peer: PeerKey, id: u64, attachment: Attachment) {
        self.recent = None;
        self.by_peer_and_id.insert((peer, id), attachment);
    }

    pub(crate) fn remove(&mut self, peer: PeerKey, id: u64) -> Option<Attachment> {
        self.recent = None;
        self.by_peer_and_id.remove(&(peer, id))
    }

    /// Removes all attachments to the memories of a peer.
    pub(crate) fn remove_peer(&mut self, peer: PeerKey) {
        self.recent = None;
        self.by_peer_and_id.retain(|key, _| key.0 != peer);
    }

    pub(crate) fn remove_denied(&mut self) {
        self.by_peer_and_id.retain(|_, it| !matches!(it, Attachment::Denied));
    }

    pub(crate) fn count(&self) -> usize {
        self.by_peer_and_id.len()
    }

    /// Returns the number of attachments to that peer's memories that were requested and not
    /// granted yet.
    pub(crate) fn requested_count(&self, peer: PeerKey) -> usize {
        let requested = |it: &(&(PeerKey, u64), &Attachment)| {
            it.0.0 == peer && matches!(it.1, Attachment::Requested(_))
        };
        self.by_peer_and_id.iter().filter(requested).count()
    }

    /// Returns the peer and the id of each memory that is mapped or copied by the kernel.
    pub(crate) fn attached_keys(&self) -> impl Iterator<Item = (PeerKey, u64)> {
        let attached =
            self.by_peer_and_id.iter().filter(|(_, it)| matches!(it, Attachment::Attached(_)));
        attached.map(|(&key, _)| key)
    }
}

/// Bulk data that this endpoint sends.
#[derive(Debug)]
pub(crate) struct OutgoingData {
    pub(crate) peer: PeerKey,
    /// Transfer number, which the data's frames contain in place of a call number.
    pub(crate) call: u64,
    pub(crate) memory: BulkMemory,
    /// Offset of the transfer in the local memory, in bytes.
    pub(crate) offset: u64,
    /// Number of bytes sent so far.
    pub(crate) sent: u64,
    /// Total length of the data, in bytes.
    pub(crate) bytes: u64,
    /// Id of the registered local memory, if the peer pulls.
    pub(crate) registered: Option<u64>,
    /// Message that announces a push, until it was sent.
    pub(crate) opening: Option<BulkMessage>,
}

/// Bulk data that this endpoint receives.
#[derive(Debug)]
pub(crate) struct IncomingData {
    pub(crate) memory: BulkMemory,
    /// Offset of the transfer in the local memory, in bytes.
    pub(crate) offset: u64,
    pub(crate) arrival: ArrivalCheck,
    /// Id of the registered local memory, if the peer pushes.
    pub(crate) registered: Option<u64>,
}

/// Maximum number of consecutive reads of a peer's wake-up bytes.
const READS_MAX: u32 = 64;

/// Memory that a disconnected peer may still write, held until the peer has closed the connection.
#[derive(Debug)]
struct LingeringMemory {
    /// Duplicate of the connection's socket, which shows when the peer has closed the connection.
    socket: OwnedFd,
    memory: BulkMemory,
    /// Registration with a transport, if it accesses the memory for the peer.
    grant: Option<Arc<RemoteGrant>>,
    /// Time at which the peer was found to have closed the connection. Data that it has sent
    /// through the transport may still be on its way.
    closed_at: Option<Instant>,
}

/// Time for which memory stays allocated for a transport after the peer has closed the connection.
const REMOTE_LINGER: Duration = Duration::from_millis(200);

impl LingeringMemory {
    /// Returns `true` if the memory can be freed. The peer has closed the connection, and all its
    /// data has arrived.
    fn is_released(&mut self) -> bool {
        if self.closed_at.is_none() && self.has_writer_closed() {
            self.closed_at = Some(Instant::now());
        }
        self.closed_at.is_some_and(|at| self.grant.is_none() || at.elapsed() >= REMOTE_LINGER)
    }

    /// Returns `true` if the peer has closed the connection. It can then no longer write to the
    /// memory.
    fn has_writer_closed(&self) -> bool {
        let mut rest = [0; 64];
        // A peer that sends bytes all the time is checked again later.
        for _ in 0..READS_MAX {
            match recv(&self.socket, &mut rest, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return errno != Errno::AGAIN,
            }
        }
        false
    }
}

/// State of an endpoint's bulk transfers: registered memories, attached memories of peers, and
/// transfers under way.
#[derive(Debug, Default)]
pub(crate) struct BulkTables {
    /// Local memories that are registered for transfers by peers, by id.
    pub(crate) registered: HashMap<u64, RegisteredMemory>,
    next_memory_id: u64,
    pub(crate) attachments: AttachmentTable,
    pub(crate) transfers: TransferTable,
    /// Queue of the transfers whose data this endpoint copies.
    pub(crate) copying: VecDeque<Transfer>,
    /// Bulk data to be sent, by peer and transfer number.
    pub(crate) outgoing: HashMap<PeerKey, Backlog<OutgoingData>>,
    /// Bulk data that is being received, by peer and transfer number.
    pub(crate) incoming: HashMap<PeerKey, HashMap<u64, IncomingData>>,
    lingering: Vec<LingeringMemory>,
    pub(crate) remote: RemoteOperations,
    /// Transfers that peers have asked for, each with the peer and the peer's number of the
    /// transfer.
    pub(crate) transfers_for_peers: HashMap<Transfer, (PeerKey, u64)>,
    /// Check word that peers read to verify that they access this process. Contains also the memory
    /// in which the word is.
    check_word: Option<(BulkMemory, CheckWord)>,
    pub(crate) stats: BulkStats,
}

/// Counters of an endpoint's bulk transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct BulkStats {
    /// Number of transfers that this endpoint has started.
    pub transfers_count: u64,
    /// Number of bytes copied between memories that both processes have mapped.
    pub mapped_bytes: u64,
    /// Number of bytes that the kernel copied between processes.
    pub process_bytes: u64,
    /// Number of bytes copied by a transport with remote memory access.
    pub remote_bytes: u64,
    /// Number of bytes sent or received in messages, including those of peers' transfers.
    pub message_bytes: u64,
    /// Number of peers' memories that this process could not access directly. Transfers with these
    /// use messages.
    pub denied_count: u64,
    /// Number of peers' requests that were refused.
    pub refused_count: u64,
}

impl BulkStats {
    /// Returns the counter of copied bytes: through a mapping if `is_mapped`, by the kernel
    /// otherwise.
    #[inline]
    pub(crate) fn copied_bytes_mut(&mut self, is_mapped: bool) -> &mut u64 {
        if is_mapped { &mut self.mapped_bytes } else { &mut self.process_bytes }
    }
}

fn random_u128() -> Result<u128, MemoryError> {
    crate::drive::random::random_u128().map_err(|errno| MemoryError::NoRandomNumber(errno.kind()))
}

impl BulkTables {
    /// Returns `true` if there is data to copy or to send.
    #[inline]
    pub(crate) fn has_data_to_transfer(&self) -> bool {
        !self.copying.is_empty() || !self.outgoing.is_empty()
    }

    pub(crate) fn start_sending(&mut self, outgoing: OutgoingData) {
        let (peer, call) = (outgoing.peer, outgoing.call);
        self.outgoing.entry(peer).or_default().push(Some(call), 0, outgoing);
    }

    /// Returns `true` if data with the transfer number `call` is still to be sent.
    pub(crate) fn is_sending(&self, peer: PeerKey, call: u64) -> bool {
        self.outgoing.get(&peer).is_some_and(|it| it.contains(call))
    }

    /// Drops the data with the transfer number `call` that is still to be sent.
    pub(crate) fn stop_sending(&mut self, peer: PeerKey, call: u64) {
        if let Some(its) = self.outgoing.get_mut(&peer) {
            its.cancel(call);
            if its.is_empty() {
                self.outgoing.remove(&peer);
            }
        }
    }

    pub(crate) fn start_receiving(&mut self, peer: PeerKey, call: u64, incoming: IncomingData) {
        self.incoming.entry(peer).or_default().insert(call, incoming);
    }

    /// Returns the data with the transfer number `call` that is being received; `None` if there is
    /// none.
    pub(crate) fn incoming_mut(&mut self, peer: PeerKey, call: u64) -> Option<&mut IncomingData> {
        self.incoming.get_mut(&peer)?.get_mut(&call)
    }

    /// Stops receiving data with the transfer number `call`; returns `true` if it was being
    /// received.
    pub(crate) fn stop_receiving(&mut self, peer: PeerKey, call: u64) -> bool {
        let Some(its) = self.incoming.get_mut(&peer) else { return false };
        let was_received = its.remove(&call).is_some();
        if its.is_empty() {
            self.incoming.remove(&peer);
        }
        was_received
    }

    /// Returns the number of transfers with that peer whose data is sent or received in messages.
    pub(crate) fn data_transfers_count(&self, peer: PeerKey) -> usize {
        self.outgoing.get(&peer).map_or(0, Backlog::len)
            + self.incoming.get(&peer).map_or(0, HashMap::len)
    }

    pub(crate) fn has_memory_writable_by_peers(&self) -> bool {
        self.has_lingering_memory()
            || self
                .registered
                .values()
                .any(|it| it.is_writable_via_address() && !it.attached.is_empty())
    }

    pub(crate) fn has_lingering_memory(&self) -> bool {
        !self.lingering.is_empty()
    }

    /// Removes a disconnected peer from the attachments of all registered memories. Memory that the
    /// peer may still write is kept until it has closed that socket.
    pub(crate) fn detach_peer(&mut self, peer: PeerKey, may_write: bool, socket: Option<&OwnedFd>) {
        for registered in self.registered.values_mut() {
            if !registered.attached.contains(&peer) {
                continue;
            }
            registered.attached.retain(|&it| it != peer);
            let grant = registered.grant.clone();
            if (may_write || grant.is_some()) && registered.is_writable_via_address() {
                let memory = registered.memory.clone();
                match socket.and_then(|it| it.try_clone().ok()) {
                    Some(socket) => {
                        let closed_at = None;
                        self.lingering.push(LingeringMemory { socket, memory, grant, closed_at });
                    }
                    None => std::mem::forget((memory, grant)),
                }
            }
        }
    }

    /// Frees lingering memory that peers can no longer write.
    pub(crate) fn free_lingering_memory(&mut self) {
        self.lingering.retain_mut(|it| !it.is_released());
    }

    /// Leaks lingering memory, because a peer could write to freed memory after it is reused.
    pub(crate) fn leak_lingering_memory(&mut self) {
        self.lingering.drain(..).for_each(|it| std::mem::forget((it.memory, it.grant)));
    }

    /// Removes and returns a withdrawn memory. Returns `None` while a peer may still access it by
    /// its address.
    pub(crate) fn remove_withdrawn_memory(&mut self, handle: &BulkHandle) -> Option<BulkMemory> {
        if self.direct_users_count(handle.id) > 0 {
            return None;
        }
        self.registered.remove(&handle.id).map(|it| it.memory)
    }

    pub(crate) fn register_memory(
        &mut self,
        memory: BulkMemory,
        rights: Rights,
        memories_max: u32,
    ) -> Result<BulkHandle, MemoryError> {
        if self.registered.len() >= memories_max as usize {
            return Err(MemoryError::TooManyMemories { memories_max });
        }
        let (id, bytes) = (self.next_memory_id, memory.len_bytes());
        let handle = BulkHandle { id, key: random_u128()?, bytes, rights };
        self.next_memory_id += 1;
        let registered = RegisteredMemory {
            handle,
            memory,
            attached: Vec::new(),
            grant: None,
            is_withdrawn: false,
        };
        self.registered.insert(id, registered);
        Ok(handle)
    }

    /// Returns the registered memory of a handle. Fails if the handle does not match it, or the
    /// memory was withdrawn.
    pub(crate) fn registered_memory(
        &mut self,
        handle: &BulkHandle,
    ) -> Result<&mut RegisteredMemory, BulkRefusal> {
        let registered = self.registered.get_mut(&handle.id).ok_or(BulkRefusal::Unknown)?;
        let known = &registered.handle;
        if registered.is_withdrawn || known.key != handle.key {
            Err(BulkRefusal::Unknown)
        } else if known.rights != handle.rights {
            Err(BulkRefusal::Rights)
        } else if known.bytes != handle.bytes {
            Err(BulkRefusal::Outside)
        } else {
            Ok(registered)
        }
    }

    pub(crate) fn create_or_get_check_word(&mut self) -> Result<CheckWord, MemoryError> {
        if let Some((_, check_word)) = &self.check_word {
            return Ok(*check_word);
        }
        let word = random_u128()?;
        let memory = BulkMemory::plain(word.to_ne_bytes().to_vec());
        let address = memory.regions().next().map_or(0, |region| region.start_address());
        let check_word = CheckWord { address, word };
        self.check_word = Some((memory, check_word));
        Ok(check_word)
    }

    /// Returns the number of peers that may access memory `id` by its address.
    pub(crate) fn direct_users_count(&self, id: u64) -> usize {
        self.registered
            .get(&id)
            .filter(|it| it.is_accessible_via_address())
            .map_or(0, |it| it.attached.len())
    }
}

/// Checks that a handle allows a transfer of this range in this direction.
pub(crate) fn check_memory_access(
    handle: &BulkHandle,
    (offset, bytes): (u64, u64),
    direction: TransferDirection,
) -> Result<(), BulkRefusal> {
    let allowed = match direction {
        TransferDirection::Pull => handle.rights.may_read(),
        TransferDirection::Push => handle.rights.may_write(),
    };
    if !allowed {
        Err(BulkRefusal::Rights)
    } else if !is_range_within(offset, bytes, handle.bytes) {
        Err(BulkRefusal::Outside)
    } else {
        Ok(())
    }
}
