//! Memory that peers access, and transfers between it and local memory.

use super::super::handle::{buffer, buffer_mut, fill_with_zeros, guard, limit, put, require};
use super::{handover_rpc_endpoint, handover_rpc_peer};
use crate::status::{Fault, Outcome, handover_status};
use handover_rpc::{
    Bulk, BulkError, BulkHandle, BulkMemory, BulkPart, Context, MemoryError, Rights, WithdrawError,
};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::time::Duration;

use handover_status::*;

/// Memory for bulk transfers, which peers on this machine can map; opaque.
pub struct handover_rpc_memory {
    memory: BulkMemory,
}

/// Access rights that a bulk handle gives to a peer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum handover_rpc_rights {
    /// The peer may pull from the memory.
    HANDOVER_RPC_READ = 1,
    /// The peer may push into the memory.
    HANDOVER_RPC_WRITE = 2,
    /// The peer may pull from the memory and push into it.
    HANDOVER_RPC_READ_WRITE = 3,
}

/// Size of a bulk handle in bytes.
pub const HANDOVER_RPC_BULK_BYTES: usize = 40;

/// Handle of a registered memory, to be sent to peers in arguments and results. The length of its
/// encoding varies, and zeros follow it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct handover_rpc_bulk {
    /// Encoded handle.
    pub bytes: [u8; HANDOVER_RPC_BULK_BYTES],
}

impl handover_rpc_bulk {
    fn encode(handle: &BulkHandle) -> Result<Self, Fault> {
        let mut bytes = [0; HANDOVER_RPC_BULK_BYTES];
        postcard::to_slice(handle, &mut bytes).map_err(|error| HANDOVER_PANIC.because(error))?;
        Ok(Self { bytes })
    }

    fn decode(&self) -> Result<BulkHandle, Fault> {
        postcard::from_bytes(&self.bytes).map_err(|error| {
            HANDOVER_INVALID_ARGUMENT.because(format_args!("bulk: not a handle: {error}"))
        })
    }
}

/// Offsets, length and time limit of a bulk transfer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct handover_rpc_range {
    /// Offset in the peer's memory, in bytes.
    pub theirs: u64,
    /// Offset in the local memory, in bytes.
    pub ours: u64,
    /// Length of the range in bytes.
    pub bytes: u64,
    /// Time limit of the transfer in ns; `HANDOVER_FOREVER` for none.
    pub timeout_ns: u64,
}

/// Allocates zeroed memory of `bytes` bytes, which peers on this machine can map.
///
/// Errors: `HANDOVER_OUT_OF_MEMORY`. Threads: any. Blocking: while the pages are allocated.
/// Ownership: the caller destroys the memory.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_rpc_memory_create(
    bytes: usize,
    memory: Option<&mut MaybeUninit<Option<Box<handover_rpc_memory>>>>,
) -> handover_status {
    guard(|| {
        let place = require("memory", memory)?;
        let memory = BulkMemory::shared(bytes).map_err(|it| HANDOVER_OUT_OF_MEMORY.because(it))?;
        place.write(Some(Box::new(handover_rpc_memory { memory })));
        Ok(())
    })
}

/// Returns an error if the range does not lie within the memory.
fn check_range(memory: &BulkMemory, offset: u64, bytes: usize) -> Outcome {
    let len = memory.len_bytes();
    if offset.checked_add(bytes as u64).is_some_and(|end| end <= len) {
        return Ok(());
    }
    Err(HANDOVER_INVALID_ARGUMENT.because(format_args!(
        "{bytes} bytes at offset {offset} extend beyond the memory of {len} bytes"
    )))
}

/// Copies `bytes_count` bytes from `offset` of the memory to `into`.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` for a range beyond the end of the memory. Threads: any
/// number at the same time; bytes that a peer is writing may be old or new. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_rpc_memory_read(
    memory: Option<&handover_rpc_memory>,
    offset: u64,
    into: *mut c_void,
    bytes_count: usize,
) -> handover_status {
    guard(|| {
        let memory = &require("memory", memory)?.memory;
        check_range(memory, offset, bytes_count)?;
        // SAFETY: the header demands a buffer of that length.
        let into = unsafe { buffer_mut("into", into, bytes_count) }?;
        memory.read(offset, fill_with_zeros(into));
        Ok(())
    })
}

