//! All unsafe code of this crate: memory shared between two processes, copies between processes,
//! and the credentials of socket peers.

mod copy;
mod credentials;
mod gather;
mod process;
mod region;
mod sealed;
mod segment;

pub(crate) use copy::StoreKind;
pub(crate) use credentials::peer_credentials;
pub(crate) use gather::{
    MemoryPiece, RemoteAddress, read_process, read_process_word, receive as receive_into,
    send as send_from, write_process,
};
pub(crate) use process::peer_pidfd;
pub(crate) use region::{Region, file_id};
pub(crate) use segment::{INLINE_BODY_BYTES_MAX, Segment, SegmentError};
