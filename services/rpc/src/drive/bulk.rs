//! Bulk transfers: memory is registered by one side, and pulled from or pushed into by the other.

mod exchange;
mod halves;
mod memory;
mod remote;
mod tables;

use super::calling::sealed;
use crate::engine::{BulkHandle, PeerKey, Rights};
use crate::{BulkError, MemoryError, WithdrawError};
use exchange::Asked;
use remote::Direction;
use std::time::Duration;
use tables::TransferId;

pub use memory::BulkMemory;
pub use tables::BulkStats;
pub(crate) use tables::Tables;

/// Which piece of the one memory and of the other, and for how long.
///
/// ```
/// use handover_rpc::BulkPart;
/// use std::time::Duration;
/// let part = BulkPart::of(4096).at(8192, 0).within(Duration::from_millis(5));
/// assert_eq!((part.theirs, part.ours, part.bytes), (8192, 0, 4096));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BulkPart {
    /// Where it begins in the peer's memory.
    pub theirs: u64,
    /// Where it begins in this side's memory.
    pub ours: u64,
    /// How long it is.
    pub bytes: u64,
    /// By when it is to be done, counted from its beginning; `None` for ever.
    pub timeout: Option<Duration>,
    /// Have the peer copy the second half: the handle of this side's memory.
    pub halved: Option<BulkHandle>,
}

impl BulkPart {
    /// The first so many bytes of both.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// From there on.
    #[must_use]
    pub fn at(self, theirs: u64, ours: u64) -> Self {
        Self { theirs, ours, ..self }
    }

    /// Copied by both sides at a time, a half each, where both memories are
    /// [`BulkMemory::shared`] and it is long enough to be worth it; otherwise, and over a stream, as without.
    ///
    /// `ours` is the handle of this side's memory, registered with the right that the peer needs for its half:
    /// to write when this side pulls, to read when it pushes. The peer copies while it is in any of its
    /// endpoint's methods, so this is for peers that wait.
    /// A transfer that is given up, at its deadline or before, may go on at the peer, its half of the memory with
    /// it, until the peer has read that: it looks between pieces of 1 MiB. What is sent is read in its order, so
    /// once it has answered a call that was made after, it does not touch that memory any more.
    #[must_use]
    pub fn halved(self, ours: &BulkHandle) -> Self {
        Self { halved: Some(*ours), ..self }
    }

    fn is_halved(&self) -> bool {
        self.halved.is_some() && self.bytes >= halves::HALVED_BYTES_MIN
    }

    /// For so long at most.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

/// How a peer's memory is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BulkPath {
    /// Both sides have it mapped: whoever transfers copies it once.
    Mapped,
    /// The kernel copies it from one process to the other.
    Process,
    /// As messages: over a stream, or where the kernel does not allow the others.
    Messages,
}

/// A transfer under way.
///
/// It is a number: dropping it ends nothing. A transfer that is neither waited for nor given up keeps its
/// place among `transfers_max`, and its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transfer {
    id: TransferId,
}

/// Moving memory in bulk, for an [`Endpoint`](crate::Endpoint) and for a handler's
/// [`Context`](crate::Context).
///
/// Whoever owns memory registers it and sends the handle to a peer, as an argument or a result. The peer
/// pulls from it, or pushes into it, as its rights allow, from or into memory of its own that need not be
/// registered.
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
    /// Lets peers that are given the handle pull from that memory, or push into it.
    ///
    /// # Errors
    /// [`MemoryError::Full`] when as many are registered as may be.
    fn register_memory(
        &mut self,
        memory: &BulkMemory,
        rights: Rights,
    ) -> Result<BulkHandle, MemoryError> {
        let memories_max = self.state().config.memories_max;
        self.state().bulk.register(memory.clone(), rights, memories_max)
    }

    /// Takes a registration back. Peers that have the memory at hand are told; of plain memory that they may
    /// write, it is waited until they say that they do not any more.
    ///
    /// # Errors
    /// [`WithdrawError::InUse`] when they have not said so in time. It can be tried again.
    ///
    /// # Blocking
    /// For `timeout` at most.
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

    /// Copies a piece of the peer's memory into this side's, and waits until it is there.
    ///
    /// # Errors
    /// [`BulkError`]; part of it may have been copied then.
    ///
    /// # Blocking
    /// Until it is done, the connection is gone, or its time is over.
    ///
    /// # Cost
    /// In shared memory, once the peer's memory is at hand: copying it. Neither a message nor an allocation.
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

    /// Copies a piece of this side's memory into the peer's, and waits until it is there.
    ///
    /// # Errors
    /// As [`pull`](Self::pull).
    ///
    /// # Blocking
    /// As [`pull`](Self::pull).
    ///
    /// # Cost
    /// As [`pull`](Self::pull).
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

    /// As [`pull`](Self::pull), without waiting. It goes on while this endpoint is in any of its methods.
    ///
    /// # Errors
    /// [`BulkError`] when it cannot begin; nothing is under way then.
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

    /// As [`push`](Self::push), without waiting. It goes on while this endpoint is in any of its methods.
    ///
    /// # Errors
    /// [`BulkError`] when it cannot begin; nothing is under way then.
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
    /// As [`pull`](Self::pull); [`BulkError::Stale`] for one that was waited for before.
    ///
    /// # Blocking
    /// As [`pull`](Self::pull).
    fn wait_transfer(&mut self, transfer: Transfer) -> Result<(), BulkError> {
        let id = transfer.id;
        // As in wait_any_transfer().
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

    /// Waits for one of several, takes it from the list, and says at which place it stood and how it came
    /// out. `None` when the list is empty.
    ///
    /// # Blocking
    /// Until one of them is done, or the time of one is over.
    fn wait_any_transfer(
        &mut self,
        transfers: &mut Vec<Transfer>,
    ) -> Option<(usize, Result<(), BulkError>)> {
        // Whoever only ever finds some done asks nothing of the kernel otherwise.
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

    /// How a transfer came out, if it has; it moves on meanwhile. A deadline is looked at
    /// between pieces that are copied, and otherwise not.
    ///
    /// # Errors
    /// As [`wait_transfer`](Self::wait_transfer).
    fn test_transfer(&mut self, transfer: Transfer) -> Option<Result<(), BulkError>> {
        self.turn_until(0, |_, _| true);
        self.state().bulk.transfers.take(transfer.id)
    }

    /// Gives a transfer up. This side's memory is not touched for it any more.
    fn cancel_transfer(&mut self, transfer: Transfer) {
        self.state().bulk_give_up(transfer.id);
    }

    /// How that memory is reached; `None` while it was not yet, or nobody knows.
    fn bulk_path(&mut self, peer: PeerKey, handle: &BulkHandle) -> Option<BulkPath> {
        self.state().bulk_path(peer, handle)
    }

    /// What has been moved so far.
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
    // Copying asks nothing of the kernel: now and then somebody must, or a peer's death is never noticed.
    if turning.state().is_look_due() {
        turning.turn_until(0, |_, _| true);
    }
    if let Some(done) = turning.state().bulk_at_once(asked) {
        return done;
    }
    let id = turning.state().bulk_start(asked)?;
    turning.wait_transfer(Transfer { id })
}