/// Copies `bytes_count` bytes from `from` into the memory at `offset`.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` for a range beyond the end of the memory.
/// Threads: any number at the same time; of bytes that several write, any may win. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_rpc_memory_write(
    memory: Option<&handover_rpc_memory>,
    offset: u64,
    from: *const c_void,
    bytes_count: usize,
) -> handover_status {
    guard(|| {
        let memory = &require("memory", memory)?.memory;
        check_range(memory, offset, bytes_count)?;
        // SAFETY: the header demands a buffer of that length.
        memory.write(offset, unsafe { buffer("from", from, bytes_count) }?);
        Ok(())
    })
}

/// Returns the length of the memory in bytes; 0 for null.
///
/// Threads: any. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_rpc_memory_bytes(memory: Option<&handover_rpc_memory>) -> u64 {
    memory.map_or(0, |it| it.memory.len_bytes())
}

/// Destroys a memory; null is ignored. If it is registered, or in use by a peer, its pages are
/// freed when that ends.
///
/// Threads: any, while no other thread uses the handle. Blocking: never. Ownership: the handle is
/// invalid afterwards.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_rpc_memory_destroy(memory: Option<Box<handover_rpc_memory>>) {
    drop(memory);
}

/// Registers a memory with an endpoint, and stores its handle in `bulk`. Peers that have the handle
/// can use the memory as `rights` (a `handover_rpc_rights`) allow.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` for other rights; `HANDOVER_FULL` for too many memories;
/// `HANDOVER_SYSTEM`. Threads: one at a time, within a handler too. Blocking: never. Ownership: the
/// endpoint keeps the memory until `handover_rpc_withdraw` or its end, even if the memory's handle
/// is destroyed.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_rpc_expose(
    endpoint: Option<&handover_rpc_endpoint>,
    memory: Option<&handover_rpc_memory>,
    rights: u32,
    bulk: Option<&mut MaybeUninit<handover_rpc_bulk>>,
) -> handover_status {
    guard(|| {
        let endpoint = require("endpoint", endpoint)?;
        let memory = &require("memory", memory)?.memory;
        let place = require("bulk", bulk)?;
        let rights = match rights {
            1 => Rights::Read,
            2 => Rights::Write,
            3 => Rights::ReadWrite,
            _ => {
                return Err(HANDOVER_INVALID_ARGUMENT
                    .because(format_args!("rights={rights}: must be 1 to 3")));
            }
        };
        let registered = with_driver!(endpoint, |driver| driver.register_memory(memory, rights));
        let handle = registered.map_err(|error| match error {
            MemoryError::TooManyMemories { .. } => HANDOVER_FULL.because(error),
            _ => HANDOVER_SYSTEM.because(error),
        })?;
        place.write(handover_rpc_bulk::encode(&handle)?);
        Ok(())
    })
}

/// Ends the registration of a memory, and notifies the peers that use it. Waits for at most
/// `timeout_ns` until peers that access it through UCX have released it.
///
/// Peers that have mapped it use it until they have read the notification, and may write it until
/// then. Destroy it, or use it again only after each such peer has answered a call that began after
/// this one.
///
/// Errors: `HANDOVER_NOT_FOUND` if this endpoint has registered no such memory;
/// `HANDOVER_TIMED_OUT` if a peer still accesses it through UCX: call again, or disconnect the
/// peer. Threads: one at a time, within a handler too. Blocking: up to `timeout_ns`. Ownership:
/// once this succeeds, the endpoint no longer keeps the memory; the program still destroys the
/// memory's handle.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_rpc_withdraw(
    endpoint: Option<&handover_rpc_endpoint>,
    bulk: Option<&handover_rpc_bulk>,
    timeout_ns: u64,
) -> handover_status {
    guard(|| {
        let endpoint = require("endpoint", endpoint)?;
        let handle = require("bulk", bulk)?.decode()?;
        let timeout = Duration::from_nanos(timeout_ns);
        let withdrawn = with_driver!(endpoint, |driver| driver.withdraw_memory(&handle, timeout));
        withdrawn.map_err(|error| match error {
            WithdrawError::InUse { .. } => HANDOVER_TIMED_OUT.because(error),
            _ => HANDOVER_NOT_FOUND.because(error),
        })
    })
}

