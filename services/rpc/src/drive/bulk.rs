//! Bulk transfers: one peer registers memory, and the other one pulls from it or pushes into it.

mod exchange;
mod grants;
mod halves;
mod memory;
mod part;
mod remote;
mod rma;
mod tables;

use super::event_loop::{EventLoop, sealed};
use crate::clock::{self, after};
use crate::engine::{BulkHandle, PeerKey, Rights};
use crate::{BulkError, MemoryError, WithdrawError};
use exchange::TransferRequest;
use remote::TransferDirection::{Pull, Push};
use std::time::Duration;

pub(crate) use exchange::BulkExchange;
pub use memory::BulkMemory;
pub use part::{BulkPart, BulkPath};
pub(crate) use remote::TransferDirection;
pub(crate) use tables::BulkTables;
pub use tables::{BulkStats, Transfer};

/// Bulk transfers of memory, for an [`Endpoint`](crate::Endpoint), a handler's
/// [`Context`](crate::Context), and a [`CallbackContext`](crate::CallbackContext).
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
///         .pull(context.peer(), &handle, &ours, BulkPart::new(handle.len_bytes()))
///         .map_err(|error| Failure::new(2, error.to_string()))?;
///     Ok(ours.to_vec().iter().map(|&it| u64::from(it)).sum::<u64>())
/// })?; let stopper = server.stopper(); let serving = std::thread::spawn(move || server.serve());
///
/// let mut client = Endpoint::new(Config::default())?;
/// let peer = client.connect(&address)?;
/// let handle = client.register_memory(&BulkMemory::plain(vec![2; 1000]), Rights::Read)?;
/// let sum: u64 = client.call(peer, Method::new("sum"), &handle)?;
/// assert_eq!(sum, 2000);
/// stopper.stop();
/// serving.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Bulk: sealed::Driver {
    /// Allocates zeroed memory of the kind that this endpoint's peers over `ucx://` access fastest.
    /// All pages are allocated at once.
    ///
    /// If the endpoint has a `ucx://` address or peer, UCX allocates the memory, since its
    /// transports between processes of one machine map no other. Peers over `sm://` then access it
    /// as they do that of [`BulkMemory::plain`]. Otherwise the memory is that of
    /// [`BulkMemory::shared`].
    ///
    /// # Errors
    /// [`MemoryError::AllocationFailed`] if there is not enough memory.
    fn allocate_memory(&mut self, bytes: usize) -> Result<BulkMemory, MemoryError> {
        match self.event_loop().peers.ucx.allocate(bytes) {
            Some(region) => Ok(BulkMemory::from_region(region)),
            None => BulkMemory::shared(bytes),
        }
    }

    /// Registers a memory for transfers by peers. Peers that receive the returned handle can pull
    /// from the memory or push into it, as `rights` allow.
    ///
    /// # Errors
    /// [`MemoryError::TooManyMemories`] if `memories_max` memories are registered.
    fn register_memory(
        &mut self,
        memory: &BulkMemory,
        rights: Rights,
    ) -> Result<BulkHandle, MemoryError> {
        let memories_max = self.event_loop().config.bulk.memories_max;
        self.event_loop().bulk.register_memory(memory.clone(), rights, memories_max)
    }

    /// Withdraws the registration of a memory, and notifies the peers that use it. If they access
    /// it by its address, through the kernel or UCX, waits until they have released it. Peers that
    /// have mapped it as a file use it until they have read the notification, which they have once
    /// they answer a call that began after this one.
    ///
    /// A peer that this endpoint has disconnected is not waited for. Until it notices, it can still
    /// pull from memory with [`Rights::Read`], and gets the bytes that have taken the memory's
    /// place.
    ///
    /// # Errors
    /// [`WithdrawError::InUse`] if a peer has not released it in time. The call can be repeated; a
    /// peer that does not answer has to be disconnected.
    ///
    /// # Blocking
    /// Blocks for `timeout` at most.
    fn withdraw_memory(
        &mut self,
        handle: &BulkHandle,
        timeout: Duration,
    ) -> Result<(), WithdrawError> {
        self.event_loop().with_bulk_exchange(|it| it.withdraw_memory(handle))?;
        let mut taken = None;
        self.run_until(after(timeout), |event_loop, _| {
            taken = event_loop.bulk.remove_withdrawn_memory(handle);
            taken.is_some()
        });
        let peers_count = self.event_loop().bulk.direct_users_count(handle.id);
        taken.map(drop).ok_or(WithdrawError::InUse { peers_count })
    }

    /// Copies a range of the peer's memory into local memory, and waits until the copy is complete.
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
        let request = TransferRequest { peer, direction: Pull, handle: from, memory: into, part };
        transfer_and_wait(self, &request)
    }

    /// Copies a range of local memory into the peer's memory, and waits until the copy is complete.
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
        let request = TransferRequest { peer, direction: Push, handle: into, memory: from, part };
        transfer_and_wait(self, &request)
    }

    /// Starts a [`pull`](Self::pull) without waiting. The transfer proceeds whenever the program is
    /// in a method of this endpoint.
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
        let request = TransferRequest { peer, direction: Pull, handle: from, memory: into, part };
        self.event_loop().with_bulk_exchange(|it| it.start_transfer(&request))
    }

    /// Starts a [`push`](Self::push) without waiting. The transfer proceeds whenever the program is
    /// in a method of this endpoint.
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
        let request = TransferRequest { peer, direction: Push, handle: into, memory: from, part };
        self.event_loop().with_bulk_exchange(|it| it.start_transfer(&request))
    }

    /// Waits for the end of a transfer that was started, and returns its result.
    ///
    /// # Errors
    /// The errors of [`pull`](Self::pull); [`BulkError::Stale`] if the transfer was waited for
    /// before and was not complete when it was started.
    ///
    /// # Blocking
    /// Blocks as [`pull`](Self::pull) does.
    fn wait_transfer(&mut self, transfer: Transfer) -> Result<(), BulkError> {
        run_iteration_if_due(self);
        if let Some(result) = self.event_loop().bulk.transfers.take_result(transfer) {
            return result;
        }
        let deadline_ns =
            self.event_loop().bulk.transfers.deadline_ns(transfer).unwrap_or(u64::MAX);
        let mut result = None;
        self.run_until(deadline_ns, |event_loop, _| {
            result = event_loop.bulk.transfers.take_result(transfer);
            result.is_some()
        });
        result.unwrap_or_else(|| {
            self.event_loop().with_bulk_exchange(|it| it.cancel_transfer(transfer));
            Err(BulkError::Deadline)
        })
    }

    /// Waits until one of the transfers is complete. Removes it from the list, and returns its
    /// index and its result. Returns `None` for an empty list.
    ///
    /// # Blocking
    /// Blocks until one of them is done, or its time limit passes.
    fn wait_any_transfer(
        &mut self,
        transfers: &mut Vec<Transfer>,
    ) -> Option<(usize, Result<(), BulkError>)> {
        run_iteration_if_due(self);
        let found = take_first_completed(self.event_loop(), transfers);
        if let Some((at, result)) = found {
            transfers.remove(at);
            return Some((at, result));
        }
        let event_loop = self.event_loop();
        let until = |it: &Transfer| event_loop.bulk.transfers.deadline_ns(*it).unwrap_or(u64::MAX);
        let late = (0..transfers.len()).min_by_key(|&at| until(&transfers[at]))?;
        let first_ns = until(&transfers[late]);
        let mut found = None;
        self.run_until(first_ns, |event_loop, _| {
            found = take_first_completed(event_loop, transfers);
            found.is_some()
        });
        let (at, result) = found.unwrap_or_else(|| {
            self.event_loop().with_bulk_exchange(|it| it.cancel_transfer(transfers[late]));
            (late, Err(BulkError::Deadline))
        });
        transfers.remove(at);
        Some((at, result))
    }

    /// Runs one iteration of the event loop, and returns the transfer's result. Returns `None` if
    /// the transfer is not complete and its time limit has not passed. The limit is checked here,
    /// and between pieces that are copied.
    ///
    /// # Errors
    /// The errors of [`wait_transfer`](Self::wait_transfer).
    fn test_transfer(&mut self, transfer: Transfer) -> Option<Result<(), BulkError>> {
        self.event_loop().poll_if_due_before_iteration();
        self.run_until(0, |_, _| true);
        let event_loop = self.event_loop();
        if let Some(result) = event_loop.bulk.transfers.take_result(transfer) {
            return Some(result);
        }
        let deadline_ns = event_loop.bulk.transfers.deadline_ns(transfer)?;
        if deadline_ns == u64::MAX || clock::now_ns() < deadline_ns {
            return None;
        }
        event_loop.with_bulk_exchange(|it| it.cancel_transfer(transfer));
        Some(Err(BulkError::Deadline))
    }

    /// Cancels a transfer. This endpoint no longer accesses memory for that transfer.
    ///
    /// The exception is a transfer on [`BulkPath::Remote`], as UCX cannot cancel operations that
    /// have begun. It may read or write the local memory until [`BulkMemory::into_vecs`] succeeds,
    /// and the peer's memory until that peer's [`withdraw_memory`](Self::withdraw_memory) succeeds.
    fn cancel_transfer(&mut self, transfer: Transfer) {
        self.event_loop().with_bulk_exchange(|it| it.cancel_transfer(transfer));
    }

    /// Returns the way in which transfers access the peer's memory of this handle. Returns `None`
    /// if it is not known yet.
    fn bulk_path(&mut self, peer: PeerKey, handle: &BulkHandle) -> Option<BulkPath> {
        self.event_loop().with_bulk_exchange(|it| it.transfer_path(peer, handle))
    }

    /// Returns the counters of bulk transfers.
    fn bulk_stats(&mut self) -> BulkStats {
        self.event_loop().bulk.stats
    }
}

