//! Remote memory access: registered memory, the keys of peers' memory, and operations on it.

use super::library::*;
use super::{Shared, UcxConnection, UcxContext, UcxError, UcxWorker, check, request_parameters};
use crate::raw::{MemoryPiece, Region};
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use handover_base::slab::{Key, Slab};
use std::any::Any;
use std::sync::Arc;

/// Memory that the library has registered in a context, and perhaps allocated there.
struct RegisteredMemory {
    context: Arc<UcxContext>,
    /// The library's handle of the memory.
    handle: *mut c_void,
}

// SAFETY: any thread may unmap the memory, as the context was made for several threads
// (mt_workers_shared).
unsafe impl Send for RegisteredMemory {}
// SAFETY: a shared reference only passes the handle to functions that read it, or lock the context.
unsafe impl Sync for RegisteredMemory {}

handover_base::debug_struct!(RegisteredMemory as it { handle: it.handle });

impl RegisteredMemory {
    /// Registers or allocates the memory that the parameters describe.
    ///
    /// # Safety
    /// Memory whose address the parameters contain exists until the registration is dropped.
    unsafe fn new(
        context: &Arc<UcxContext>,
        parameters: &MemoryParameters,
    ) -> Result<Self, UcxError> {
        let (functions, mut handle) = (context.functions, null_mut());
        // SAFETY: the parameters have the layout of the header, and the caller vouches for the
        // memory; `handle` is writable.
        let status = unsafe { (functions.mem_map)(context.context, parameters, &raw mut handle) };
        check(functions, "ucp_mem_map", status)?;
        Ok(Self { context: Arc::clone(context), handle })
    }

    /// Returns the key that peers need to access the memory.
    fn pack_key(&self) -> Result<Vec<u8>, UcxError> {
        let (functions, context) = (self.context.functions, self.context.context);
        let (mut packed, mut bytes) = (null_mut(), 0);
        // SAFETY: memory that is registered in this context; both variables are writable.
        let status =
            unsafe { (functions.rkey_pack)(context, self.handle, &raw mut packed, &raw mut bytes) };
        check(functions, "ucp_rkey_pack", status)?;
        // SAFETY: the library has allocated `bytes` bytes there, and frees them below.
        let key = unsafe { std::slice::from_raw_parts(packed.cast::<u8>(), bytes) }.to_vec();
        // SAFETY: the packed key, for the last time.
        unsafe { (functions.rkey_buffer_release)(packed) };
        Ok(key)
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        // SAFETY: new() has registered the memory in this context. An error is ignored: then it
        // stays registered.
        unsafe { (self.context.functions.mem_unmap)(self.context.context, self.handle) };
    }
}

/// Memory of this process that peers' workers may access.
#[derive(Debug)]
pub(crate) struct UcxRegistration {
    /// Registration of the memory; `None` if the region has it, as the library has allocated the
    /// memory.
    _registered: Option<RegisteredMemory>,
    /// Region of the memory. It is dropped after the registration.
    _region: Arc<Region>,
}

/// Index of a key for a peer's memory, in the connection's table of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UcxKey(pub(crate) usize);

/// Unpacked key for a peer's memory. It must be destroyed once no operation uses it.
struct RemoteKey(*mut c_void);

impl RemoteKey {
    fn destroy(self, functions: &Functions) {
        // SAFETY: unpack_key() has made the key, and no operation uses it any more.
        unsafe { (functions.rkey_destroy)(self.0) };
    }
}

/// Keys of a connection's peer, by index. Indices of removed keys are used again.
pub(super) struct KeyTable(Slab<RemoteKey>);

impl KeyTable {
    pub(super) fn new() -> Self {
        Self(Slab::new(u32::MAX))
    }

    /// Returns the key in the slab of a key that was not removed.
    fn slab_key(&self, key: UcxKey) -> Option<Key> {
        self.0.key_at(u32::try_from(key.0).ok()?)
    }

    fn insert(&mut self, key: RemoteKey) -> Result<UcxKey, RemoteKey> {
        self.0.insert(key).map(|it| UcxKey(it.index as usize))
    }

    fn get(&self, key: UcxKey) -> Option<&RemoteKey> {
        self.0.get(self.slab_key(key)?)
    }

    fn remove(&mut self, key: UcxKey) -> Option<RemoteKey> {
        self.0.remove(self.slab_key(key)?)
    }

    /// Destroys all keys, which no operation uses any more.
    pub(super) fn destroy_all(mut self, functions: &Functions) {
        for key in self.0.keys().collect::<Vec<_>>() {
            self.0.remove(key).into_iter().for_each(|it| it.destroy(functions));
        }
    }
}

/// Argument of the callback for an operation on a peer's memory.
struct RemoteJob {
    shared: NonNull<Shared>,
    connection: UcxConnection,
    /// Number of the operation, assigned by the caller.
    number: u64,
    /// Owner of the local memory.
    _memory: Box<dyn Any + Send>,
}

