//! Protocol logic without sockets or clocks: frames, pending calls, bulk messages, and the hashes of procedure names.
//!
//! ```text
//!  caller                              peer
//!  Calls::start ──▶ Header, arguments ──▶ Method looked up, handler called
//!  Calls::complete ◀── Header, result ◀──┘
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
    ArrivalCheck, BulkHandle, BulkMessage, CheckWord, FileId, Location, Rights, SEGMENTS_MAX,
    TRANSFER_LIMIT, is_within, total_bytes,
};
pub use calls::{CallId, Calls, ONE_WAY, Outcome, PeerKey};
pub use frame::{BULK_BYTES_MAX, HEADER_BYTES, HELLO_BYTES, Header, Hello, Kind, Refusal, VERSION};
pub use inbound::ReceiveBuffer;
pub use method::{Method, Methods};
pub use secret::{NO_PROOF, NONCE_BYTES, PROOF_BYTES, Role, SECRET_BYTES_MIN, Secret};
