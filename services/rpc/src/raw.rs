//! All unsafe code of this crate: memory shared between two processes, copies between processes,
//! the credentials of socket peers, and UCX.

mod copy;
mod credentials;
mod gather;
mod process;
mod region;
mod sealed;
mod segment;
#[cfg(feature = "ucx")]
pub(crate) mod ucx;

pub(crate) use copy::{StoreKind, reserve_apart};
pub(crate) use credentials::peer_credentials;
pub(crate) use gather::{
    MemoryPiece, RemoteAddress, read_process_memory, read_process_word, receive_into, send_from,
    write_process_memory,
};
pub(crate) use process::peer_pidfd;
pub(crate) use region::{Region, file_id};
pub(crate) use segment::{INLINE_BODY_BYTES_MAX, MessageSlot, Segment, SegmentEnd};
#[cfg(feature = "ucx")]
pub(crate) use ucx::{PeerFailure, RemoteOperation, UcxConnection, UcxKey, UcxWorker};
