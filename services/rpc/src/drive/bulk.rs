//! Bulk transfers: one side registers memory, and the other side pulls from it or pushes into it.

mod exchange;
mod halves;
mod memory;
mod remote;
mod tables;

use super::calling::sealed;
use crate::clock;
use crate::engine::{BulkHandle, PeerKey, Rights};
use crate::{BulkError, MemoryError, WithdrawError};
use exchange::Asked;
use remote::Direction;
use std::time::Duration;
use tables::TransferId;

pub use memory::BulkMemory;
pub use tables::BulkStats;
pub(crate) use tables::Tables;

/// Ranges of a transfer in the two memories, and its time limit.
///
/// ```
/// use handover_rpc::BulkPart;
/// use std::time::Duration;
/// let part = BulkPart::of(4096).at(8192, 0).within(Duration::from_millis(5));
/// assert_eq!((part.theirs, part.ours, part.bytes), (8192, 0, 4096));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BulkPart {
    /// Offset in the peer's memory, in bytes.
    pub theirs: u64,
    /// Offset in this side's memory, in bytes.
    pub ours: u64,
    /// Length, in bytes.
    pub bytes: u64,
    /// Time limit, counted from the start of the transfer; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Handle of this side's memory, if the peer is to copy the second half.
    pub halved: Option<BulkHandle>,
}

impl BulkPart {
    /// Selects the first `bytes` bytes of both memories.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Sets the offsets in the peer's memory and in this side's.
    #[must_use]
    pub fn at(self, theirs: u64, ours: u64) -> Self {
        Self { theirs, ours, ..self }
    }

    /// Lets both sides copy a half each at the same time, if this side has mapped the peer's memory
    /// ([`BulkPath::Mapped`]) and the range is at least 32 KiB long; has no effect otherwise. Meant
    /// for a [`BulkMemory::shared`] on this side too, which the peer can map.
    ///
    /// `ours` is the handle of this side's memory, registered with the right that the peer needs
    /// for its half: to write if this side pulls, to read if it pushes. The peer copies while it is
    /// in any of its endpoint's methods, so this is for peers that wait.
    /// After a transfer was cancelled, or its deadline has passed, the peer may go on to use this
    /// side's memory until it has read the cancellation, which it does between pieces of 1 MiB.
    /// Messages are read in order, so the peer no longer touches that memory once it has answered a
    /// later call.
    #[must_use]
    pub fn halved(self, ours: &BulkHandle) -> Self {
        Self { halved: Some(*ours), ..self }
    }

    fn is_halved(&self) -> bool {
        self.halved.is_some() && self.bytes >= halves::HALVED_BYTES_MIN
    }

    /// Sets the time limit.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

/// Way in which a peer's memory is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BulkPath {
    /// Both sides have mapped the memory: the side that transfers copies once.
    Mapped,
    /// The kernel copies between the two processes.
    Process,
    /// Data goes by messages: over a stream, or if the other ways are not possible.
    Messages,
}

/// Transfer under way.
///
/// It is only a number: dropping it does not end the transfer. A transfer that is neither waited
/// for nor cancelled keeps its place among `transfers_max`, and its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transfer {
    id: TransferId,
}