impl<T: sealed::Driver + ?Sized> Bulk for T {}

/// Removes the first completed transfer of the list from the table. Returns its index and result.
#[inline]
fn take_first_completed(
    event_loop: &mut EventLoop,
    transfers: &[Transfer],
) -> Option<(usize, Result<(), BulkError>)> {
    transfers.iter().enumerate().find_map(|(at, it)| {
        let result = event_loop.bulk.transfers.take_result(*it)?;
        Some((at, result))
    })
}

/// Runs an iteration of the event loop, with epoll, if the last call of epoll is long enough ago.
/// Otherwise a caller whose transfers are complete at once would never read a message, such as the
/// withdrawal of the memory that it accesses, nor notice the end of a peer.
#[inline]
fn run_iteration_if_due(driver: &mut (impl sealed::Driver + ?Sized)) {
    if driver.event_loop().record_poll_if_due(false) {
        driver.event_loop().poll(Some(0));
        driver.run_until(0, |_, _| true);
    }
}

/// Transfers the data, and waits for the end of the transfer.
#[inline]
fn transfer_and_wait(
    driver: &mut (impl sealed::Driver + ?Sized),
    request: &TransferRequest<'_>,
) -> Result<(), BulkError> {
    run_iteration_if_due(driver);
    if let Some(done) =
        driver.event_loop().with_bulk_exchange(|it| it.try_copy_immediately(request))
    {
        return done;
    }
    let transfer = driver.event_loop().with_bulk_exchange(|it| it.start_transfer(request))?;
    driver.wait_transfer(transfer)
}