/// Reads a bulk handle from the bytes of a message, at most `HANDOVER_RPC_BULK_BYTES` of
/// `bytes_count`; stores it in `bulk`, and the length of its memory in `memory_bytes`, unless that
/// is null. `bytes` and `bulk` may overlap.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` if the bytes are no handle.
/// Threads: any. Blocking: never. Ownership: the bytes are copied.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_rpc_bulk_read(
    bytes: *const c_void,
    bytes_count: usize,
    bulk: *mut handover_rpc_bulk,
    memory_bytes: Option<&mut MaybeUninit<u64>>,
) -> handover_status {
    guard(|| {
        let place = require("bulk", NonNull::new(bulk))?;
        // SAFETY: the header demands a buffer of that length.
        let bytes = unsafe { buffer("bytes", bytes, bytes_count) }?;
        let (handle, _) = postcard::take_from_bytes::<BulkHandle>(bytes).map_err(|error| {
            HANDOVER_INVALID_ARGUMENT.because(format_args!("bytes: not a handle: {error}"))
        })?;
        let encoded = handover_rpc_bulk::encode(&handle)?;
        // SAFETY: the header demands memory for a handle. `bytes`, which it may overlap, is not
        // read any more.
        unsafe { place.write(encoded) };
        put(memory_bytes, handle.len_bytes());
        Ok(())
    })
}

fn transfer_fault(error: BulkError) -> Fault {
    match error {
        BulkError::Deadline => HANDOVER_TIMED_OUT.because(error),
        BulkError::Disconnected(_) | BulkError::Stale => HANDOVER_DISCONNECTED.because(error),
        BulkError::Refused(_) => HANDOVER_REFUSED.because(error),
        BulkError::Memory(_) => HANDOVER_SYSTEM.because(error),
        BulkError::Full => HANDOVER_FULL.because(error),
        _ => HANDOVER_INVALID_ARGUMENT.because(error),
    }
}

/// Checks and converts the arguments of `handover_rpc_pull` and `handover_rpc_push`.
fn parse_transfer<'a>(
    endpoint: Option<&'a handover_rpc_endpoint>,
    bulk: Option<&handover_rpc_bulk>,
    memory: Option<&'a handover_rpc_memory>,
    range: Option<&handover_rpc_range>,
) -> Result<(&'a handover_rpc_endpoint, BulkHandle, &'a BulkMemory, BulkPart), Fault> {
    let endpoint = require("endpoint", endpoint)?;
    let handle = require("bulk", bulk)?.decode()?;
    let memory = &require("memory", memory)?.memory;
    let range = require("range", range)?;
    let part = BulkPart::new(range.bytes).offsets(range.theirs, range.ours);
    let part = limit(range.timeout_ns).map_or(part, |timeout| part.timeout(timeout));
    Ok((endpoint, handle, memory, part))
}

/// Copies a range of the peer's memory into the local memory, and waits until that is done.
///
/// Errors: `HANDOVER_REFUSED` for a handle, range or right that the peer does not accept;
/// `HANDOVER_INVALID_ARGUMENT` for a range beyond the local memory; `HANDOVER_TIMED_OUT` and
/// `HANDOVER_DISCONNECTED`, after which a part may have been copied; `HANDOVER_SYSTEM`;
/// `HANDOVER_FULL`. Threads: one at a time, within a handler too. Blocking: up to
/// `range->timeout_ns`. Ownership: `memory` stays the program's.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_rpc_pull(
    endpoint: Option<&handover_rpc_endpoint>,
    peer: handover_rpc_peer,
    bulk: Option<&handover_rpc_bulk>,
    memory: Option<&handover_rpc_memory>,
    range: Option<&handover_rpc_range>,
) -> handover_status {
    guard(|| {
        let (endpoint, handle, memory, part) = parse_transfer(endpoint, bulk, memory, range)?;
        let done = with_driver!(endpoint, |driver| driver.pull(peer.into(), &handle, memory, part));
        done.map_err(transfer_fault)
    })
}

/// Copies a range of the local memory into the peer's, and waits until that is done.
///
/// Errors, threads, blocking and ownership: as `handover_rpc_pull`.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_rpc_push(
    endpoint: Option<&handover_rpc_endpoint>,
    peer: handover_rpc_peer,
    bulk: Option<&handover_rpc_bulk>,
    memory: Option<&handover_rpc_memory>,
    range: Option<&handover_rpc_range>,
) -> handover_status {
    guard(|| {
        let (endpoint, handle, memory, part) = parse_transfer(endpoint, bulk, memory, range)?;
        let done = with_driver!(endpoint, |driver| driver.push(peer.into(), &handle, memory, part));
        done.map_err(transfer_fault)
    })
}