/// Bulk transfers of memory, for an [`Endpoint`](crate::Endpoint) and for a handler's
/// [`Context`](crate::Context).
///
/// The owner of a memory registers it and sends the handle to a peer, as an argument or a result.
/// The peer pulls from it or pushes into it, as the rights of the handle allow. The peer's own
/// memory need not be registered.
///
/// ```
/// use handover_rpc::{Bulk, BulkHandle, BulkMemory, BulkPart, Calling, Config, Endpoint, Failure, Method};
/// use handover_rpc::Rights;
///
/// let mut server = Endpoint::new(Config::default())?;
/// let address = server.listen(&"sm://".parse()?)?;
/// server.register("sum", 0, |context, handle: BulkHandle| {
///     let ours = BulkMemory::shared(handle.len_bytes() as usize)
///         .map_err(|error| Failure::new(1, error.to_string()))?;
///     context
///         .pull(context.peer(), &handle, &ours, BulkPart::of(handle.len_bytes()))
///         .map_err(|error| Failure::new(2, error.to_string()))?;
///     Ok(ours.to_vec().iter().map(|&it| u64::from(it)).sum::<u64>())
/// })?;
/// let stopper = server.stopper();
/// let serving = std::thread::spawn(move || server.serve());
///
/// let mut client = Endpoint::new(Config::default())?;
/// let peer = client.connect(&address)?;
/// let handle = client.register_memory(&BulkMemory::plain(vec![2; 1000]), Rights::Read)?;
/// let sum: u64 = client.call(peer, Method::named("sum"), &handle)?;
/// assert_eq!(sum, 2000);
/// stopper.stop();
/// serving.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Bulk: sealed::Turning {
    /// Registers a memory. Peers that are given the handle can pull from it or push into it, as
    /// `rights` allow.
    ///
    /// # Errors
    /// [`MemoryError::Full`] if `memories_max` memories are registered.
    fn register_memory(
        &mut self,
        memory: &BulkMemory,
        rights: Rights,
    ) -> Result<BulkHandle, MemoryError> {
        let memories_max = self.state().config.memories_max;
        self.state().bulk.register(memory.clone(), rights, memories_max)
    }

    /// Withdraws a registration, and tells the peers that have the memory attached. If they may
    /// write to it through the kernel, waits until they have released it.
    ///
    /// # Errors
    /// [`WithdrawError::InUse`] if a peer has not released it in time. The call can be repeated.
    ///
    /// # Blocking
    /// Blocks for `timeout` at most.
    fn withdraw_memory(
        &mut self,
        handle: &BulkHandle,
        timeout: Duration,
    ) -> Result<(), WithdrawError> {
        self.state().bulk_withdraw(handle)?;
        let mut taken = None;
        self.turn_until(super::calling::after(timeout), |state, _| {
            taken = state.bulk_withdrawn(handle);
            taken.is_some()
        });
        let peers_count = self.state().bulk.users_count(handle.id);
        taken.map(drop).ok_or(WithdrawError::InUse { peers_count })
    }

    /// Copies a range of the peer's memory into this side's, and waits until this is done.
    ///
    /// # Errors
    /// [`BulkError`]; a part may have been copied.
    ///
    /// # Blocking
    /// Blocks until the transfer is done, the connection ends, or the time limit passes.
    ///
    /// # Cost
    /// In shared memory, once the peer's memory is attached: a copy, without a message or an
    /// allocation.
    #[inline]
    fn pull(
        &mut self,
        peer: PeerKey,
        from: &BulkHandle,
        into: &BulkMemory,
        part: BulkPart,
    ) -> Result<(), BulkError> {
        let direction = Direction::Pull;
        do_now(self, &Asked { peer, direction, handle: from, memory: into, part })
    }

    /// Copies a range of this side's memory into the peer's, and waits until this is done.
    ///
    /// # Errors
    /// The errors of [`pull`](Self::pull).
    ///
    /// # Blocking
    /// Blocks as [`pull`](Self::pull) does.
    ///
    /// # Cost
    /// The cost of [`pull`](Self::pull).
    #[inline]
    fn push(
        &mut self,
        peer: PeerKey,
        into: &BulkHandle,
        from: &BulkMemory,
        part: BulkPart,
    ) -> Result<(), BulkError> {
        let direction = Direction::Push;
        do_now(self, &Asked { peer, direction, handle: into, memory: from, part })
    }

    /// Starts a [`pull`](Self::pull) without waiting. It proceeds while this endpoint is in any of
    /// its methods.
    ///
    /// # Errors
    /// [`BulkError`] if it cannot begin; then no transfer is under way.
    fn start_pull(
        &mut self,
        peer: PeerKey,
        from: &BulkHandle,
        into: &BulkMemory,
        part: BulkPart,
    ) -> Result<Transfer, BulkError> {
        let direction = Direction::Pull;
        let asked = Asked { peer, direction, handle: from, memory: into, part };
        self.state().bulk_start(&asked).map(|id| Transfer { id })
    }

    /// Starts a [`push`](Self::push) without waiting. It proceeds while this endpoint is in any of
    /// its methods.
    ///
    /// # Errors
    /// [`BulkError`] if it cannot begin; then no transfer is under way.
    fn start_push(
        &mut self,
        peer: PeerKey,
        into: &BulkHandle,
        from: &BulkMemory,
        part: BulkPart,
    ) -> Result<Transfer, BulkError> {
        let direction = Direction::Push;
        let asked = Asked { peer, direction, handle: into, memory: from, part };
        self.state().bulk_start(&asked).map(|id| Transfer { id })
    }

    /// Waits for a transfer.
    ///
    /// # Errors
    /// The errors of [`pull`](Self::pull); [`BulkError::Stale`] if the transfer was waited for
    /// before.
    ///
    /// # Blocking
    /// Blocks as [`pull`](Self::pull) does.
    fn wait_transfer(&mut self, transfer: Transfer) -> Result<(), BulkError> {
        let id = transfer.id;
        // See wait_any_transfer().
        if self.state().is_look_due() {
            self.turn_until(0, |_, _| true);
        }
        if let Some(result) = self.state().bulk.transfers.take(id) {
            return result;
        }
        let deadline_ns = self.state().bulk.transfers.deadline_ns(id).unwrap_or(u64::MAX);
        let mut result = None;
        self.turn_until(deadline_ns, |state, _| {
            result = state.bulk.transfers.take(id);
            result.is_some()
        });
        result.unwrap_or_else(|| {
            self.state().bulk_give_up(id);
            Err(BulkError::Deadline)
        })
    }

    /// Waits for one of several transfers, removes it from the list, and returns its index and its
    /// result. Returns `None` for an empty list.
    ///
    /// # Blocking
    /// Blocks until one of them is done, or its time limit passes.
    fn wait_any_transfer(
        &mut self,
        transfers: &mut Vec<Transfer>,
    ) -> Option<(usize, Result<(), BulkError>)> {
        // Otherwise a caller whose transfers are always done already would never poll epoll.
        if self.state().is_look_due() {
            self.turn_until(0, |_, _| true);
        }
        let found = first_done(self.state(), transfers);
        if let Some((at, result)) = found {
            transfers.remove(at);
            return Some((at, result));
        }
        let state = self.state();
        let until = |it: &Transfer| state.bulk.transfers.deadline_ns(it.id).unwrap_or(u64::MAX);
        let late = (0..transfers.len()).min_by_key(|&at| until(&transfers[at]))?;
        let first_ns = until(&transfers[late]);
        let mut found = None;
        self.turn_until(first_ns, |state, _| {
            found = first_done(state, transfers);
            found.is_some()
        });
        let (at, result) = found.unwrap_or_else(|| {
            self.state().bulk_give_up(transfers[late].id);
            (late, Err(BulkError::Deadline))
        });
        transfers.remove(at);
        Some((at, result))
    }

    /// Runs one turn of the event loop, and returns the result of a transfer if it is done or its
    /// time limit has passed. The limit is checked here, and between pieces that are copied.
    ///
    /// # Errors
    /// The errors of [`wait_transfer`](Self::wait_transfer).
    fn test_transfer(&mut self, transfer: Transfer) -> Option<Result<(), BulkError>> {
        self.turn_until(0, |_, _| true);
        let state = self.state();
        if let Some(result) = state.bulk.transfers.take(transfer.id) {
            return Some(result);
        }
        let deadline_ns = state.bulk.transfers.deadline_ns(transfer.id)?;
        if deadline_ns == u64::MAX || clock::now_ns() < deadline_ns {
            return None;
        }
        state.bulk_give_up(transfer.id);
        Some(Err(BulkError::Deadline))
    }

    /// Cancels a transfer. This side no longer accesses its memory for it.
    fn cancel_transfer(&mut self, transfer: Transfer) {
        self.state().bulk_give_up(transfer.id);
    }

    /// Returns how that memory is accessed; `None` if this is not known yet.
    fn bulk_path(&mut self, peer: PeerKey, handle: &BulkHandle) -> Option<BulkPath> {
        self.state().bulk_path(peer, handle)
    }

    /// Returns the counters of bulk transfers.
    fn bulk_stats(&mut self) -> BulkStats {
        self.state().bulk.stats
    }
}

impl<T: sealed::Turning + ?Sized> Bulk for T {}

fn first_done(
    state: &mut super::state::State,
    transfers: &[Transfer],
) -> Option<(usize, Result<(), BulkError>)> {
    transfers.iter().enumerate().find_map(|(at, it)| {
        let result = state.bulk.transfers.take(it.id)?;
        Some((at, result))
    })
}

#[inline]
fn do_now(
    turning: &mut (impl sealed::Turning + ?Sized),
    asked: &Asked<'_>,
) -> Result<(), BulkError> {
    // Copying makes no system call, so epoll must be polled now and then to notice the end of a
    // peer.
    if turning.state().is_look_due() {
        turning.turn_until(0, |_, _| true);
    }
    if let Some(done) = turning.state().bulk_at_once(asked) {
        return done;
    }
    let id = turning.state().bulk_start(asked)?;
    turning.wait_transfer(Transfer { id })
}