/// Operation on the memory of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemoteOperation {
    /// Reads the peer's memory.
    Get,
    /// Writes the peer's memory; the data has arrived there once a later flush is complete.
    Put,
}

/// Records that an operation on a peer's memory is complete.
///
/// # Safety
/// The library calls this once, with a request of [`UcxWorker::start_remote`] and its job.
unsafe extern "C" fn on_remote(request: *mut c_void, status: Status, job: *mut c_void) {
    // SAFETY: finish_start() has left the box to this callback.
    let mut job = unsafe { Box::from_raw(job.cast::<RemoteJob>()) };
    // SAFETY: as in on_message(): no reference exists while the library runs.
    let shared = unsafe { job.shared.as_mut() };
    shared.finish_message(job.connection, 0, status);
    shared.completed.push((job.number, status == OK));
    // SAFETY: the request of a callback is complete, and is freed here alone.
    unsafe { (shared.functions.request_free)(request) };
}

impl UcxWorker {
    /// Registers a memory for peers; returns the registration, and the key that is sent to them.
    pub(crate) fn register(
        &self,
        region: &Arc<Region>,
    ) -> Result<(UcxRegistration, Vec<u8>), UcxError> {
        let is_here = |it: &&RegisteredMemory| Arc::ptr_eq(&it.context, &self.context);
        let (registered, key) = match region.owner().filter(is_here) {
            Some(allocated) => (None, allocated.pack_key()?),
            None => {
                let parameters = MemoryParameters {
                    field_mask: MemoryParameters::ADDRESS | MemoryParameters::LENGTH,
                    address: region.start_address() as *mut c_void,
                    length: region.len_bytes(),
                    flags: 0,
                    prot: 0,
                    memory_type: 0,
                };
                // SAFETY: the region's memory, which the registration returned below keeps alive.
                let new = unsafe { RegisteredMemory::new(&self.context, &parameters) }?;
                let key = new.pack_key()?;
                (Some(new), key)
            }
        };
        Ok((UcxRegistration { _registered: registered, _region: Arc::clone(region) }, key))
    }

