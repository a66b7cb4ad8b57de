//! What a connection does with bytes and time, without a socket or a clock.
//!
//! ```text
//!   bytes that came ──▶ Inbound ──codec──▶ messages ──▶ whoever handles them
//!                       owns the beginning of a message,
//!                       and only while there is one             │ replies
//!                                                               ▼
//!   bytes to send   ◀── Outbound ◀──────────────── what the kernel did not take
//!                       high and low water marks, a limit
//! ```
//!
//! A [`Link`] is both, behind one pointer that is null while the connection is idle, and [`Tls`] between it
//! and the network where the connection is secured. Everything here
//! is fed with bytes and told the time, so that `tests/it/simulation.rs` can play a network that delays,
//! splits, merges and drops.

mod census;
mod codec;
mod inbound;
mod link;
mod outbound;
mod replies;
mod spin;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "engine/without_tls.rs"]
mod tls;

pub use census::{Census, Seat};
pub use codec::{Codec, CodecError, Decoded, LengthPrefixed, Lines, Raw, TooLong};
pub use inbound::{Inbound, Taken, Truncated};
pub use link::{Link, Reading, Rules, TimedOut, Unqueued};
pub use outbound::{Crossing, Outbound, Overflow};
pub use replies::Replies;
pub use spin::Spin;
pub use tls::{Opened, Tls};
