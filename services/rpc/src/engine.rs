//! Protocol logic without sockets or clocks: frames, pending calls, bulk messages, and the hashes
//! of procedure names.
//!
//! ```text
//!  caller                              peer
//!  Calls::start ──▶ Header, arguments ──▶ Method looked up, handler called
//!  Calls::complete_call ◀── Header, result ◀──┘
//! ```
//!
//! Time is an argument, in ns. The `drive` module of this crate builds on this one.

mod backlog;
mod bulk;
mod calls;
mod frame;
mod inbound;
mod method;
mod secret;

pub use crate::BulkRefusal;
pub use backlog::Backlog;
pub use bulk::{
    ArrivalCheck, BULK_SEGMENTS_MAX, BulkHandle, BulkMessage, CheckWord, FileId, HelpRequest,
    KeyedSegment, Rights, SegmentLocation, TRANSFER_NUMBER_LIMIT, is_range_within,
    keyed_total_bytes, segments_total_bytes,
};
pub use calls::{CallCompletion, CallId, Calls, ONE_WAY_CALL_NUMBER, PeerKey};
pub use frame::{
    BULK_MESSAGE_BYTES_MAX, FRAME_HEADER_BYTES, FrameHeader, FrameKind, HELLO_BYTES, Hello,
    PROTOCOL_VERSION, Refusal,
};
pub use inbound::ReceiveBuffer;
pub use method::{Method, Methods};
pub use secret::{HandshakeRole, NO_PROOF, NONCE_BYTES, PROOF_BYTES, SECRET_BYTES_MIN, Secret};