    /// Allocates zeroed memory that the library's transports can map at peers on this machine.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Region, UcxError> {
        let parameters = MemoryParameters {
            field_mask: MemoryParameters::LENGTH | MemoryParameters::FLAGS,
            address: null_mut(),
            length: bytes,
            flags: MEM_MAP_ALLOCATE,
            prot: 0,
            memory_type: 0,
        };
        // SAFETY: the parameters contain no address.
        let allocated = unsafe { RegisteredMemory::new(&self.context, &parameters) }?;
        let mut attributes = MemoryAttributes {
            field_mask: MemoryAttributes::ADDRESS | MemoryAttributes::LENGTH,
            address: null_mut(),
            length: 0,
            memory_type: 0,
        };
        // SAFETY: memory that was just allocated; the attributes have the layout of the header.
        let status = unsafe { (self.functions.mem_query)(allocated.handle, &raw mut attributes) };
        check(self.functions, "ucp_mem_query", status)?;
        let start = NonNull::new(attributes.address.cast::<u8>());
        let Some(start) = start.filter(|_| attributes.length >= bytes) else {
            return Err(UcxError { call: "ucp_mem_query", text: "no memory was allocated".into() });
        };
        // SAFETY: the library has allocated at least `bytes` bytes there, which nobody else knows
        // yet.
        unsafe { start.write_bytes(0, bytes) };
        // SAFETY: the memory is readable and writable until `allocated` is dropped, which unmaps
        // it; only its address is used.
        Ok(unsafe { Region::from_owner(start, bytes, Box::new(allocated)) })
    }

    /// Unpacks a key that the peer of that connection has sent.
    pub(crate) fn unpack_key(
        &mut self,
        id: UcxConnection,
        packed: &[u8],
    ) -> Result<UcxKey, UcxError> {
        let functions = self.functions;
        let mut padded = packed.to_vec();
        padded.resize(packed.len() + super::ADDRESS_PADDING_BYTES, 0);
        let endpoint = self.endpoint(id)?;
        let mut key = null_mut();
        // SAFETY: the endpoint exists; the key is followed by zeros, as the library does not know
        // its length.
        let status =
            unsafe { (functions.ep_rkey_unpack)(endpoint, padded.as_ptr().cast(), &raw mut key) };
        check(functions, "ucp_ep_rkey_unpack", status)?;
        let inserted = match self.shared_mut().get_mut(id) {
            Some(connection) => connection.keys.insert(RemoteKey(key)),
            None => Err(RemoteKey(key)),
        };
        inserted.map_err(|key| {
            key.destroy(functions);
            UcxError { call: "ucp_ep_rkey_unpack", text: "not connected".into() }
        })
    }

    /// Destroys keys of a connection, which no operation uses any more.
    pub(crate) fn destroy_keys(&mut self, id: UcxConnection, keys: &[usize]) {
        let functions = self.functions;
        let Some(connection) = self.shared_mut().get_mut(id) else { return };
        let removed: Vec<_> =
            keys.iter().filter_map(|&key| connection.keys.remove(UcxKey(key))).collect();
        removed.into_iter().for_each(|key| key.destroy(functions));
    }

    /// Returns the library's endpoint of a connection that has not failed.
    fn endpoint(&self, id: UcxConnection) -> Result<*mut c_void, UcxError> {
        let connected =
            self.shared().get(id).filter(|it| !it.endpoint.is_null() && it.failed.is_none());
        let failed = || UcxError { call: "ucp_ep_create", text: "not connected".into() };
        connected.map(|it| it.endpoint).ok_or_else(failed)
    }

    /// Starts to read or to write a peer's memory; returns `true` if the operation is already
    /// complete. Otherwise [`take_completed`](Self::take_completed) returns its number later.
    /// `owner` keeps the local memory alive until then.
    pub(crate) fn start_remote(
        &mut self,
        operation: RemoteOperation,
        (id, key, address): (UcxConnection, UcxKey, u64),
        piece: MemoryPiece<'_>,
        number: u64,
        owner: Box<dyn Any + Send>,
    ) -> Result<bool, UcxError> {
        let endpoint = self.endpoint(id)?;
        let key = self.shared().get(id).and_then(|it| it.keys.get(key)).map(|it| it.0);
        let key = key.ok_or_else(|| UcxError { call: "ucp_get", text: "no such key".into() })?;
        let (functions, bytes) = (self.functions, piece.bytes);
        let (call, local) = match operation {
            RemoteOperation::Get => {
                ("ucp_get_nbx", piece.region.range_ptr_mut(piece.offset, bytes))
            }
            RemoteOperation::Put => ("ucp_put_nbx", piece.region.range_ptr(piece.offset, bytes)),
        };
        let local = local.as_ptr().cast();
        self.start_job((id, number), owner, call, |parameters| match operation {
            RemoteOperation::Get => {
                // SAFETY: the endpoint and the key exist; range_ptr_mut() has checked the range, to
                // which no reference exists, and `owner` keeps it alive until the operation is
                // complete.
                unsafe { (functions.get_nbx)(endpoint, local, bytes, address, key, parameters) }
            }
            RemoteOperation::Put => {
                // SAFETY: as for the other operation, of which range_ptr() has checked the range.
                unsafe { (functions.put_nbx)(endpoint, local, bytes, address, key, parameters) }
            }
        })
    }

    /// Starts to wait until all earlier operations of a connection are complete at the peer.
    /// Returns as [`start_remote`](Self::start_remote) does.
    pub(crate) fn start_flush(&mut self, id: UcxConnection, number: u64) -> Result<bool, UcxError> {
        let (endpoint, functions) = (self.endpoint(id)?, self.functions);
        self.start_job((id, number), Box::new(()), "ucp_ep_flush_nbx", |parameters| {
            // SAFETY: the endpoint exists.
            unsafe { (functions.ep_flush_nbx)(endpoint, parameters) }
        })
    }

    /// Starts an operation by calling `start`; returns `true` if it is already complete.
    fn start_job(
        &mut self,
        (id, number): (UcxConnection, u64),
        owner: Box<dyn Any + Send>,
        call: &'static str,
        start: impl FnOnce(*const RequestParameters) -> StatusPtr,
    ) -> Result<bool, UcxError> {
        let shared = self.shared;
        let job = Box::new(RemoteJob { shared, connection: id, number, _memory: owner });
        let job = Box::into_raw(job);
        if let Some(connection) = self.shared_mut().get_mut(id) {
            connection.outstanding_count += 1;
        }
        let parameters = request_parameters(0, on_remote, job.cast());
        let status = match Started::from_pointer(start(&raw const parameters)) {
            Started::Pending => return Ok(false),
            Started::Completed => OK,
            Started::Failed(status) => status,
        };
        // SAFETY: the box was made above, and the callback is not called for an operation without a
        // request.
        drop(unsafe { Box::from_raw(job) });
        self.shared_mut().finish_message(id, 0, status);
        check(self.functions, call, status).map(|()| true)
    }

    /// Returns `true` if [`take_completed`](Self::take_completed) has operations to return.
    #[inline]
    pub(crate) fn has_completed_operations(&self) -> bool {
        !self.shared().completed.is_empty()
    }

    /// Returns the numbers of the completed operations, each with `true` if it has succeeded.
    pub(crate) fn take_completed(&mut self) -> Vec<(u64, bool)> {
        std::mem::take(&mut self.shared_mut().completed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_of_a_removed_key_is_used_again() {
        let mut keys = KeyTable::new();
        for _ in 0..3 {
            // Never destroyed, as it is none of the library.
            let key = keys.insert(RemoteKey(null_mut())).unwrap_or_else(|_| panic!("full"));
            assert_eq!(key, UcxKey(0));
            assert!(keys.get(key).is_some() && keys.remove(key).is_some());
            assert!(keys.get(key).is_none() && keys.remove(key).is_none());
        }
    }
}
