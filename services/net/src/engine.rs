//! Protocol logic of a connection, without a socket or a clock.
//!
//! ```text
//!   bytes received  ──▶ InboundBuffer ──codec──▶ messages ──▶ the handler
//!                       owns the beginning of a message,
//!                       and only while there is one             │ replies
//!                                                               ▼
//!   bytes to send   ◀── OutboundQueue ◀──────────────── what the kernel did not take
//!                       high and low water marks, a limit
//! ```
//!
//! A [`ProtocolState`] owns both, behind one pointer that is null while the connection is idle, and
//! [`TlsState`] between them and the network if the connection is secured. Bytes and the time are
//! arguments of everything here, so that `tests/it/simulation.rs` can simulate a network that
//! delays, splits, merges and drops.

mod codec;
mod inbound;
mod limiter;
mod outbound;
mod protocol_state;
mod replies;
mod spin;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "engine/tls_disabled.rs"]
mod tls;

pub use codec::{
    BytesCodec, Codec, CodecError, DecodeResult, LengthPrefixCodec, LinesCodec, MessageTooLongError,
};
pub use inbound::{DeliveryResult, InboundBuffer, TruncatedMessageError};
pub use limiter::{PerIpLimiter, Permit};
pub use outbound::{OutboundQueue, SendQueueOverflow, WaterMarkCrossing};
pub use protocol_state::{
    ConnectionLimits, ProtocolState, QueueError, ReceiveBuffer, TimeoutError,
};
pub use replies::ReplyBuffer;
pub use spin::SpinPolicy;
pub use tls::{OpenedRecords, TlsState};
